"""Snapshots, retention and what they allow to be removed."""

from __future__ import annotations

from collections.abc import Callable
from errno import EIO
from typing import Any

import pytest
from penstock.broker.engine import Now
from penstock.broker.engine.housekeeping import STEP
from penstock.broker.engine.logs.overlay import Overlay
from penstock.broker.engine.tables import effects as fx
from penstock.storage.batch import encode
from penstock.storage.errors import Corrupt
from penstock.transport import messages as m
from support.engine import Rig
from support.staging import partition_of

BIG = b"x" * 20_000  # three of them fill a segment of 64 KiB


def filled(count: int = 30, *, how: dict[str, Any] | None = None, **settings: Any) -> tuple[Rig, bytes]:
    rig = Rig(housekeeping_s=5.0, **(how or {}))
    topic = rig.topic(segment_bytes=64 << 10, **settings)
    fill(rig, topic, count)
    return rig, topic


def fill(rig: Rig, topic: bytes, count: int) -> None:
    for number in range(count):
        rig.produce(topic, [b"%02d" % number + BIG])
        rig.pass_time(1)


def segments(rig: Rig, topic: bytes) -> list[str]:
    path = rig.store.directory(topic, 0)
    return [name for name in rig.store.files.contents if name.startswith(path) and name.endswith(".segment")]


LIMITS = {"age": {"retention_s": 10.0}, "bytes": {"retention_bytes": 200_000}, "records": {"retention_records": 10}}


@pytest.mark.parametrize("settings", LIMITS.values(), ids=LIMITS)
def test_old_records_go_by_a_logged_decision_and_stay_gone(settings: dict[str, Any]):
    rig, topic = filled(**settings)
    rig.pass_time(20)
    first = rig.partition(topic).first
    assert first > 0
    values = rig.read(topic)
    assert values[0].startswith(b"%02d" % first)
    answer = rig.fetch(topic, 0)
    assert (answer.code, answer.offset) == ("out_of_bounds", first)
    assert f"{first} to 30 are valid" in answer.message
    for clean in (False, True):
        rig.restart(clean=clean)
        assert (rig.partition(topic).first, rig.read(topic)) == (first, values)


def test_what_becomes_durable_late_goes_although_nothing_more_is_written():
    rig = Rig()
    topic = rig.topic(segment_bytes=1 << 16, retention_bytes=100_000, commit="written")
    rig.store.hold = True
    for _ in range(30):
        rig.produce(topic, [b"x" * 10_000])
    rig.pass_time(20)
    assert rig.partition(topic).first > 0, "so it is decided"
    before = len(segments(rig, topic))
    rig.pass_time(20)
    assert len(segments(rig, topic)) == before, "nothing is removed that a power cut may need"
    rig.store.hold = False
    for log in rig.node.logs:
        log.sync()
    rig.pass_time(20)
    assert len(segments(rig, topic)) < before


@pytest.mark.parametrize("limit", [{"retention_bytes": 8 << 20}, {"retention_records": 8}], ids=["bytes", "records"])
def test_a_limit_holds_however_fast_a_log_grows(limit: dict[str, Any]):
    """Between two passes, and with every look finding something to decide: it must not only ever decide."""
    rig = Rig(housekeeping_s=3600.0)
    topic = rig.topic(segment_bytes=4 << 20, **limit)
    most = 0
    for _ in range(80):
        rig.produce(topic, [b"x" * (1 << 20)])
        most = max(most, len(segments(rig, topic)))
    assert 2 < most <= 2 + 8, "the limit and eight segments"
    assert rig.partition(topic).end - rig.partition(topic).first >= 8


@pytest.mark.parametrize("pause_s", [5.0, 3600.0], ids=["at passes", "as it grows"])
@pytest.mark.parametrize("error", [OSError(EIO, "input/output error"), Corrupt("a batch does not verify")])
def test_a_log_that_cannot_be_read_keeps_its_records_until_it_can_be_and_stops_nothing(
    pause_s: float, error: Exception
):
    rig = Rig(housekeeping_s=pause_s)
    topic, other = (rig.topic(name, segment_bytes=64 << 10, retention_records=3) for name in ("t", "other"))
    log = partition_of(rig, topic).log
    segments_, log.segments = log.segments, fails(error)

    def grow() -> None:
        for each in (topic, other):
            for _ in range(140):
                rig.produce(each, [BIG * 3])
        rig.pass_time(15)

    grow()
    assert (partition_of(rig, topic).first, partition_of(rig, other).first > 0) == (0, True)
    assert rig.node.stats()["retention.failed"] > 0
    log.segments = segments_
    grow()
    assert rig.partition(topic).first > 0


