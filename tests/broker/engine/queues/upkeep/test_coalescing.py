"""Schedules that coalesce: nothing is appended while the record of an earlier time waits for a worker."""

from __future__ import annotations

import random
from typing import Any

import pytest
from penstock.broker.engine import Now
from penstock.broker.engine.logs.replay import replay
from penstock.broker.engine.tables import effects as fx
from penstock.broker.engine.tables.queues.status import standing
from penstock.broker.engine.tables.state import PartitionState
from penstock.broker.engine.tables.timetable import Timetable
from penstock.storage.errors import StorageFull
from penstock.transport import queue_messages as q
from penstock.transport.queue_messages import Settle, Verb
from penstock.transport.removal_messages import DeleteRecords
from support.engine import START_US, Rig

SECOND = 1_000_000


def put(rig: Rig, topic: bytes, value: bytes = b"tick", *, coalesce: bool = True, **how: Any) -> q.Schedule:
    answer = rig.ask(
        q.SetSchedule, topic, "s", how.pop("spec", "every 10s"), "UTC", value, how.pop("key", None), {},
        how.pop("priority", 0), coalesce,
    )  # fmt: skip
    return answer.schedules[0]


def counted(rig: Rig) -> tuple[int, int]:
    stats = rig.node.stats()
    return stats["schedules.fired"], stats["schedules.coalesced"]


def opened(rig: Rig) -> Any:
    return next(iter(rig.node._registry.partitions.values()))


def replays(rig: Rig) -> None:
    """The log, with and without a snapshot, gives the state that the node has."""
    live = opened(rig).committed.encode()
    assert replay(opened(rig).log, PartitionState, rig.store).committed.encode() == live


def test_times_at_which_the_last_task_waits_add_none():
    rig = Rig()
    topic = rig.topic()
    assert put(rig, topic).coalesce
    rig.pass_time(45)
    assert rig.read(topic) == [b"tick"]
    assert counted(rig) == (1, 3)
    (stands,) = rig.ask(q.ListSchedules, topic).schedules
    assert (stands.next_us, stands.last_us) == (START_US + 50 * SECOND, START_US + 10 * SECOND)
    replays(rig)
    rig.restart()
    rig.pass_time(10)
    assert rig.read(topic) == [b"tick"]


@pytest.mark.parametrize("priority", [0, 7])
def test_a_task_that_was_purged_waits_no_more(priority: int):
    rig = Rig()
    topic = rig.topic()
    rig.ask(q.SetQueue, topic, "g", {})
    put(rig, topic, priority=priority)
    rig.pass_time(25)
    assert counted(rig) == (1, 1)
    rig.ask(q.ResetQueue, topic, "g", -2)
    rig.pass_time(10)
    assert counted(rig) == (2, 1)


def test_without_the_setting_each_time_adds_one():
    rig = Rig()
    topic = rig.topic()
    assert not put(rig, topic, coalesce=False).coalesce
    rig.pass_time(45)
    assert rig.read(topic) == [b"tick"] * 4
    assert counted(rig) == (4, 0)


@pytest.mark.parametrize("priority", [0, 7])
def test_a_leased_task_waits_no_more_and_a_retried_one_does_again(priority: int):
    rig = Rig()
    topic = rig.topic()
    rig.ask(q.SetQueue, topic, "g", {"lease_s": 3600.0, "backoff_s": 3600.0, "jitter": 0.0})
    put(rig, topic, priority=priority)
    rig.pass_time(25)
    leased = rig.lease(topic)
    assert leased.runs == [(0, 1, 1)]
    rig.pass_time(20)
    assert len(rig.read(topic)) == 2, "one beside the leased one, and no more"
    second = rig.lease(topic)
    rig.settle(topic, Settle(0, leased.token, Verb.ACK), Settle(0, second.token, Verb.NACK))
    rig.pass_time(30)
    assert len(rig.read(topic)) == 2, "the second is to be retried"
    replays(rig)


@pytest.mark.parametrize("verb", [Verb.ACK, Verb.REJECT])
def test_an_ended_task_waits_no_more(verb: Verb):
    rig = Rig()
    topic = rig.topic()
    put(rig, topic)
    rig.pass_time(11)
    rig.settle(topic, Settle(0, rig.lease(topic).token, verb))
    rig.pass_time(10)
    assert rig.read(topic) == [b"tick"] * 2


def test_a_cancelled_task_and_a_deleted_record_wait_no_more():
    rig = Rig()
    topic = rig.topic()
    rig.ask(q.SetQueue, topic, "g", {})
    put(rig, topic)
    rig.pass_time(11)
    rig.ask(q.CancelTask, topic, "g", 0, 0)
    rig.pass_time(10)
    assert len(rig.read(topic)) == 2
    rig.ask(DeleteRecords, topic, [(0, 1)])
    rig.pass_time(10)
    assert opened(rig).end == 3


def test_a_task_waits_where_every_group_has_it_waiting():
    rig = Rig()
    topic = rig.topic()
    for group in ("g", "idle"):
        rig.ask(q.SetQueue, topic, group, {})
    put(rig, topic)
    rig.pass_time(25)
    assert len(rig.read(topic)) == 1
    rig.lease(topic, "g")
    rig.pass_time(10)
    assert len(rig.read(topic)) == 2


