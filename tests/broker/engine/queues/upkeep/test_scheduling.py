"""Schedules at a node: fired once, at their time, whatever crashes, fills up, goes back or grows in between."""

from __future__ import annotations

import random
from typing import Any

import pytest
from penstock.broker.engine import Now
from penstock.broker.engine.logs.replay import replay
from penstock.broker.engine.tables import effects as fx
from penstock.broker.engine.tables.state import PartitionState
from penstock.storage.batch import batches
from penstock.storage.errors import StorageFull
from penstock.transport import messages as m
from penstock.transport import queue_messages as q
from penstock.transport.partitioner import partition_of
from support.engine import START_US, Rig

SECOND = 1_000_000


def put(rig: Rig, topic: bytes, name: str = "s", spec: str = "every 10s", value: bytes = b"tick", **how: Any) -> Any:
    request = rig.next_request()
    rig.send(q.SetSchedule(request, topic, name, spec, how.pop("zone", "UTC"), value, **how))
    rig.turn()
    (answer,) = rig.answers(request)
    return answer


def listed(rig: Rig, topic: bytes = b"") -> list[q.Schedule]:
    return rig.ask(q.ListSchedules, topic).schedules


def failure(answer: Any) -> str:
    assert isinstance(answer, m.Failure), answer
    return answer.code


def opened(rig: Rig, number: int = 0) -> Any:
    return list(rig.node._registry.partitions.values())[number]


def to(rig: Rig, wall_s: float, monotonic_s: float | None = None) -> None:
    """The clocks move on by so much, and a driver turns."""
    more = max(wall_s, 0.0) if monotonic_s is None else monotonic_s
    rig.now = Now(rig.now.wall_us + round(wall_s * SECOND), rig.now.monotonic_s + more)
    rig.turn()


def test_a_schedule_appends_its_record_at_its_times():
    rig = Rig()
    topic = rig.topic()
    answer = put(rig, topic, value=b"v", key=b"k", headers={"h": b"1"}, priority=7)
    assert isinstance(answer, q.Schedules)
    (stands,) = answer.schedules
    assert (stands.name, stands.next_us, stands.last_us, stands.partition) == ("s", START_US + 10 * SECOND, -1, 0)
    rig.pass_time(9.9)
    assert rig.read(topic) == []
    rig.pass_time(25, step=0.1)
    assert rig.read(topic) == [b"v"] * 3
    (stands,) = listed(rig)
    assert (stands.next_us, stands.last_us) == (START_US + 40 * SECOND, START_US + 30 * SECOND)
    rig.fetch(topic, 0)
    first = next(batches(rig.port.sent[-1][2]))
    assert (first.keys(), first.headers()) == ([b"k"], [{"h": b"1"}])
    times, priorities = first.event_times(), first.priorities()
    assert times is not None
    assert priorities is not None
    assert (times.tolist(), priorities.tolist()) == ([START_US + 10 * SECOND], [7])
    live = opened(rig).committed.encode()
    assert replay(opened(rig).log, PartitionState, rig.store).committed.encode() == live


def test_tick_says_when_the_next_is_due_and_fires_nothing_before():
    rig = Rig(housekeeping_s=1000.0)
    topic = rig.topic()
    put(rig, topic)
    assert rig.node.tick(rig.now) == pytest.approx(10)
    to(rig, 9.999999)
    assert rig.read(topic) == []
    to(rig, 0.000001)
    assert rig.read(topic) == [b"tick"]


def test_nothing_is_fired_again_while_it_is_in_flight():
    rig = Rig()
    topic = rig.topic()
    put(rig, topic)
    put(rig, topic, "often", "every 1s", b"often")
    rig.store.hold = True
    for _ in range(12):
        to(rig, 1.0)
    rig.store.hold = False
    rig.sync()
    assert sorted(rig.read(topic)) == [b"often"] * 12 + [b"tick"]


def test_what_was_missed_is_fired_once_and_then_the_next_time():
    rig = Rig()
    topic = rig.topic()
    put(rig, topic)
    rig.restart()
    rig.node.close(rig.now)
    rig.now = Now(rig.now.wall_us + 3605 * SECOND, rig.now.monotonic_s + 1)
    rig.node = rig._open()
    rig.turn()
    assert rig.read(topic) == [b"tick"]
    assert listed(rig)[0].next_us == START_US + 3610 * SECOND
    rig.pass_time(5)
    assert rig.read(topic) == [b"tick"] * 2