def fails(error: Exception) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail


def test_whole_segments_go_while_the_number_of_records_asked_for_remains():
    rig, topic = filled(30, retention_records=10)
    rig.pass_time(20)
    extents = partition_of(rig, topic).log.segments()
    bases = [extent.base_offset for extent in extents]
    assert (rig.partition(topic).first, len(bases)) == (18, 4), "three to a segment: 18 to 29 remain"
    assert bases[0] == 18
    rig.ask(m.AlterTopic, topic, {"retention_records": 1}, 0)
    rig.pass_time(20)
    assert rig.partition(topic).first == extents[-1].base_offset, "the last segment stays whatever the limit"


def test_a_log_that_grows_all_the_time_is_trimmed_at_each_pass():
    rig, topic = filled(40, retention_bytes=100_000)
    assert len(segments(rig, topic)) < 14
    fill(rig, topic, 40)
    assert len(segments(rig, topic)) < 14


def test_segments_go_only_when_the_second_newest_snapshot_covers_them():
    rig, topic = filled(retention_s=10.0)
    removed = []
    retire, rig.store.retire = rig.store.retire, lambda log, gone: removed.append(gone) or retire(log, gone)
    covered, rig.store.covered = rig.store.covered, lambda log: 0
    rig.pass_time(20)
    assert rig.partition(topic).first > 0
    before = segments(rig, topic)
    rig.store.covered = covered
    rig.pass_time(40)
    assert removed
    assert len(segments(rig, topic)) < len(before)
    for ref in removed[0]:
        assert ref.base_seq <= covered(rig.node.logs[1])


def test_the_files_of_a_topic_that_is_not_written_any_more_go_too():
    rig, topic = filled(10, retention_s=10.0)
    before = len(segments(rig, topic))
    rig.pass_time(60, step=1)
    assert (before > 1, len(segments(rig, topic))) == (True, 1)
    written = rig.node.logs[1].written
    rig.pass_time(60, step=1)
    assert rig.node.logs[1].written == written, "a log at rest is left alone"


def test_nothing_goes_without_a_rule_or_while_the_decision_is_not_durable():
    rig, topic = filled(10)
    rig.pass_time(100, step=5)
    assert (rig.partition(topic).first, len(segments(rig, topic))) == (0, 4)
    rig, topic = filled(10, retention_s=1.0)
    rig.restart(clean=False)
    rig.store.hold = True
    rig.pass_time(30, step=5)
    assert len(rig.read(topic)) + rig.partition(topic).first == 10
    first = rig.partition(topic).first
    rig.pass_time(30, step=5)
    assert rig.partition(topic).first == first, "the decision waits for its commit"


@pytest.mark.parametrize("limit", [{"retention_s": 5.0}, {"retention_records": 1}], ids=["age", "records"])
def test_unread_records_stay_when_asked_for(limit: dict[str, Any]):
    rig, topic = filled(0, retain_unread=True, **limit)
    rig.ask(m.Commit, 0, topic, "slow", [m.Position(0, 0, 0)])
    fill(rig, topic, 30)
    rig.pass_time(30)
    assert rig.partition(topic).first == 0
    rig.ask(m.Commit, 0, topic, "slow", [m.Position(0, 9, 0)])
    rig.pass_time(30)
    assert 0 < rig.partition(topic).first <= 9
    rig.ask(m.Commit, 0, topic, "slow", [m.Position(0, 30, 0)])
    rig.pass_time(30)
    assert rig.partition(topic).first > 9


def test_a_cursor_below_the_first_offset_is_given_as_it_is_and_lag_counts_from_the_first_offset():
    rig, topic = filled(retention_s=5.0)
    rig.ask(m.Commit, 0, topic, "g", [m.Position(0, 1, 0)])
    rig.pass_time(30)
    first = rig.partition(topic).first
    assert first > 1
    (group,) = rig.ask(m.ListGroups, topic).groups
    assert (group.partitions[0].cursor, group.partitions[0].lag, group.partitions[0].first) == (1, 30 - first, first)
    joined = rig.join(topic, "g", "a")
    assert joined.assignments[0].offset == 1, "so that the reader can tell what it misses"
    assert rig.deliveries(joined)[0][0].offset == first