def test_without_a_group_a_task_waits_until_retention_removes_it():
    rig = Rig(housekeeping_s=1.0)
    topic = rig.topic()
    put(rig, topic)
    rig.pass_time(25)
    assert len(rig.read(topic)) == 1
    opened(rig).set_first(1)
    rig.turn()
    rig.pass_time(10)
    assert opened(rig).end == 2


def test_a_schedule_set_again_goes_on_waiting_unless_its_record_changes():
    rig = Rig()
    topic = rig.topic()
    put(rig, topic)
    rig.pass_time(11)
    put(rig, topic)
    rig.pass_time(10)
    assert rig.read(topic) == [b"tick"]
    put(rig, topic, b"other")
    rig.pass_time(20)
    assert rig.read(topic) == [b"tick", b"other"]
    put(rig, topic, b"other", coalesce=False)
    rig.pass_time(10)
    put(rig, topic, b"other")
    rig.pass_time(20)
    assert rig.read(topic) == [b"tick", b"other", b"other", b"other"], "the first time after that adds one"
    replays(rig)


def test_the_record_is_value_key_headers_and_priority():
    base = fx.ScheduleSet("s", "every 10s", "", b"v", None, {}, 0, 10, True)
    others = [
        fx.ScheduleSet("s", "every 10s", "", b"w", None, {}, 0, 10, True),
        fx.ScheduleSet("s", "every 10s", "", b"v", b"k", {}, 0, 10, True),
        fx.ScheduleSet("s", "every 10s", "", b"v", None, {"h": b""}, 0, 10, True),
        fx.ScheduleSet("s", "every 10s", "", b"v", None, {}, 1, 10, True),
        fx.ScheduleSet("s", "every 10s", "", b"v", None, {}, 0, 10, False),
    ]
    for other in [base, fx.ScheduleSet("s", "every 1h", "UTC", b"v", None, {}, 0, 99, True), *others]:
        table = Timetable()
        table.set(base)
        table.fired(fx.ScheduleFired("s", 10, 20, 5))
        table.set(other)
        assert table.by_name["s"].offset == (-1 if other in others else 5)
        table.coalesced(fx.ScheduleCoalesced("s", 77))
        table.coalesced(fx.ScheduleCoalesced("gone", 77))
        assert (table.by_name["s"].next_us, table.by_name["s"].last_us) == (77, 10)


def test_a_record_and_its_place_are_one_write_beside_others_of_the_same_turn():
    rig = Rig()
    topic = rig.topic()
    put(rig, topic)
    rig.now = Now(rig.now.wall_us + 10 * SECOND, rig.now.monotonic_s + 10)
    rig.produce(topic, [b"a", b"b"])
    rig.node.tick(rig.now)
    rig.turn()
    assert rig.read(topic)[opened(rig).committed.schedules.by_name["s"].offset] == b"tick"
    assert opened(rig).committed.encode() == opened(rig).proposed.encode()


def test_a_time_that_could_not_be_passed_over_on_disk_is_tried_again():
    rig = Rig()
    topic = rig.topic()
    put(rig, topic)
    rig.pass_time(19)
    log, append = opened(rig).log, opened(rig).log.append

    def full(given: Any, now_us: int) -> Any:
        raise StorageFull("no space left")

    log.append = full
    rig.pass_time(3)
    log.append = append
    rig.ask(q.SetQueue, topic, "g", {"lease_s": 3600.0})
    rig.lease(topic)
    rig.pass_time(2)
    assert rig.read(topic) == [b"tick"] * 2, "the time that was to be passed over is due now"
    assert rig.ask(q.ListSchedules, topic).schedules[0].next_us == START_US + 30 * SECOND


@pytest.mark.parametrize("seed", range(12))
def test_a_crash_at_any_point_leaves_at_most_one_task_that_was_never_leased(seed: int):
    chance = random.Random(seed)
    rig = Rig(seed=seed, snapshot_batches=5)
    topic = rig.topic()
    rig.ask(q.SetQueue, topic, "g", {"lease_s": 2.5, "max_attempts": 3, "backoff_s": 0.5})
    put(rig, topic, spec="every 1s", priority=seed % 2)
    for second in range(1, 61):
        rig.now = Now(rig.now.wall_us + SECOND, rig.now.monotonic_s + 1)
        rig.node.tick(rig.now)
        if chance.random() < 0.3:
            for log in rig.node.flush(rig.now) if chance.random() < 0.7 else ():
                if chance.random() < 0.5:
                    log.sync()
            rig.restart(clean=False)
        rig.turn()
        if chance.random() < 0.3:
            leased = rig.lease(topic)
            if leased.runs and chance.random() < 0.7:
                rig.settle(topic, Settle(0, leased.token, chance.choice([Verb.ACK, Verb.REJECT, Verb.RELEASE])))
        state = opened(rig).committed
        states = [
            standing(state.queues.by_name["g"], state.shelves, at, state.time_us).state for at in range(state.end)
        ]
        assert states.count("pending") <= 1, second
        if second in (20, 40):
            rig.restart(clean=chance.random() < 0.5)
    replays(rig)
    assert 5 < state.end < 55, "some times added a task, and some did not"