@pytest.mark.parametrize("seed", range(10))
def test_a_crash_at_any_point_fires_each_time_once(seed: int):
    """Killed before the flush, after it, after the sync, after the commit; with and without snapshots."""
    chance = random.Random(seed)
    rig = Rig(seed=seed, snapshot_batches=5)
    topic = rig.topic()
    put(rig, topic, "a", "every 2s", b"a")
    put(rig, topic, "b", "every 3s", b"b")
    for second in range(1, 61):
        rig.now = Now(rig.now.wall_us + SECOND, rig.now.monotonic_s + 1)
        rig.node.tick(rig.now)
        if chance.random() < 0.3:
            kill(rig, chance.choice(["proposed", "written", "synced"]))
        rig.turn()
        if second in (20, 40):
            rig.restart(clean=chance.random() < 0.5)
    values = rig.read(topic)
    assert (values.count(b"a"), values.count(b"b")) == (30, 20)
    live = opened(rig).committed.encode()
    assert replay(opened(rig).log, PartitionState, rig.store).committed.encode() == live


def kill(rig: Rig, when: str) -> None:
    """The process is gone: what it had proposed is gone with it, what was written may or may not be durable."""
    if when != "proposed":
        for log in rig.node.flush(rig.now):
            if when == "synced":
                log.sync()
    rig.restart(clean=False)


def test_a_clock_that_goes_back_fires_nothing_again():
    rig = Rig()
    topic = rig.topic()
    put(rig, topic, spec="*/5 * * * *")
    to(rig, 600)
    assert len(rig.read(topic)) == 1
    to(rig, -3600, 1)
    rig.restart()
    to(rig, 60)
    assert len(rig.read(topic)) == 1
    to(rig, 60)
    assert len(rig.read(topic)) == 2, "log time goes on from where it was: the next full five minutes come once"
    to(rig, -3600, 1)
    to(rig, 200)
    assert len(rig.read(topic)) == 2


def test_setting_a_schedule_anew_leaves_it_due_when_it_was_unless_its_times_change():
    rig = Rig()
    topic = rig.topic()
    put(rig, topic)
    rig.pass_time(6)
    assert put(rig, topic, value=b"new").schedules[0].next_us == START_US + 10 * SECOND
    rig.pass_time(6)
    assert rig.read(topic) == [b"new"]
    answer = put(rig, topic, spec="every 1h")
    assert answer.schedules[0].next_us > START_US + 3600 * SECOND
    assert answer.schedules[0].last_us == START_US + 10 * SECOND
    assert len(listed(rig)) == 1


def test_a_deleted_schedule_fires_no_more():
    rig = Rig()
    topic = rig.topic()
    put(rig, topic)
    assert rig.ask(q.DeleteSchedule, topic, "s") == m.Done(rig._request)
    assert listed(rig) == []
    rig.pass_time(30)
    assert rig.read(topic) == []
    answer = rig.ask(q.DeleteSchedule, topic, "s")
    assert failure(answer) == "unknown_schedule"
    assert "'s'" in answer.message


def test_setting_and_firing_in_one_flush_stand_in_the_order_they_were_decided():
    rig = Rig()
    topic = rig.topic()
    put(rig, topic)
    rig.now = Now(rig.now.wall_us + 10 * SECOND, rig.now.monotonic_s + 10)
    rig.node.tick(rig.now)
    rig.send(q.SetSchedule(rig.next_request(), topic, "s", "every 20s", "UTC", b"other"))
    rig.send(q.SetSchedule(rig.next_request(), topic, "t", "every 1s", "UTC", b"t"))
    rig.turn()
    assert opened(rig).committed.encode() == opened(rig).proposed.encode()
    assert rig.read(topic) == [b"tick"]
    assert [each.next_us - rig.now.wall_us for each in listed(rig)] == [20 * SECOND, SECOND]


def test_schedules_stay_where_they_are_when_the_topic_grows():
    rig = Rig()
    topic = rig.topic()
    names = [f"s{number}" for number in range(8)]
    for name in names:
        put(rig, topic, name)
    rig.ask(m.AlterTopic, topic, {}, 4)
    assert {partition_of(name.encode(), 4) for name in names} != {0}
    for name in names:
        assert put(rig, topic, name, value=b"new").schedules[0].partition == 0
    assert rig.ask(q.DeleteSchedule, topic, names[0]) == m.Done(rig._request)
    assert [each.name for each in listed(rig, topic)] == names[1:]
    new = put(rig, topic, "fresh").schedules[0]
    assert new.partition == partition_of(b"fresh", 4)
    rig.pass_time(10)
    assert len(rig.read(topic)) == 7


def test_a_full_disk_delays_a_schedule_and_is_not_asked_in_a_loop():
    rig = Rig()
    topic = rig.topic()
    put(rig, topic)
    rig.pass_time(9)
    log, asked = opened(rig).log, []
    append = log.append

    def full(given: Any, now_us: int) -> Any:
        asked.append(now_us)
        raise StorageFull("no space left")

    log.append = full
    rig.pass_time(5, step=0.01)
    assert 2 <= len(asked) <= 6
    assert (rig.read(topic), listed(rig)[0].last_us) == ([], -1)
    log.append = append
    rig.pass_time(2)
    assert rig.read(topic) == [b"tick"]
    assert listed(rig)[0].next_us == START_US + 20 * SECOND


