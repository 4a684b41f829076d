"""A queue that keeps finished tasks for a time: they and their results go; what is open or unread stays."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.broker.engine.logs.replay import replay
from penstock.broker.engine.tables import effects as fx
from penstock.broker.engine.tables.state import PartitionState
from penstock.transport import queue_messages as q
from support.dead import die, lease, opened, queue, set_queue
from support.engine import Rig

BIG = b"x" * 20_000  # three of them fill a segment of 64 KiB
KEEP_S = 600.0


def filled(count: int = 30, **settings: Any) -> tuple[Rig, bytes]:
    rig = Rig(housekeeping_s=5.0)
    topic = rig.topic(segment_bytes=64 << 10)
    set_queue(rig, topic, **{"keep_finished_s": KEEP_S, "lease_s": 86400.0, "lease_max_s": 86400.0, **settings})
    for number in range(count):
        rig.produce(topic, [b"%03d" % number + BIG])
    return rig, topic


def finish(rig: Rig, topic: bytes, first: int, end: int) -> None:
    """Group g is done with these records, with a result each."""
    lease(rig, topic, [(first, end - first)])
    results = [(offset, b"result") for offset in range(first, end)]
    opened(rig, topic).propose(fx.TasksFinished("g", queue(rig, topic).last_token, [], results))
    rig.pass_time(1)


def pass_time(rig: Rig, seconds: float) -> None:
    """With what has to be synced synced, as with a keeper."""
    for _ in range(round(seconds / 10)):
        rig.pass_time(10, step=5)
        rig.sync()


def files(rig: Rig, topic: bytes, kind: str) -> list[str]:
    path = rig.store.directory(topic, 0)
    return [name for name in rig.store.files.contents if name.startswith(path) and kind in name]


def test_what_is_finished_goes_after_its_time_to_the_last_record_and_is_known_to_be_forgotten():
    rig, topic = filled()
    finish(rig, topic, 0, 30)
    pass_time(rig, KEEP_S - 60)
    assert rig.partition(topic).first == 0
    assert rig.ask(q.AskTask, topic, "g", 0, 3).result == b"result"
    pass_time(rig, 400)
    assert rig.partition(topic).first == 30
    assert len(files(rig, topic, ".segment")) <= 2
    answer = rig.ask(q.AskTask, topic, "g", 0, 3)
    assert (answer.code, "finished and is forgotten" in answer.message) == ("task_forgotten", True)
    rig.produce(topic, [b"more"])
    assert rig.partition(topic).end == 31


def test_the_time_counts_from_the_end_of_a_task_and_not_from_when_it_was_sent():
    rig, topic = filled()
    pass_time(rig, 10 * KEEP_S)
    finish(rig, topic, 0, 30)
    pass_time(rig, KEEP_S / 2)
    assert rig.ask(q.AskTask, topic, "g", 0, 3).result == b"result"


def test_what_is_untouched_or_leased_stays_and_all_behind_it():
    rig, topic = filled()
    finish(rig, topic, 0, 9)
    finish(rig, topic, 10, 20)  # record 9 is passed over, as one that is held
    opened(rig, topic).propose(fx.LeaseGranted("g", 99, "w", 1 << 60, [(9, 1, 1)], 20))
    pass_time(rig, 1000)
    assert 6 <= rig.partition(topic).first <= 9
    assert rig.ask(q.AskTask, topic, "g", 0, 12).result == b"result"
    assert rig.read(topic)[9 - rig.partition(topic).first].startswith(b"009")


def test_dead_records_stay_and_a_straggler_is_carried_past():
    rig, topic = filled(carry_after_s=3600.0)
    finish(rig, topic, 0, 4)
    die(rig, topic, [4])
    finish(rig, topic, 5, 30)
    pass_time(rig, 2000)
    assert rig.partition(topic).first <= 4
    pass_time(rig, 4000)
    assert rig.partition(topic).first > 4
    assert [task.offset for task in rig.ask(q.ListDead, topic, "g", 0, 0, 10).tasks] == [4]


@pytest.mark.parametrize("other", [{}, {"keep_finished_s": 10 * KEEP_S}], ids=["for ever", "longer"])
def test_every_group_has_its_say(other: dict[str, Any]):
    rig, topic = filled()
    set_queue(rig, topic, "h", **other)
    opened(rig, topic).propose(fx.LeaseGranted("h", 7, "w", 1 << 60, [(0, 30, 1)], 30))
    opened(rig, topic).propose(fx.TasksFinished("h", 7))
    finish(rig, topic, 0, 30)
    pass_time(rig, 2000)
    assert rig.partition(topic).first == 0


def test_a_consumer_that_has_not_read_yet_is_waited_for():
    rig, topic = filled()
    opened(rig, topic).propose(fx.CursorMoved("readers", 6))
    finish(rig, topic, 0, 30)
    pass_time(rig, 2000)
    assert rig.partition(topic).first == 6


def test_a_setting_that_is_new_counts_from_then_on():
    rig, topic = filled(keep_finished_s=None)
    finish(rig, topic, 0, 30)
    pass_time(rig, 10 * KEEP_S)
    set_queue(rig, topic, keep_finished_s=KEEP_S)
    pass_time(rig, KEEP_S / 2)
    assert rig.partition(topic).first == 0
    pass_time(rig, 1000)
    assert rig.partition(topic).first == 30


def test_a_restart_does_not_begin_the_time_anew_and_replay_gives_the_same():
    rig, topic = filled()
    finish(rig, topic, 0, 30)
    pass_time(rig, KEEP_S - 120)
    applied = opened(rig, topic).committed
    assert applied.queues.by_name["g"].endings.entries
    assert PartitionState.decode(applied.encode()).encode() == applied.encode()
    assert replay(rig.node.logs[1], PartitionState, rig.store).committed.encode() == applied.encode()
    rig.restart()
    pass_time(rig, 300)
    assert rig.partition(topic).first > 0


@pytest.mark.parametrize("takes", [False, True])
@pytest.mark.parametrize("settings", [{}, {"order": "key"}, {"fair": True}], ids=["plain", "in order", "fair"])
def test_a_queue_of_which_everything_went_gives_what_comes_then(settings: dict[str, Any], takes: bool):
    rig, topic = filled(0, **settings)
    for offset in range(3):
        rig.produce(topic, [b"%d" % offset], keys=[b"k"])
        leased = rig.lease(topic, takes=takes)
        assert leased.runs == [(offset, 1, 1)]
        rig.settle(topic, *([] if takes else [q.Settle(0, leased.token, q.Verb.ACK)]))
        pass_time(rig, 3 * KEEP_S)
        assert rig.partition(topic).first == offset + 1


def roll(rig: Rig, topic: bytes) -> None:
    """A segment fills with effects."""
    for _ in range(300):
        set_queue(rig, topic, keep_finished_s=KEEP_S, carry_after_s=60.0)


def test_a_carried_task_whose_result_went_is_forgotten_and_nothing_is_damaged():
    rig, topic = filled(0, carry_after_s=60.0)
    rig.produce(topic, [b"late"], not_before=[rig.now.wall_us + 2_000_000_000])
    for _ in range(3):
        rig.produce(topic, [BIG])
    finish(rig, topic, 1, 4)
    pass_time(rig, 700)
    roll(rig, topic)
    pass_time(rig, 1500)
    assert (rig.partition(topic).first, rig.partition(topic).end) == (4, 4)
    leased = rig.lease(topic)
    opened(rig, topic).log.segment_ends = True
    rig.settle(topic, q.Settle(0, leased.token, q.Verb.ACK, results=[(0, b"result")]))
    ended, log = opened(rig, topic).seq, opened(rig, topic).log
    for _ in range(2):
        rig.node._upkeep.snapshot(opened(rig, topic).history)
        pass_time(rig, 50)
    assert log.names[0].base_seq == ended, "the log begins with its end"
    assert rig.ask(q.AskTask, topic, "g", 0, 0).result == b"result"
    roll(rig, topic)
    pass_time(rig, 1000)
    assert opened(rig, topic).committed.kept.seq(0)
    assert rig.ask(q.AskTask, topic, "g", 0, 0).code == "task_forgotten"
    assert opened(rig, topic).state == "ok"
