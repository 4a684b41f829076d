"""Queue groups that are told to go on elsewhere: what comes again, what is skipped, and what stays as it is."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.transport import messages as m
from support.dead import die, set_queue
from support.engine import Rig
from support.staging import partition_of


@pytest.fixture
def rig() -> Rig:
    return Rig()


def filled(rig: Rig, count: int = 8, **how: Any) -> bytes:
    topic = rig.topic()
    set_queue(rig, topic, **how)
    rig.produce(topic, [b"%d" % number for number in range(count)])
    return topic


def reset(rig: Rig, topic: bytes, offset: int | None = None, time_us: int = m.EARLIEST) -> Any:
    return rig.ask(m.ResetQueue, topic, "g", time_us, [] if offset is None else [(0, offset)])


def offsets(leased: Any) -> list[int]:
    return [first + n for first, count, _ in leased.runs for n in range(count)]


def ready(rig: Rig, topic: bytes) -> int:
    return rig.queue(topic).ready


def test_finished_records_come_again_from_there_on(rig: Rig):
    topic = filled(rig)
    rig.settle(topic, m.Settle(0, rig.lease(topic, most=6).token, 0))
    assert isinstance(reset(rig, topic, 2), m.Done)
    assert ready(rig, topic) == 6
    assert rig.ask(m.AskTask, topic, "g", 0, 3).state == "pending"
    assert rig.ask(m.AskTask, topic, "g", 0, 1).code == "unknown_task"
    rig.restart(clean=False)
    assert rig.lease(topic, most=9).runs == [(2, 6, 1)]


def test_records_before_it_that_were_not_begun_are_skipped(rig: Rig):
    topic = filled(rig)
    reset(rig, topic, 5)
    assert ready(rig, topic) == 3
    assert rig.lease(topic, most=9).runs == [(5, 3, 1)]


@pytest.mark.parametrize(("time_us", "left"), [(m.EARLIEST, 8), (m.LATEST, 0)])
def test_it_may_be_an_end(rig: Rig, time_us: int, left: int):
    topic = filled(rig)
    rig.settle(topic, m.Settle(0, rig.lease(topic, most=3).token, 0))
    reset(rig, topic, time_us=time_us)
    assert ready(rig, topic) == left


def test_it_may_be_a_time(rig: Rig):
    topic = filled(rig, 3)
    rig.pass_time(5)
    rig.produce(topic, [b"late"])
    rig.settle(topic, m.Settle(0, rig.lease(topic, most=9).token, 0))
    reset(rig, topic, time_us=rig.now.wall_us - 1_000_000)
    assert rig.lease(topic, most=9).runs == [(3, 1, 1)]


def test_what_is_open_stays_open(rig: Rig):
    topic = filled(rig, max_attempts=2)
    leased = rig.lease(topic, most=8)
    rig.settle(topic, m.Settle(0, leased.token, 1, [(4, 1)], 60_000, "later"), m.Settle(0, leased.token, 2, [(5, 1)]))
    rig.settle(topic, m.Settle(0, leased.token, 0, [(0, 2), (6, 1)]))
    reset(rig, topic, 1)
    queue = rig.queue(topic)
    assert (queue.ready, queue.in_flight, queue.waiting, queue.dead) == (2, 3, 1, 1)
    assert offsets(rig.lease(topic, most=9)) == [1, 6]
    assert rig.settle(topic, m.Settle(0, leased.token, 0, [(2, 2), (7, 1)])) == []
    assert [rig.ask(m.AskTask, topic, "g", 0, at).state for at in (2, 4, 5, 7)] == [
        "completed",
        "waiting",
        "dead",
        "completed",
    ]
    assert rig.lease(topic, most=9).runs == []
    rig.ask(m.RedriveDead, topic, "g", [(0, 5)])
    rig.pass_time(70)
    assert set(offsets(rig.lease(topic, most=9))) >= {4, 5}


def test_what_is_open_before_it_stays_open_as_well(rig: Rig):
    topic = filled(rig)
    leased = rig.lease(topic, most=3)
    rig.settle(topic, m.Settle(0, leased.token, 2, [(0, 1)]))
    reset(rig, topic, 6)
    assert [rig.ask(m.AskTask, topic, "g", 0, at).state for at in (0, 1)] == ["dead", "leased"]
    assert rig.ask(m.AskTask, topic, "g", 0, 4).code == "unknown_task"
    rig.settle(topic, m.Settle(0, leased.token, 3, [(1, 1)]))
    assert offsets(rig.lease(topic, most=9)) == [1, 6, 7]


def test_once_more_and_what_was_finished_meanwhile_comes_again(rig: Rig):
    topic = filled(rig, 4)
    leased = rig.lease(topic, most=2)
    reset(rig, topic, 0)
    rig.settle(topic, m.Settle(0, leased.token, 0))
    assert offsets(rig.lease(topic, most=9)) == [2, 3]
    reset(rig, topic, 0)
    assert partition_of(rig, topic).committed.queues.by_name["g"].apart == {2, 3}
    assert offsets(rig.lease(topic, most=9)) == [0, 1]


def test_priorities_and_delays_are_gone_through_again(rig: Rig):
    topic = rig.topic()
    set_queue(rig, topic)
    late_us = rig.now.wall_us + 2_000_000
    rig.produce(topic, [b"0", b"1", b"2", b"3"], priorities=[5, 0, 5, 0], not_before=[0, late_us, 0, 0])
    rig.pass_time(3)
    leased = rig.lease(topic, most=9)
    rig.settle(topic, m.Settle(0, leased.token, 0, [(0, 2), (3, 1)]))
    reset(rig, topic, 1)
    assert rig.queue(topic).ready == 2
    assert sorted(offsets(rig.lease(topic, most=9))) == [1, 3], "2 is leased, and 0 is before it"
    rig.settle(topic, m.Settle(0, leased.token, 0))
    reset(rig, topic, 0)
    assert sorted(offsets(rig.lease(topic, most=9))) == [0, 2]


def test_held_records_of_keys_are_untouched_again(rig: Rig):
    topic = rig.topic()
    set_queue(rig, topic, order="key")
    rig.produce(topic, [b"0", b"1", b"2"], keys=[b"a", b"a", b"b"])
    leased = rig.lease(topic, most=9)
    assert offsets(leased) == [0, 2]
    reset(rig, topic, 1)
    rig.settle(topic, m.Settle(0, leased.token, 0))
    again = rig.lease(topic, most=9)
    assert offsets(again) == [1]
    assert rig.queue(topic).ready == 0
    rig.settle(topic, m.Settle(0, again.token, 0))
    reset(rig, topic, 0)
    assert offsets(rig.lease(topic, most=9)) == [0, 2], "1 is held"
    reset(rig, topic, 2)
    assert rig.queue(topic).ready == 0, "and skipped"
    assert partition_of(rig, topic).committed.queues.by_name["g"].apart == {2}


def test_what_was_skipped_is_not_begun(rig: Rig):
    """So a later duplicate may take its place."""
    topic = filled(rig)
    rig.lease(topic, most=2)
    reset(rig, topic, 5)
    state = partition_of(rig, topic).committed
    queue = state.queues.by_name["g"]
    assert [queue.begun(offset, state.shelves) for offset in (0, 2, 5)] == [True, False, False]


def test_waiting_workers_get_what_comes_again(rig: Rig):
    topic = filled(rig, 2)
    rig.settle(topic, m.Settle(0, rig.lease(topic, most=9).token, 0))
    request = rig.ask_lease(topic, most=9)
    assert rig.answers(request) == []
    reset(rig, topic, 1)
    assert rig.answers(request)[0].runs == [(1, 1, 1)]


def test_retention_waits_for_what_comes_again(rig: Rig):
    rig = Rig(housekeeping_s=5.0)
    topic = rig.topic(segment_bytes=64 << 10, retention_s=10.0)
    set_queue(rig, topic)
    for _ in range(12):
        rig.produce(topic, [b"x" * 20_000])
    rig.settle(topic, m.Settle(0, rig.lease(topic, most=20).token, 0))
    reset(rig, topic, 4)
    rig.pass_time(60)
    assert rig.partition(topic).first == 3
    assert rig.lease(topic, most=20, max_bytes=1 << 24).runs == [(4, 8, 1)]


def test_what_was_taken_without_a_lease_does_not_come_back_beside(rig: Rig):
    topic = filled(rig, 4)
    rig.port.gone.add("gone")
    rig.port.cold = []
    rig.send(m.Lease(77, topic, "g", "w", 4, takes=True), peer="gone")
    rig.turn()
    (token,), rig.port.cold = rig.port.cold, None
    reset(rig, topic, 0)
    rig.node.warmed(token)
    rig.turn()
    assert rig.lease(topic, most=9).runs == [(0, 4, 1)]
    assert not partition_of(rig, topic).committed.queues.by_name["g"].retrying


def test_an_offset_before_the_first_is_the_first(rig: Rig):
    topic = filled(rig)
    rig.ask(m.Trim, topic, m.TrimRule.OFFSET, 3)
    assert isinstance(reset(rig, topic, 0), m.Done)
    assert rig.lease(topic, most=9).runs == [(3, 5, 1)]


def test_dead_letters_before_and_behind_it_stay(rig: Rig):
    topic = filled(rig)
    die(rig, topic, [1, 5])
    reset(rig, topic, 3)
    assert rig.queue(topic).dead == 2
    assert rig.ask(m.DiscardDead, topic, "g", [(0, 1), (0, 5)]).count == 2
    assert offsets(rig.lease(topic, most=9)) == [3, 4, 6, 7]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        (("no", m.EARLIEST), "unknown_group"),
        (("g", -3), "invalid_request"),
        (("g", 0, [(0, 9)]), "out_of_bounds"),
        (("g", 0, [(1, 0)]), "unknown_partition"),
    ],
)
def test_what_cannot_be_is_refused_and_moves_nothing(rig: Rig, fields: tuple[Any, ...], code: str):
    topic = filled(rig)
    assert rig.ask(m.ResetQueue, topic, *fields).code == code
    assert ready(rig, topic) == 8