def test_a_reader_that_missed_all_that_was_left_is_told_without_records():
    rig, topic = filled(retention_s=5.0)
    partition_of(rig, topic).set_first(30)
    rig.turn()
    joined = rig.join(topic, positions=[(0, 3)])
    ((told, values),) = rig.deliveries(joined)
    assert (told.offset, told.next_offset, told.records, told.damage, values) == (30, 30, 0, "", [])
    assert rig.ask(m.Join, topic, "", "", "control", 0, [(0, 31)], 1000, 1, 1).code == "out_of_bounds"
    assert rig.ask(m.Join, topic, "", "", "control", 0, [(0, -1)], 1000, 1, 1).code == "out_of_bounds"


def test_a_stream_that_was_overtaken_by_retention_goes_on_at_the_first_offset():
    rig, topic = filled(how={"chunk_bytes": 20_000}, retention_s=5.0)
    joined = rig.join(topic, credit=(1, 1), timeout_ms=300_000)
    rig.pass_time(60)
    first = rig.partition(topic).first
    assert first > 1
    rig.send(m.Credit(joined.session, 1 << 30, 1 << 30))
    rig.turn()
    offsets = [message.offset for message, _ in rig.deliveries(joined)]
    assert (offsets[1], rig.deliveries(joined)[-1][0].next_offset) == (first, 30)


def test_a_wall_clock_that_jumps_ahead_removes_nothing_and_is_reported():
    rig, topic = filled(retention_s=3600.0)
    rig.now = rig.now._replace(wall_us=rig.now.wall_us + 10 * 86_400_000_000)
    rig.pass_time(20)
    assert (rig.partition(topic).first, len(rig.read(topic))) == (0, 30)
    assert rig.ask(m.Stats).values["clock.ignored_us"] > 0
    before = rig.produce(topic, [b"x"]).time_us
    rig.now = rig.now._replace(wall_us=0)
    assert rig.produce(topic, [b"x"]).time_us >= before


def test_snapshots_are_taken_after_so_many_batches_and_shorten_the_replay():
    rig = Rig(snapshot_batches=10)
    topic = rig.topic()
    for number in range(35):
        rig.produce(topic, [b"%d" % number], producer_id=1, first_sequence=number)
    path = rig.store.directory(topic, 0)
    assert [seq for log, seq in rig.store.snapshots if log == path] == [10, 20, 30]
    rig.restart(clean=False)
    assert rig.produce(topic, [b"35"], producer_id=1, first_sequence=35).offset == 35


def test_a_clean_close_leaves_a_snapshot_of_what_moved_and_of_nothing_else():
    rig = Rig()
    topic = rig.topic(partitions=2)
    rig.produce(topic, [b"a"])
    rig.restart()
    path = rig.store.directory(topic, 0)
    assert sorted(log for log, _ in rig.store.snapshots) == ["data/metadata", path]
    rig.restart()
    assert len(rig.store.snapshots) == 2


def test_a_snapshot_waits_until_what_it_covers_is_durable():
    rig = Rig(snapshot_batches=5, housekeeping_s=1.0)
    topic = rig.topic(commit="written")
    rig.store.hold = True
    for number in range(7):
        rig.produce(topic, [b"%d" % number])
    path = rig.store.directory(topic, 0)
    rig.pass_time(5)
    assert path not in [log for log, _ in rig.store.snapshots]
    rig.sync()
    rig.pass_time(2)
    assert [seq for log, seq in rig.store.snapshots if log == path] == [5]


def test_an_idle_node_sleeps_until_housekeeping():
    rig = Rig(housekeeping_s=30.0)
    rig.topic(partitions=3)
    assert rig.node.tick(rig.now) == pytest.approx(30.0)
    rig.join(rig.topic("u"), delivery="mapped")
    assert rig.node.tick(rig.now) == pytest.approx(0.25)


