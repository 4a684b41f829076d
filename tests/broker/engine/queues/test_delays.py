"""Priorities and delays through a real node: order, times, restarts, clocks that jump, and who waits."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from penstock.broker.engine import Now
from penstock.broker.engine.tables.queues import timers
from penstock.storage import snapshots
from penstock.transport import messages as m
from support.engine import Rig

ACK, NACK = 0, 1
SECOND = 1_000_000


@pytest.fixture
def rig() -> Rig:
    return Rig()


def offsets(leased: m.Leased) -> list[int]:
    return [offset for first, count, _ in leased.runs for offset in range(first, first + count)]


def acked(rig: Rig, topic: bytes, most: int = 100) -> list[int]:
    """Lease what there is, ack it, and say what it was."""
    leased = rig.lease(topic, most=most)
    if leased.runs:
        assert rig.settle(topic, m.Settle(0, leased.token, ACK)) == []
    return offsets(leased)


def delayed(rig: Rig, topic: bytes, *seconds: float) -> None:
    """One record for each, due so many seconds from now; 0: at once."""
    times = [rig.now.wall_us + round(each * SECOND) if each else 0 for each in seconds]
    assert not isinstance(rig.produce(topic, [b"x"] * len(times), not_before=times), m.Failure)


def test_a_higher_priority_goes_first_and_equal_ones_in_the_order_of_the_log(rig: Rig):
    topic = rig.topic()
    rig.produce(topic, [b"x"] * 6, priorities=[0, 5, 0, 255, 5, 0])
    assert acked(rig, topic) == [3, 1, 4, 0, 2, 5]
    assert acked(rig, topic) == []


def test_a_later_record_of_a_higher_priority_overtakes_what_is_left(rig: Rig):
    topic = rig.topic()
    rig.produce(topic, [b"x"] * 3)
    assert acked(rig, topic, most=1) == [0]
    rig.produce(topic, [b"urgent"], priorities=[9])
    assert acked(rig, topic) == [3, 1, 2]


def test_a_delayed_record_comes_in_its_time_and_blocks_no_other(rig: Rig):
    topic = rig.topic()
    delayed(rig, topic, 0, 10, 5, 0, 0)
    assert acked(rig, topic) == [0, 3, 4]
    rig.pass_time(4.5)
    assert acked(rig, topic) == []
    rig.pass_time(1)
    assert acked(rig, topic) == [2]
    rig.pass_time(5)
    assert acked(rig, topic) == [1]
    rig.pass_time(50)
    assert acked(rig, topic) == []


def test_a_time_that_is_over_when_a_record_is_appended_is_no_delay(rig: Rig):
    topic = rig.topic()
    delayed(rig, topic, 0, -5, 0)
    assert acked(rig, topic) == [0, 1, 2]


def test_each_group_takes_from_the_shelves_for_itself(rig: Rig):
    topic = rig.topic()
    rig.produce(topic, [b"x"] * 3, priorities=[0, 1, 0])
    delayed(rig, topic, 5)
    assert acked(rig, topic) == [1, 0, 2]
    rig.pass_time(6)
    leased = rig.lease(topic, group="other", most=10)
    assert offsets(leased) == [1, 3, 0, 2]
    assert acked(rig, topic) == [3]


def test_a_group_that_begins_at_the_end_is_not_given_what_came_before(rig: Rig):
    topic = rig.topic()
    rig.produce(topic, [b"x"] * 2, priorities=[0, 1])
    delayed(rig, topic, 1)
    assert rig.lease(topic, most=10, start=m.LATEST).runs == []
    rig.produce(topic, [b"x"], priorities=[4])
    rig.pass_time(2)
    assert acked(rig, topic) == [3]


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
def test_a_restart_delivers_nothing_early_nothing_twice_and_loses_nothing(rig: Rig, clean: bool):
    topic = rig.topic()
    delayed(rig, topic, 0, 30, 10, 0, 20)
    rig.produce(topic, [b"x"] * 3, priorities=[0, 7, 0])
    assert acked(rig, topic, most=3) == [6, 0, 3]
    rig.restart(clean=clean)
    assert acked(rig, topic) == [5, 7]
    rig.pass_time(11)
    assert acked(rig, topic) == [2]
    rig.restart(clean=clean)
    rig.restart(clean=not clean)
    assert acked(rig, topic) == []
    rig.pass_time(20)
    assert acked(rig, topic) == [4, 1]
    rig.restart(clean=clean)
    assert acked(rig, topic) == []


def test_what_came_due_while_the_broker_was_away_comes_after_it_is_back(rig: Rig):
    topic = rig.topic()
    delayed(rig, topic, 60, 120)
    rig.node.close(rig.now)
    rig.now = Now(rig.now.wall_us + 90 * SECOND, rig.now.monotonic_s + 90)
    rig.node = rig._open()
    assert acked(rig, topic) == [0]


def test_a_clock_that_was_set_back_over_a_restart_changes_nothing(rig: Rig):
    """Log time goes on where the log ended."""
    topic = rig.topic()
    delayed(rig, topic, 10)
    rig.now = Now(rig.now.wall_us - 3600 * SECOND, rig.now.monotonic_s)
    rig.restart()
    rig.pass_time(9)
    assert acked(rig, topic) == []
    rig.pass_time(2)
    assert acked(rig, topic) == [0]


def test_a_clock_that_jumps_back_while_the_broker_runs_changes_nothing(rig: Rig):
    topic = rig.topic()
    delayed(rig, topic, 10)
    rig.now = Now(rig.now.wall_us - 3600 * SECOND, rig.now.monotonic_s)
    rig.pass_time(9)
    assert acked(rig, topic) == []
    rig.pass_time(2)
    assert acked(rig, topic) == [0]


def test_a_clock_that_jumps_forward_brings_records_once(rig: Rig):
    topic = rig.topic()
    delayed(rig, topic, 600, 1200)
    rig.now = Now(rig.now.wall_us + 700 * SECOND, rig.now.monotonic_s)
    rig.turn()
    assert acked(rig, topic) == [0]
    rig.restart()
    assert acked(rig, topic) == []


def test_who_waits_is_woken_by_a_timer(rig: Rig):
    topic = rig.topic()
    delayed(rig, topic, 10, 3)
    request = rig.next_request()
    rig.send(m.Lease(request, topic, "g", "w", 5, wait_ms=20_000))
    rig.pass_time(2.5)
    assert rig.answers(request) == []
    rig.pass_time(1)
    assert [offsets(each) for each in rig.answers(request)] == [[1]]


def test_who_waits_is_woken_by_a_timer_that_was_written_while_they_waited(rig: Rig):
    topic = rig.topic()
    request = rig.next_request()
    rig.send(m.Lease(request, topic, "g", "w", 5, wait_ms=20_000))
    rig.turn()
    delayed(rig, topic, 8, 2)
    rig.turn()
    assert rig.answers(request) == []
    assert rig.node.tick(rig.now) <= 2.0
    rig.pass_time(2.5)
    assert [offsets(each) for each in rig.answers(request)] == [[1]]


def test_who_waits_gets_records_with_a_priority_once_they_are_committed(rig: Rig):
    topic = rig.topic()
    request = rig.next_request()
    rig.send(m.Lease(request, topic, "g", "w", 5, wait_ms=20_000))
    rig.store.hold = True
    rig.produce(topic, [b"x"] * 3, priorities=[0, 3, 0])
    assert rig.answers(request) == []
    rig.store.hold = False
    rig.sync()
    assert [offsets(each) for each in rig.answers(request)] == [[1, 0, 2]]


def test_a_timer_that_is_written_and_not_yet_committed_is_not_passed_by(rig: Rig):
    topic = rig.topic()
    delayed(rig, topic, 10)
    rig.pass_time(5)
    rig.store.hold = True
    delayed(rig, topic, 1)  # due before the other, in the log, and not yet on the shelf
    rig.now = Now(rig.now.wall_us + 20 * SECOND, rig.now.monotonic_s + 20)
    request = rig.next_request()
    rig.send(m.Lease(request, topic, "g", "w", 1, wait_ms=1000))
    rig.turn()
    assert rig.answers(request) == []
    rig.store.hold = False
    rig.sync()
    assert [offsets(each) for each in rig.answers(request)] == [[1]]
    assert acked(rig, topic) == [0]


def test_a_delayed_record_is_counted_as_such(rig: Rig):
    topic = rig.topic()
    delayed(rig, topic, 0, 10, 20)
    rig.produce(topic, [b"x"] * 2, priorities=[5, 0])
    answer = rig.ask(m.SetQueue, topic, "g", {})
    (counts,) = answer.queues[0].partitions
    assert (counts.ready, counts.delayed) == (3, 2)
    rig.pass_time(11)
    (counts,) = rig.ask(m.SetQueue, topic, "g", {}).queues[0].partitions
    assert (counts.ready, counts.delayed) == (4, 1)
    acked(rig, topic)
    (counts,) = rig.ask(m.SetQueue, topic, "g", {}).queues[0].partitions
    assert (counts.ready, counts.delayed) == (0, 1)
    assert counts.oldest_us == -1


def test_the_age_is_that_of_the_oldest_that_could_be_taken(rig: Rig):
    topic = rig.topic()
    written_us = rig.now.wall_us
    delayed(rig, topic, 10)
    rig.pass_time(5)
    rig.produce(topic, [b"x"], priorities=[3])
    (counts,) = rig.ask(m.SetQueue, topic, "g", {}).queues[0].partitions
    assert counts.oldest_us > written_us
    rig.pass_time(6)
    (counts,) = rig.ask(m.SetQueue, topic, "g", {}).queues[0].partitions
    assert counts.oldest_us == written_us


@pytest.mark.parametrize("seed", range(12))
def test_every_record_is_worked_off_once_and_none_before_its_time(seed: int, monkeypatch: pytest.MonkeyPatch):
    """Random lives: batches of all sorts, leases, nacks, time, and restarts of both sorts."""
    monkeypatch.setattr(timers, "TAIL", 4)
    monkeypatch.setattr(timers, "SEALED", 16)
    rng = random.Random(seed)
    rig = Rig(seed=seed, snapshot_batches=20)
    topic = rig.topic()
    due: dict[int, int] = {}
    done: Counter[int] = Counter()
    for _ in range(60):
        match rng.randrange(6):
            case 0 | 1:
                count = rng.choice([1, 7])
                times = [rng.choice([0, rig.now.wall_us + rng.randrange(9 * SECOND)]) for _ in range(count)]
                levels = [rng.choice([0, 0, 4]) for _ in range(count)]
                first = rig.produce(topic, [b"x"] * count, not_before=times, priorities=levels).offset
                due.update(zip(range(first, first + count), times, strict=True))
            case 2 | 3:
                worked(rig, rng, topic, due, done)
            case 4:
                rig.pass_time(rng.choice([0.5, 3]))
            case _:
                rig.restart(clean=rng.random() < 0.5)
    rig.pass_time(400)
    for _ in range(len(due)):
        rest = acked(rig, topic)
        done.update(rest)
        if not rest:
            break
    assert done == Counter(list(due))


def worked(rig: Rig, rng: random.Random, topic: bytes, due: dict[int, int], done: Counter[int]) -> None:
    """One lease, settled whole."""
    leased = rig.lease(topic, most=rng.choice([1, 5, 50]))
    found = offsets(leased)
    assert all(due[offset] <= rig.now.wall_us for offset in found), "nothing comes before its time"
    if found and rng.random() < 0.7:
        assert rig.settle(topic, m.Settle(0, leased.token, ACK)) == []
        done.update(found)
    elif found:
        assert rig.settle(topic, m.Settle(0, leased.token, NACK, [], 500, "later")) == []


def test_the_newest_snapshot_has_the_shelves(rig: Rig):
    topic = rig.topic()
    delayed(rig, topic, 100, 200)
    rig.restart()
    path = rig.node.logs[1].path
    snapshot = snapshots.load_newest(rig.store.files, path)
    assert snapshot is not None
    assert snapshot.seq == rig.node.logs[1].written, "nothing was replayed but the snapshot"
    rig.pass_time(101)
    assert acked(rig, topic) == [0]
