"""A full disk and a failing one under the whole node: what was acknowledged stays, the rest says why not."""

from __future__ import annotations

import msgspec
import pytest
from penstock.broker.engine import NodeConfig
from penstock.broker.keeper.unresolved_syncs import doubts_of
from penstock.storage.batch import batches, encode
from penstock.storage.board import word
from penstock.storage.segment import reference
from penstock.transport import messages as m
from support.core import DATA, Core
from support.writeback import WritebackFiles


def batch(number: int, size: int = 40) -> bytes:
    """One record of a producer that numbers them."""
    return bytes(encode([b"%06d" % number + bytes(size)], producer_id=5, first_sequence=number))


def produce(core: Core, topic: bytes, number: int, size: int = 40) -> m.Produced | m.Failure | None:
    return core.ask(lambda request: m.Produce(request, topic, 0), batch(number, size))


def segment_of(core: Core, name: str) -> str:
    directory = core.topic(name).partitions[0].directory
    newest = max(each for each in core.files.listdir(directory) if each.endswith(".segment"))
    return f"{directory}/{newest}"


@pytest.mark.parametrize("idle", [False, True], ids=["keeper", "inline"])
def test_a_disk_that_is_full_at_any_moment_refuses_and_loses_nothing(idle: bool):
    """The nth use of space fails, n = 1, 2, ... until a whole run needs fewer."""
    n = passed = 0
    while not passed:
        n += 1
        core = Core(WritebackFiles(), config=NodeConfig(snapshot_batches=5, housekeeping_s=1.0))
        core.idle = idle
        topic = core.create_topic("t", segment_bytes=64 << 10)
        core.files.full_at = n
        acknowledged: list[int] = []
        number = 0
        for _ in range(24):
            core.now_s += 1.0
            answer = produce(core, topic, number, size=9000)
            assert answer is not None, f"space {n}: no answer"
            if isinstance(answer, m.Produced):
                assert answer.offset == number
                acknowledged.append(number)
                number += 1
            else:
                assert (answer.code, answer.retry) == ("storage_full", True), f"space {n}: {answer}"
        passed = core.files.full_at > 0
        directory = core.topic("t").partitions[0].directory
        assert len(acknowledged) >= 23
        again = Core(core.files.power_cut())
        found = again.ask(lambda request: m.Fetch(request, topic, 0, 0, -1, 1 << 20, 0))  # noqa: B023
        assert found.end == len(acknowledged), f"space {n}"
    assert n > 6
    assert any(name.startswith("snapshot-") for name in core.files.listdir(directory))


def test_a_failed_sync_answers_poisoned_and_the_other_topics_go_on():
    core = Core(WritebackFiles())
    bad, good = core.create_topic("bad"), core.create_topic("good")
    assert isinstance(produce(core, bad, 0), m.Produced)
    core.files.fail_next(segment_of(core, "bad"))
    answer = produce(core, bad, 1)
    assert isinstance(answer, m.Failure)
    assert answer.code == "poisoned"
    assert isinstance(produce(core, good, 0), m.Produced)
    again = produce(core, bad, 1)
    assert isinstance(again, m.Failure)
    assert again.code == "poisoned"
    assert core.topic("bad").partitions[0].state == "poisoned"
    read = core.ask(lambda request: m.Fetch(request, bad, 0, 0, -1, 1 << 20, 0))
    assert (read.first, read.end) == (0, 1)


def test_a_poisoned_topic_serves_again_after_a_restart_of_both_from_its_mark():
    core = Core(WritebackFiles())
    topic = core.create_topic("t")
    assert isinstance(produce(core, topic, 0), m.Produced)
    core.files.fail_next(segment_of(core, "t"))
    assert isinstance(produce(core, topic, 1), m.Failure)
    second = Core(core.files)
    answer = produce(second, topic, 1)
    assert isinstance(answer, m.Produced)
    assert answer.offset == 1
    third = Core(second.files.power_cut())
    assert third.topic("t").partitions[0].end == 2


def test_nothing_is_acknowledged_while_the_keeper_does_not_answer():
    core = Core(WritebackFiles())
    topic = core.create_topic("t")
    core.hold = True
    request = core.send(lambda request: m.Produce(request, topic, 0), batch(0))
    for _ in range(5):
        core.turn()
    assert core.answer(request) is None
    core.hold = False
    core.turn()
    assert isinstance(core.answer(request), m.Produced)


def test_a_keeper_that_dies_in_a_sync_delays_its_acks_and_loses_none():
    core = Core(WritebackFiles())
    topic = core.create_topic("t")
    core.hold = True
    request = core.send(lambda request: m.Produce(request, topic, 0), batch(0))
    core.turn()
    core._deliver()
    core.keeper.begin(core.now_s)
    core.link.gone = True
    core.jobs.keeper_lost()
    core.watermarks.keeper_lost()
    core.node.advance(core.now)
    assert isinstance(core.answer(request), m.Produced)
    assert Core(core.files.power_cut()).topic("t").partitions[0].end == 1


