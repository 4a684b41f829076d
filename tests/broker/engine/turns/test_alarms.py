"""Alarms ring once, in time, and the earliest of those asked for holds."""

from __future__ import annotations

from penstock.broker.engine.turns.alarms import Alarms


def test_an_alarm_rings_once_and_not_before_its_time():
    alarms, rung = Alarms(), list[int]()
    alarms.set("a", 10, rung.append)
    alarms.ring(9)
    assert (rung, alarms.next_us()) == ([], 10)
    alarms.ring(12)
    alarms.ring(13)
    assert (rung, alarms.next_us()) == ([12], None)


def test_the_earliest_time_of_a_key_holds():
    alarms, rung = Alarms(), list[int]()
    for time_us in (30, 10, 20):
        alarms.set("a", time_us, rung.append)
    assert alarms.next_us() == 10
    for now_us in (10, 20, 30):
        alarms.ring(now_us)
    assert rung == [10]


def test_a_cancelled_alarm_does_not_ring():
    alarms, rung = Alarms(), list[int]()
    alarms.set("a", 10, rung.append)
    alarms.set("b", 11, rung.append)
    alarms.cancel("a")
    assert alarms.next_us() == 11
    alarms.ring(20)
    assert rung == [20]


def test_what_is_set_while_ringing_waits_for_the_next_time():
    alarms, rung = Alarms(), list[int]()

    def again(now_us: int) -> None:
        rung.append(now_us)
        alarms.set("a", now_us, again)

    alarms.set("a", 1, again)
    alarms.ring(5)
    assert rung == [5]
    alarms.ring(6)
    assert rung == [5, 6]