def test_a_pass_over_many_partitions_takes_a_few_of_them_per_turn():
    count = 2 * STEP + 3
    rig = Rig(housekeeping_s=6.0, producer_expiry_s=1.0)
    topic = rig.topic(partitions=count)
    for number in range(count):
        rig.produce(topic, [b"a"], number, producer_id=1)
    rig.now = Now(rig.now.wall_us + 6_000_000, rig.now.monotonic_s + 6.0)
    touched, waits = [], []
    for _ in range(3):
        assert rig.node.tick(rig.now) == 0.0  # expiries were proposed
        touched.append(len(rig.node.flush(rig.now)))
        rig.sync()
        waits.append(rig.node.tick(rig.now))
        rig.now = Now(rig.now.wall_us + round(waits[-1] * 1e6), rig.now.monotonic_s + waits[-1])
    assert touched == [STEP, STEP, 3]
    assert waits == pytest.approx([1.0, 1.0, 6.0])  # spread over half of the time, then a rest


def test_a_topic_that_is_deleted_while_a_pass_goes_on_is_left_out():
    rig = Rig(housekeeping_s=6.0, producer_expiry_s=1.0)
    topic = rig.topic(partitions=STEP + 3)
    for number in range(STEP + 3):
        rig.produce(topic, [b"a"], number, producer_id=1)
    rig.pass_time(6.0, step=6.0)
    rig.ask(m.DeleteTopic, topic)
    rig.now = Now(rig.now.wall_us + 3_000_000, rig.now.monotonic_s + 3.0)
    assert rig.node.tick(rig.now) > 0.0
    assert rig.node.flush(rig.now) == []


def test_a_first_offset_takes_effect_when_it_is_applied_whatever_proposed_it():
    rig, _ = filled()
    (partition,) = rig.node._registry.partitions.values()
    history = partition.history
    overlay = Overlay(history, lambda _: None)
    overlay.propose(fx.FirstOffset(10))
    overlay.flush(rig.now.wall_us)
    partition.log.sync()
    assert len(list(history.advance())) == 1
    assert (partition.first, partition.log.first_offset) == (10, 0)
    rig.node._registry.applied(history)
    assert partition.log.first_offset == 10


# -- what is on its way ---------------------------------------------------------------------------


def test_a_producer_that_sends_after_a_long_silence_is_not_forgotten_meanwhile():
    rig = Rig(housekeeping_s=5.0, producer_expiry_s=100.0)
    topic = rig.topic()
    for producer in (1, 2):
        rig.produce(topic, [b"a"], producer_id=producer)
    rig.pass_time(97)
    rig.store.hold = True
    request = rig.next_request()
    rig.send(m.Produce(request, topic, 0), bytes(encode([b"b"], producer_id=1, first_sequence=1)))
    rig.pass_time(10)
    rig.store.hold = False
    rig.sync()
    assert isinstance(rig.answers(request)[0], m.Produced)
    assert isinstance(rig.produce(topic, [b"c"], producer_id=1, first_sequence=2), m.Produced)
    assert rig.produce(topic, [b"c"], producer_id=2, first_sequence=1).code == "unknown_producer"
    assert rig.read(topic) == [b"a", b"a", b"b", b"c"]


def test_a_cursor_that_is_committed_after_a_long_silence_is_not_deleted_with_its_group():
    rig = Rig(housekeeping_s=5.0, group_expiry_s=100.0)
    topic = rig.topic()
    rig.produce(topic, [b"a", b"b"])
    for group in ("read", "left"):
        rig.ask(m.Commit, 0, topic, group, [m.Position(0, 1, 0)])
    rig.pass_time(97)
    rig.store.hold = True
    request = rig.next_request()
    rig.send(m.Commit(request, 0, topic, "read", [m.Position(0, 2, 0)]))
    rig.pass_time(10)
    rig.store.hold = False
    rig.sync()
    assert isinstance(rig.answers(request)[0], m.Done)
    assert [(each.group, each.partitions[0].cursor) for each in rig.ask(m.ListGroups, topic).groups] == [("read", 2)]


def test_a_group_that_is_silent_on_one_partition_alone_keeps_its_cursor_there():
    rig = Rig(housekeeping_s=5.0, group_expiry_s=100.0)
    topic = rig.topic(partitions=2)
    for number in range(2):
        rig.produce(topic, [b"a"] * 9, number)
        rig.ask(m.Commit, 0, topic, "g", [m.Position(number, 1, 0)])
    for offset in range(2, 6):
        rig.pass_time(60)
        rig.ask(m.Commit, 0, topic, "g", [m.Position(0, offset, 0)])
    (found,) = rig.ask(m.ListGroups, topic).groups
    assert [each.cursor for each in found.partitions] == [5, 1]
    rig.pass_time(110)
    assert rig.ask(m.ListGroups, topic).groups == []