def test_what_a_dead_pair_left_in_doubt_is_copied_before_it_counts():
    """Both die in a sync whose write-back failed and whose error the dead keeper was told."""
    core = Core(WritebackFiles())
    topic = core.create_topic("t", commit="written")
    core.hold = True
    for number in range(5):
        assert isinstance(produce(core, topic, number), m.Produced)
    path = segment_of(core, "t")
    core._deliver()
    core.keeper.begin(core.now_s)
    core.keeper.begin(core.now_s + 1)
    core.files.fail_next(path)
    with pytest.raises(OSError, match="Input/output"):
        core.keeper._tails[core.topic("t").partitions[0].row].segments[-1].sync()
    found = doubts_of(core.board)
    assert [doubt.poisoned for doubt in found] == [False]
    core.files.rewrite(f"{DATA}/doubts", msgspec.json.encode(found))
    second = Core(core.files)
    assert second.topic("t").partitions[0].end == 5
    assert not second.files.exists(f"{DATA}/doubts")
    third = Core(second.files.power_cut())
    assert third.topic("t").partitions[0].state == "ok"
    request = third.send(lambda request: m.Fetch(request, topic, 0, 0, -1, 1 << 20, 0))
    third.turn()
    stored = [each for _, message, each in third.port.sent if getattr(message, "request", 0) == request]
    assert sum(each.record_count for each in batches(stored[0])) == 5


def test_a_poison_word_whose_file_could_not_be_written_poisons_at_the_next_start():
    core = Core(WritebackFiles())
    topic = core.create_topic("t")
    for number in range(3):
        assert isinstance(produce(core, topic, number), m.Produced)
    path = segment_of(core, "t")
    core.files.fail_next(path)
    assert isinstance(produce(core, topic, 3), m.Failure)
    core.files.unlink(path.rpartition("/")[0] + "/poison")
    core.files.rewrite(f"{DATA}/doubts", msgspec.json.encode(doubts_of(core.board)))
    second = Core(core.files)
    assert second.topic("t").partitions[0].end == 3
    assert isinstance(produce(second, topic, 3), m.Produced)


@pytest.mark.parametrize("commit", ["durable", "written"])
def test_whatever_was_acknowledged_is_there_after_a_clean_end_and_a_power_cut(commit: str):
    core = Core(WritebackFiles())
    topic = core.create_topic("t", commit=commit)
    for number in range(30):
        assert isinstance(produce(core, topic, number), m.Produced)
    core.close()
    assert Core(core.files.power_cut()).topic("t").partitions[0].end == 30


def test_the_board_says_what_readers_may_see():
    core = Core(WritebackFiles())
    topic = core.create_topic("t")
    produce(core, topic, 0)
    partition = core.topic("t").partitions[0]
    row = core.board.row(partition.row)
    assert row.log_id == int.from_bytes(partition.log_id, "little")
    assert row.committed() == (1, 1)
    assert row.first == 0
    core.hold = True
    core.send(lambda request: m.Produce(request, topic, 0), batch(1))
    core.turn()
    assert (row.written, row.durable) == (word(1, 2), word(1, 1))


def test_a_deleted_topic_gives_its_row_back_and_leaves_no_files():
    core = Core(WritebackFiles())
    topic = core.create_topic("t")
    produce(core, topic, 0)
    number = core.topic("t").partitions[0].row
    assert isinstance(core.ask(lambda request: m.DeleteTopic(request, topic)), m.Done)
    core.turn()
    assert core.board.row(number).log_id == 0
    assert not core.files.exists(f"/data/topics/{topic.hex()}")


def test_a_topic_may_be_deleted_while_its_segments_are_being_unlinked():
    core = Core(WritebackFiles())
    topic = core.create_topic("t", segment_bytes=64 << 10)
    for number in range(20):
        produce(core, topic, number, size=9000)
    log = core.node.logs[1]
    assert len(log.segments()) > 1
    core.store.retire(log, [reference(log.path, name) for name in log.names[:1]])
    core.store.retire(log, [reference(log.path, name) for name in log.names[:1]])  # asked again before it is done
    assert len(core.jobs._open) == 1
    core.idle_hands = True
    assert isinstance(core.ask(lambda request: m.DeleteTopic(request, topic)), m.Done)
    core.idle_hands = False
    core.turn()
    assert core.jobs._open == {}
    assert isinstance(produce(core, core.create_topic("t"), 0), m.Produced)


def test_a_snapshot_never_gets_ahead_of_what_is_durable():
    core = Core(WritebackFiles())
    topic = core.create_topic("t", commit="written")
    core.hold = True
    for number in range(5):
        assert isinstance(produce(core, topic, number), m.Produced)
    log = core.node.logs[1]
    assert log.durable < log.written == 5
    core.store.save_snapshot(log, 5, 1, b"state")
    assert log.durable == 5


def test_retention_unlinks_segments_only_below_a_durable_snapshot():
    core = Core(WritebackFiles(), config=NodeConfig(housekeeping_s=1.0, snapshot_batches=5))
    topic = core.create_topic("t", segment_bytes=64 << 10, retention_bytes=64 << 10)
    for number in range(60):
        assert isinstance(produce(core, topic, number, size=9000), m.Produced)
        core.now_s += 1.0
    partition = core.topic("t").partitions[0]
    assert partition.first > 0
    segments = [name for name in core.files.listdir(partition.directory) if name.endswith(".segment")]
    assert len(segments) < 9
    assert core.topic("t").partitions[0].end == 60
    again = Core(core.files.power_cut())
    assert (again.topic("t").partitions[0].first, again.topic("t").partitions[0].end) == (partition.first, 60)
