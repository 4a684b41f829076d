"""Alarms ring once, in time, and the earliest of those asked for holds."""

from __future__ import annotations

from penstock.broker.engine.turns.alarms import SLACK, Alarms


def test_an_alarm_rings_once_and_not_before_its_time():
    alarms, rung = Alarms[int](), list[int]()
    alarms.set("a", 10, rung.append)
    assert (alarms.ring(9), rung) == (10, [])
    assert (alarms.ring(12), alarms.ring(13), rung) == (None, None, [12])


def test_the_earliest_time_of_a_key_holds():
    alarms, rung = Alarms[int](), list[int]()
    for time_us in (30, 10, 20):
        alarms.set("a", time_us, rung.append)
    assert alarms.ring(9) == 10
    for now_us in (10, 20, 30):
        alarms.ring(now_us)
    assert rung == [10]


def test_a_cancelled_alarm_does_not_ring():
    alarms, rung = Alarms[int](), list[int]()
    alarms.set("a", 10, rung.append)
    alarms.set("b", 11, rung.append)
    alarms.cancel("a")
    assert alarms.ring(10) == 11
    alarms.ring(20)
    assert rung == [20]


def test_what_is_set_while_ringing_waits_for_the_next_time():
    alarms, rung = Alarms[int](), list[int]()

    def again(now_us: int) -> None:
        rung.append(now_us)
        alarms.set("a", now_us, again)

    alarms.set("a", 1, again)
    assert (alarms.ring(5), rung) == (5, [5])
    assert (alarms.ring(6), rung) == (6, [5, 6])


def test_an_alarm_rings_at_its_time():
    alarms, rung = Alarms[float](), list[float]()
    alarms.set("a", 1.5, rung.append)
    assert (alarms.ring(1.5), rung) == (None, [1.5])


def test_cancelled_alarms_are_cleared_away_now_and_then_and_the_others_ring_in_order():
    alarms, rung = Alarms[int](), list[str]()
    for number in range(1000):
        alarms.set(number, 5000, lambda now: rung.append("cancelled"))
        alarms.cancel(number)
        if number % 200 == 0:
            alarms.set(str(number), 2000 - number, lambda now, name=str(number): rung.append(name))
        assert len(alarms._heap) <= 2 * (len(alarms._by_key) + 1) + SLACK
    assert alarms.ring(0) == 1200
    assert (alarms.ring(5000), rung) == (None, ["800", "600", "400", "200", "0"])


def test_it_is_known_without_a_call_that_nothing_is_due():
    alarms, rung = Alarms[int](), list[int]()
    assert alarms.first is None
    alarms.set("a", 30, rung.append)
    alarms.set("b", 20, rung.append)
    alarms.set("c", 40, rung.append)
    assert alarms.first == 20
    alarms.cancel("b")
    assert alarms.first == 20  # earlier than any that rings
    assert (alarms.ring(20), alarms.first, rung) == (30, 30, [])
    alarms.ring(35)
    assert (alarms.first, rung) == (40, [35])
    alarms.ring(40)
    assert (alarms.first, rung) == (None, [35, 40])