def test_a_poisoned_partition_fires_nothing_and_does_not_spin():
    rig = Rig(housekeeping_s=1000.0)
    topic = rig.topic()
    put(rig, topic)
    opened(rig).log.poison("the disk is gone")
    to(rig, 11)
    assert rig.node.tick(rig.now) > 1
    assert rig.node.stats()["schedules.fired"] == 0
    assert failure(put(rig, topic, "other")) == "poisoned"
    assert failure(rig.ask(q.DeleteSchedule, topic, "s")) == "poisoned"
    assert [each.name for each in listed(rig)] == ["s"]


def test_a_damaged_partition_fires_nothing_because_it_may_have_fired():
    rig = Rig()
    topic = rig.topic()
    put(rig, topic)
    opened(rig).history.damaged = True
    rig.pass_time(30)
    assert rig.read(topic) == []
    answer = put(rig, topic, "other")
    assert failure(answer) == "unavailable"
    assert "repair" in answer.message


def test_no_schedule_is_set_while_a_partition_that_may_have_it_cannot_be_opened():
    rig = Rig()
    topic = rig.topic(partitions=2)
    put(rig, topic)
    rig.node.close(rig.now)
    rig.store.files.remove_tree(rig.store.directory(topic, partition_of(b"s", 2)))
    rig.node = rig._open()
    rig.turn()
    assert failure(put(rig, topic)) == "unavailable"


def test_a_topic_that_is_deleted_takes_its_schedules_along():
    rig = Rig(housekeeping_s=1000.0)
    topic = rig.topic()
    put(rig, topic)
    rig.ask(m.DeleteTopic, topic)
    assert rig.node._office.queues.alarms.ring(0) is None
    to(rig, 30)
    assert listed(rig) == []
    assert failure(put(rig, topic)) == "unknown_topic"


def test_a_partition_has_so_many_schedules_and_may_replace_those():
    rig = Rig(max_schedules=2)
    topic = rig.topic()
    put(rig, topic, "a")
    put(rig, topic, "b")
    answer = put(rig, topic, "c")
    assert failure(answer) == "limit_reached"
    assert "max_schedules" in answer.message
    assert put(rig, topic, "b", "every 1h").schedules[0].spec == "every 1h"
    rig.ask(q.DeleteSchedule, topic, "a")
    assert put(rig, topic, "c").schedules[0].name == "c"


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"spec": "every 0.1s"}, "1 second"),
        ({"spec": "61 * * * *"}, "bad minute"),
        ({"zone": "Mars/Olympus"}, "zone"),
        ({"priority": 256}, "0 to 255"),
        ({"name": "a b"}, "schedule name"),
        ({"value": b"x" * 70_000}, "65536"),
        ({"headers": {"h": b"x" * 70_000}}, "65536"),
    ],
)
def test_what_cannot_be_a_schedule_is_refused_and_changes_nothing(how: dict[str, Any], said: str):
    rig = Rig()
    topic = rig.topic()
    before = opened(rig).log.written
    answer = put(rig, topic, **how)
    assert failure(answer) == "invalid_request"
    assert said in answer.message
    assert (opened(rig).log.written, listed(rig)) == (before, [])


def test_a_schedule_set_again_and_again_leaves_no_trace_in_the_order_of_alarms():
    rig = Rig()
    topic = rig.topic()
    for number in range(300):
        rig.send(q.SetSchedule(rig.next_request(), topic, "s", f"every {10 + number % 7}s", "UTC", b"v"))
    rig.turn()
    assert len(rig.node._office.queues.alarms._heap) < 100


def test_a_zone_that_is_gone_when_a_schedule_fires_leaves_it_due_and_does_not_spin():
    rig = Rig(housekeeping_s=1000.0)
    topic = rig.topic()
    opened(rig).propose_in_order(fx.ScheduleSet("s", "* * * * *", "Gone/Zone", b"v", None, {}, 0, START_US + SECOND))
    rig.turn()
    rig.restart()
    to(rig, 2)
    assert rig.node.tick(rig.now) == pytest.approx(1)
    assert (rig.read(topic), listed(rig)[0].next_us) == ([], START_US + SECOND)


def test_a_schedule_that_cannot_fire_holds_up_no_other():
    rig = Rig(housekeeping_s=1000.0)
    topic = rig.topic()
    due_us = START_US + 700_000
    opened(rig).propose_in_order(fx.ScheduleSet("s", "* * * * *", "Gone/Zone", b"v", None, {}, 0, due_us))
    put(rig, topic, "other", "every 2s")
    to(rig, 0.7)
    assert rig.node.tick(rig.now) == pytest.approx(1), "it does not spin"
    rig.pass_time(5.8, step=0.1)
    assert rig.read(topic) == [b"tick"] * 3
    assert [(each.name, each.next_us, each.last_us) for each in listed(rig)] == [
        ("other", START_US + 8 * SECOND, START_US + 6 * SECOND),
        ("s", due_us, -1),
    ]
