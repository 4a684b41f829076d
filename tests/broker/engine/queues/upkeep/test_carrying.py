"""Retention beside queue groups: what is unfinished stays within reach, and a few stragglers hold back nothing."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from penstock.broker.engine.logs.replay import replay
from penstock.broker.engine.queues.upkeep import carrying
from penstock.broker.engine.tables import effects as fx
from penstock.broker.engine.tables.state import PartitionState
from penstock.storage.batch import Kind, batches, encode
from penstock.storage.errors import StorageFull
from penstock.storage.record import records
from penstock.transport import messages as m
from penstock.transport import queue_messages as q
from support.dead import die, held_by, lease, opened, queue, set_queue
from support.engine import Rig

SECOND = 1_000_000
BIG = b"x" * 20_000  # three of them fill a segment of 64 KiB
KEPT_AFTER_S = 60.0


def value(offset: int) -> bytes:
    return b"%03d" % offset + BIG


def filled(count: int = 30, **settings: Any) -> tuple[Rig, bytes]:
    """A topic that keeps records for 10 s, with one record a second in it, and a group that has begun with none."""
    rig = Rig(housekeeping_s=5.0)
    topic = rig.topic(segment_bytes=64 << 10, retention_s=10.0)
    set_queue(rig, topic, carry_after_s=KEPT_AFTER_S, **settings)
    fill(rig, topic, count)
    return rig, topic


def fill(rig: Rig, topic: bytes, count: int) -> None:
    for _ in range(count):
        rig.produce(topic, [value(rig.partition(topic).end)])
        rig.pass_time(1)


def finish_all(rig: Rig, topic: bytes) -> None:
    """The group is done with everything that it has not begun with."""
    lease(rig, topic, [(rig.partition(topic).end - 1, 1)])
    opened(rig, topic).propose(fx.TasksFinished("g", queue(rig, topic).last_token))


def segments(rig: Rig, topic: bytes) -> int:
    path = rig.store.directory(topic, 0)
    return len([name for name in rig.store.files.contents if name.startswith(path) and name.endswith(".segment")])


def kept(rig: Rig, topic: bytes) -> dict[int, int]:
    """Where each kept record stands."""
    table = opened(rig, topic).committed.kept
    return {offset: table.seq(offset) for offset in range(rig.partition(topic).end) if table.seq(offset)}


def listed(rig: Rig, topic: bytes) -> dict[int, bytes]:
    """The dead records of group g and what they hold."""
    answer = rig.ask(q.ListDead, topic, "g", 0, 0, 1000)
    held = held_by(rig.port.sent[-1][2])
    assert [task.offset for task in answer.tasks] == list(held)
    return held


# -- what stays -----------------------------------------------------------------------------------


def test_untouched_records_stay_however_old():
    rig, topic = filled()
    rig.pass_time(100)
    assert rig.partition(topic).first == 0
    assert not kept(rig, topic)


@pytest.mark.parametrize("verb", [q.Verb.NACK, None], ids=["waiting", "leased"])
def test_what_is_begun_and_not_finished_stays_until_it_is_carried(verb: q.Verb | None):
    rig, topic = filled(lease_s=3600.0)
    leased = rig.ask(q.Lease, topic, "g", "w", 30)
    assert leased.runs == [(0, 30, 1)]
    finished = [(0, 4), (5, 25)]
    settles = [q.Settle(0, leased.token, q.Verb.ACK, finished)]
    settles += [] if verb is None else [q.Settle(0, leased.token, verb, [(4, 1)], 3_000_000)]
    rig.ask(q.SettleTasks, topic, "g", settles)
    rig.pass_time(10)
    assert rig.partition(topic).first == 3  # the segment of record 4 begins there
    rig.pass_time(90)
    assert list(kept(rig, topic)) == [4]
    (place,) = [each for each in rig.ask(m.Checkpoint).logs if each.topic == topic]
    assert place.needed == kept(rig, topic)[4], "a backup has it, too, below the first offset"
    assert rig.partition(topic).first >= 27


def test_a_group_holds_back_what_it_needs_and_no_stream_is_disturbed():
    rig, topic = filled()
    joined = rig.join(topic, "s", "member", timeout_ms=300_000)
    lease(rig, topic, [(0, 8)])
    opened(rig, topic).propose(fx.TasksFinished("g", queue(rig, topic).last_token))
    rig.pass_time(30)
    assert rig.partition(topic).first == 6
    assert rig.received(joined) == [value(offset) for offset in range(30)]


# -- what is carried ------------------------------------------------------------------------------


def test_a_delayed_record_that_another_replaced_holds_back_nothing_and_is_not_counted():
    rig, topic = filled(count=0, dead_retention_s=1e6)
    rig.ask(m.AlterTopic, topic, {"dedup": "replace"}, 0)
    late = rig.now.wall_us + 3600 * 1_000_000
    rig.ask(m.Produce, topic, 0, payload=bytes(encode([BIG], dedup=[b"k"], not_before=[late])))
    (counted,) = rig.ask(m.ListQueues, topic, "g").queues[0].partitions
    assert (counted.ready, counted.delayed) == (0, 1)
    rig.ask(m.Produce, topic, 0, payload=bytes(encode([BIG], dedup=[b"k"])))
    (counted,) = rig.ask(m.ListQueues, topic, "g").queues[0].partitions
    assert (counted.ready, counted.delayed) == (1, 0)
    fill(rig, topic, 10)
    finish_all(rig, topic)
    rig.pass_time(60)
    assert rig.partition(topic).first > 0


def delayed(rig: Rig, topic: bytes, *seconds: int) -> list[int]:
    """Produce one record for each, due so many seconds from now; returns their offsets."""
    first = rig.partition(topic).end
    times = [rig.now.wall_us + each * 1_000_000 for each in seconds]
    values = [value(first + number) for number in range(len(times))]
    rig.produce(topic, values, not_before=times, priorities=[number % 2 for number in range(len(times))])
    return list(range(first, first + len(times)))


@pytest.mark.parametrize("clean", [None, True, False], ids=["up", "closed", "killed"])
def test_a_far_future_record_holds_back_no_segment_and_comes_in_its_time(clean: bool | None):
    rig, topic = filled(count=0)
    offsets = delayed(rig, topic, 1000, 400, 1000)
    fill(rig, topic, 30)
    finish_all(rig, topic)
    rig.pass_time(90)
    fill(rig, topic, 3)  # a snapshot covers more
    rig.pass_time(90)
    assert list(kept(rig, topic)) == offsets
    assert rig.partition(topic).first > offsets[-1]
    assert segments(rig, topic) <= 4
    if clean is not None:
        rig.restart(clean=clean)
    finish_all(rig, topic)
    assert rig.lease(topic, most=9).runs == []
    rig.pass_time(250)
    assert [run[:2] for run in rig.lease(topic, most=9).runs] == [(1, 1)]
    rig.pass_time(600)
    leased = rig.lease(topic, most=9)
    assert [run[:2] for run in leased.runs if run[0] != 1] == [(0, 1), (2, 1)]
    payload = next(payload for _, message, payload in rig.port.sent if message is leased)
    found = {each.offset: each.value for batch in batches(payload) for each in records(batch)}
    assert {offset: found[offset] for offset in (0, 2)} == {offset: value(offset) for offset in (0, 2)}


def test_a_carried_record_keeps_its_append_time_beside_the_time_of_its_producer():
    rig, topic = filled(count=0)
    due_us, appended_us = rig.now.wall_us + 1000 * 1_000_000, rig.now.wall_us
    rig.produce(topic, [value(0)], event_times=[77], not_before=[due_us])
    for _ in range(2):  # the second time out of a kept batch
        before = dict(kept(rig, topic))
        fill(rig, topic, 30)
        finish_all(rig, topic)
        rig.pass_time(90)
        fill(rig, topic, 3)  # a snapshot covers more
        rig.pass_time(90)
        assert kept(rig, topic).keys() == {0}
        assert kept(rig, topic) != before
    finish_all(rig, topic)
    rig.pass_time(1000)
    leased = rig.lease(topic)
    assert [run[:2] for run in leased.runs] == [(0, 1)]
    (batch,) = batches(next(payload for _, message, payload in rig.port.sent if message is leased))
    assert (batch.event_times().tolist(), batch.append_times().tolist()) == ([77], [appended_us])


def counts(rig: Rig, topic: bytes) -> tuple[int, int]:
    """How many records are ready, and delayed."""
    (counted,) = rig.ask(m.ListQueues, topic, "g").queues[0].partitions
    return counted.ready, counted.delayed


def replace(rig: Rig, topic: bytes) -> None:
    rig.ask(m.Produce, topic, 0, payload=bytes(encode([BIG], dedup=[b"k"], not_before=[rig.now.wall_us + SECOND])))
    assert rig.ask(q.AskTask, topic, "g", 0, 0).why.startswith("record 33 stands for it")


def cancel(rig: Rig, topic: bytes) -> None:
    assert rig.ask(q.CancelTask, topic, "g", 0, 0).state == "cancelled"


def delete(rig: Rig, topic: bytes) -> None:
    assert [rig.ask(m.DeleteRecords, topic, [(0, 0)]).count for _ in range(2)] == [1, 0]
    assert rig.ask(q.AskTask, topic, "g", 0, 0).code == "task_forgotten"


@pytest.mark.parametrize("end", [replace, cancel, delete])
def test_a_delayed_record_that_was_carried_ends_like_others(end: Callable[[Rig, bytes], None]):
    rig, topic = filled(count=0)
    rig.ask(m.AlterTopic, topic, {"dedup": "replace", "dedup_window_s": 1e6}, 0)
    late = rig.now.wall_us + 1000 * SECOND
    rig.ask(m.Produce, topic, 0, payload=bytes(encode([BIG], dedup=[b"k"], not_before=[late])))
    fill(rig, topic, 32)
    finish_all(rig, topic)
    rig.pass_time(150)
    assert 0 in kept(rig, topic)
    assert rig.partition(topic).first > 0
    assert counts(rig, topic) == (0, 1)
    end(rig, topic)
    assert counts(rig, topic) == (0, int(end is replace))
    rig.pass_time(1000, step=5)
    assert counts(rig, topic) == (int(end is replace), 0)
    assert rig.lease(topic, most=9).runs == ([(33, 1, 1)] if end is replace else [])


def test_a_record_that_died_before_its_group_was_moved_is_not_given_beside_that_once_it_is_carried():
    rig, topic = filled(count=0)
    delayed(rig, topic, 1)
    rig.pass_time(2)
    rig.settle(topic, m.Settle(0, rig.lease(topic).token, q.Verb.REJECT))
    assert isinstance(rig.ask(m.ResetQueue, topic, "g", m.EARLIEST), m.Done)
    for _ in range(30):
        delayed(rig, topic, 5000)
        rig.pass_time(1)
    rig.pass_time(150)
    assert rig.partition(topic).first > 0
    assert 0 in kept(rig, topic)
    assert rig.lease(topic).runs == []
    assert counts(rig, topic) == (0, 30)
    assert rig.ask(q.AskTask, topic, "g", 0, 0).state == "dead"
    rig.ask(q.RedriveDead, topic, "g")
    assert rig.lease(topic, most=9).runs == [(0, 1, 1)]


def test_a_frontier_before_delayed_records_only_holds_back_nothing():
    rig, topic = filled(count=3)
    finish_all(rig, topic)
    for _ in range(30):
        delayed(rig, topic, 5000)
        rig.pass_time(1)
    rig.pass_time(150)
    fill(rig, topic, 3)
    rig.pass_time(90)
    assert rig.partition(topic).first > 3


def test_more_delayed_records_than_are_carried_keep_their_place(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(carrying, "DELAYED_MAX", 10)
    rig, topic = filled(count=0)
    delayed(rig, topic, *[5000] * 30)
    fill(rig, topic, 10)
    finish_all(rig, topic)
    rig.pass_time(300)
    assert rig.partition(topic).first == 0
    assert kept(rig, topic) == {}


def test_a_few_dead_records_hold_back_no_segment():
    rig, topic = filled()
    die(rig, topic, [1, 7, 20])
    finish_all(rig, topic)
    before = segments(rig, topic)
    rig.pass_time(90)
    fill(rig, topic, 3)  # a snapshot covers more
    rig.pass_time(90)
    assert list(kept(rig, topic)) == [1, 7, 20]
    assert rig.partition(topic).first > 20
    assert (before, segments(rig, topic)) == (10, 2)
    assert listed(rig, topic) == {offset: value(offset) for offset in (1, 7, 20)}


@pytest.mark.parametrize("clean", [True, False])
def test_kept_records_are_there_after_a_restart_and_can_be_tried_again(clean: bool):
    rig, topic = filled()
    die(rig, topic, [1, 7, 29])
    rig.pass_time(90)
    rig.restart(clean=clean)
    assert listed(rig, topic) == {offset: value(offset) for offset in (1, 7, 29)}
    assert rig.ask(q.RedriveDead, topic, "g").count == 3
    leased = rig.ask(q.Lease, topic, "g", "w", 10)
    assert leased.runs == [(1, 1, 1), (7, 1, 1), (29, 1, 1)]
    held = held_by(rig.port.sent[-1][2])
    assert {offset: held[offset] for offset in (1, 7, 29)} == {offset: value(offset) for offset in (1, 7, 29)}


def test_a_lease_of_kept_records_waits_for_pages_that_are_not_in_memory():
    rig, topic = filled()
    die(rig, topic, [1, 7, 29])
    rig.pass_time(90)
    rig.ask(q.RedriveDead, topic, "g")
    rig.port.cold = []
    assert rig.ask(q.Lease, topic, "g", "w", 10) is None
    (token,), rig.port.cold = rig.port.cold, None
    rig.node.warmed(token)
    assert {1, 7, 29} <= held_by(rig.port.sent[-1][2]).keys()


def test_kept_records_are_carried_again_when_their_segment_is_to_go():
    rig, topic = filled()
    die(rig, topic, [1, 2])
    finish_all(rig, topic)
    rig.pass_time(90)
    (seq,) = set(kept(rig, topic).values())
    for _ in range(4):
        fill(rig, topic, 12)
        finish_all(rig, topic)
        rig.pass_time(80)
    (again,) = set(kept(rig, topic).values())
    assert again > seq
    assert rig.node.logs[1].segments()[0].base_seq > seq
    assert listed(rig, topic) == {1: value(1), 2: value(2)}
    rig.restart(clean=False)
    assert listed(rig, topic) == {1: value(1), 2: value(2)}


def test_what_is_finished_is_carried_no_more_and_forgotten():
    rig, topic = filled()
    die(rig, topic, [1, 7])
    rig.pass_time(90)
    rig.ask(q.DiscardDead, topic, "g", [(0, 1)])
    fill(rig, topic, 12)
    finish_all(rig, topic)
    rig.pass_time(90)
    assert list(kept(rig, topic)) == [7]


def test_what_no_disk_took_is_carried_by_a_later_pass(monkeypatch: pytest.MonkeyPatch):
    rig, topic = filled()
    die(rig, topic, [1, 7, 29])
    log, refused = opened(rig, topic).log, list[bool]()

    def full(given: Any, now_us: int) -> Any:
        refused.append(True)
        raise StorageFull("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(log, "append", full)
        rig.pass_time(90)
    assert (bool(refused), kept(rig, topic)) == (True, {})
    rig.pass_time(90)
    assert sorted(kept(rig, topic)) == [1, 7, 29]


def test_they_are_carried_in_portions(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(carrying, "PORTION", 2)
    rig, topic = filled()
    die(rig, topic, [1, 2, 4, 5, 7])
    finish_all(rig, topic)
    seen: list[int] = []
    for _ in range(20):
        rig.pass_time(5)
        seen.append(len(kept(rig, topic)))
    assert seen[0] == 0
    assert all(after - before <= 2 for before, after in pairwise(seen))
    assert seen[-1] == 5
    assert rig.partition(topic).first > 7


def test_a_portion_is_bounded_by_bytes_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(carrying, "PORTION_BYTES", 30_000)
    rig, topic = filled()
    die(rig, topic, [1, 2, 4, 5, 7])
    finish_all(rig, topic)
    rig.pass_time(90)
    where = list(kept(rig, topic).values())
    assert len(where) == 5
    assert max(where.count(seq) for seq in where) == 2


def test_two_groups_keep_what_either_has_open():
    rig, topic = filled()
    set_queue(rig, topic, "h", carry_after_s=KEPT_AFTER_S)
    die(rig, topic, [1, 7, 29])
    die(rig, topic, [7, 20, 29], "h")
    rig.pass_time(90)
    assert list(kept(rig, topic))[:3] == [1, 7, 20]
    rig.ask(q.DiscardDead, topic, "g")
    assert [task.offset for task in rig.ask(q.ListDead, topic, "h", 0, 0, 10).tasks] == [7, 20, 29]
    assert held_by(rig.port.sent[-1][2]) == {offset: value(offset) for offset in (7, 20, 29)}


def test_on_a_damaged_partition_nothing_goes():
    rig, topic = filled()
    die(rig, topic, [1, 29])
    opened(rig, topic).history.damaged = True
    rig.pass_time(90)
    assert rig.partition(topic).first == 0


def test_a_kept_batch_is_no_record_for_streams():
    rig, topic = filled()
    die(rig, topic, [1, 29])
    rig.pass_time(90)
    first = rig.partition(topic).first
    fill(rig, topic, 2)
    joined = rig.join(topic, "s", "member", timeout_ms=300_000)
    assert rig.received(joined) == [value(offset) for offset in range(first, 32)]
    answer = rig.fetch(topic, 30)
    assert answer.next_offset == 32


def test_the_state_is_the_same_from_the_log_and_from_a_snapshot():
    rig, topic = filled()
    die(rig, topic, [1, 7])
    rig.pass_time(90)
    log = rig.node.logs[1]
    live = opened(rig, topic).committed.encode()
    assert replay(log, PartitionState, rig.store).committed.encode() == live
    rig.restart()
    assert opened(rig, topic).committed.kept.dump() == PartitionState.decode(live).kept.dump()


def test_a_kept_batch_stands_in_the_log_under_the_offsets_of_its_records():
    rig, topic = filled()
    die(rig, topic, [0, 2])
    finish_all(rig, topic)
    rig.pass_time(90)
    seq = kept(rig, topic)[2]
    chunk = rig.node.logs[1].reader().cursor_after(seq - 1).next(1)
    assert chunk is not None
    (batch,) = batches(chunk.buffer)
    assert (batch.kind, batch.offsets().tolist()) == (Kind.KEPT, [0, 2])
    times = batch.event_times()
    assert times is not None
    assert times[1] - times[0] == 2_000_000  # a second for each record between them


def test_a_topic_that_is_deleted_while_its_records_are_carried_ends_well():
    rig, topic = filled()
    die(rig, topic, [1, 7])
    rig.port.cold = []
    rig.pass_time(90)
    assert rig.port.cold
    rig.ask(m.DeleteTopic, topic)
    cold, rig.port.cold = rig.port.cold, None
    for token in cold:
        rig.node.warmed(token)
    rig.pass_time(10)
    assert rig.ask(m.ListTopics, []).topics == []


def test_a_kept_record_stays_until_it_is_certain_that_it_is_finished():
    rig, topic = filled(lease_s=36000.0)
    leased = rig.ask(q.Lease, topic, "g", "w", 30)
    rig.settle(topic, m.Settle(0, leased.token, q.Verb.ACK, [(0, 4), (5, 25)]))
    rig.pass_time(100)
    assert list(kept(rig, topic)) == [4]
    rig.port.cold = []  # it is not carried again
    fill(rig, topic, 30)
    finish_all(rig, topic)
    rig.pass_time(60)
    partition = opened(rig, topic)
    for _ in range(2):
        rig.produce(topic, [b"more"])
        rig.node._upkeep.snapshot(partition.history)
    log = partition.log
    assert log.expired(rig.store.covered(log)), "nothing but the kept record holds these segments"
    before = segments(rig, topic)
    rig.store.hold = True
    rig.send(m.SettleTasks(rig.next_request(), topic, "g", [m.Settle(0, leased.token, q.Verb.ACK)]))
    rig.pass_time(10)
    assert segments(rig, topic) == before, "a power cut could take the settle back"
    rig.store.hold = False
    rig.port.cold = None
    rig.sync()
    rig.pass_time(30)
    assert segments(rig, topic) == 1
