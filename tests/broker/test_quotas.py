"""What a principal may take: rates, connections, and requests in flight."""

from __future__ import annotations

import pytest
from penstock.broker.errors import Overloaded
from penstock.broker.quotas import BURST_S, SIT_OUT_S, TRY_AGAIN_S, Meter, Meters, Quota


def test_what_was_saved_up_is_free_and_the_rest_is_paid_for_in_time():
    meter = Meter[int]("ann", Quota(bytes_s=100))
    meter.take(100, 10.0)
    assert meter.debt_s(10.0) == 0.0
    meter.take(50, 10.0)
    assert meter.debt_s(10.0) == 0.5
    assert meter.debt_s(10.5) == meter.debt_s(99.0) == 0.0


def test_no_more_is_saved_up_than_a_burst():
    meter = Meter[int]("ann", Quota(requests_s=4))
    for _ in range(4):
        meter.take(10**9, 1000.0)
    assert meter.debt_s(1000.0) == 0.0
    meter.take(0, 1000.0)
    assert meter.debt_s(1000.0) == 0.25
    assert BURST_S == 1.0


def test_the_longer_debt_counts():
    meter = Meter[int]("ann", Quota(bytes_s=10, requests_s=1))
    meter.take(15, 0.0)
    assert meter.debt_s(0.0) == 0.5
    meter.take(0, 0.0)
    assert meter.debt_s(0.0) == 1.0


def test_a_debt_that_is_too_long_is_refused_with_its_time():
    meter = Meter[int]("ann", Quota(bytes_s=10, requests_s=5))
    meter.take(20, 0.0)
    meter.check_debt(0.0)
    assert meter.debt_s(0.0) == SIT_OUT_S
    meter.take(5, 0.0)
    with pytest.raises(Overloaded, match="user ann is over its quota of 10 bytes/s and 5 requests/s") as raised:
        meter.check_debt(0.0)
    assert (raised.value.retry_after, raised.value.retry) == (1.5, True)
    meter.check_debt(0.5)


def test_connections_are_counted_once_each_until_they_are_lost():
    meters = Meters[str]()
    ann, bob = meters.of("ann", Quota(connections=2)), meters.of("bob", Quota(connections=2))
    for peer in ("a", "b", "a"):
        meters.connect(peer, ann)
    meters.connect("x", bob)
    with pytest.raises(Overloaded, match="2 connections") as raised:
        meters.connect("c", ann)
    assert raised.value.retry_after == TRY_AGAIN_S
    assert set(meters.by_peer) == {"a", "b", "x"}
    meters.lost("a")
    meters.lost("a")
    meters.lost("stranger")
    meters.connect("c", ann)
    assert meters.by_peer["c"] is ann


def test_requests_are_in_flight_until_they_are_answered_or_their_connection_is_lost():
    meters = Meters[str]()
    meter = meters.of("ann", Quota(in_flight=3))
    for peer in ("a", "b"):
        meters.connect(peer, meter)
    meter.begin("a", 1)
    meter.begin("a", 1)
    meter.begin("a", 2)
    meter.begin("b", 1)
    with pytest.raises(Overloaded, match="3 requests in flight"):
        meter.begin("b", 2)
    meter.answered("b", 1, 0, 0.0)
    meter.answered("b", 1, 0, 0.0)
    meter.begin("b", 2)
    with pytest.raises(Overloaded):
        meter.begin("b", 3)
    meters.lost("a")
    meter.answered("a", 2, 0, 0.0)
    meter.begin("b", 3)
    meter.begin("b", 4)
    with pytest.raises(Overloaded):
        meter.begin("b", 5)


def test_answers_are_paid_for_too():
    meter = Meter[str]("ann", Quota(bytes_s=10))
    meter.connect("a")
    meter.answered("a", 1, 15, 0.0)
    assert meter.debt_s(0.0) == 0.5


def test_a_meter_outlives_a_change_of_its_quota():
    meters = Meters[str]()
    meters.of("ann", Quota(requests_s=1)).take(0, 0.0)
    meters.of("ann", Quota(requests_s=1)).take(0, 0.0)
    assert meters.of("ann", Quota(requests_s=2)).debt_s(0.0) == 1.0
    meters.of("ann", Quota(requests_s=2)).take(0, 0.0)
    assert meters.of("ann", Quota()).debt_s(0.0) == 1.5


def test_a_connection_is_counted_for_the_principal_that_asked_last():
    """A client of Redis may authenticate again as another user."""
    meters = Meters[str]()
    ann, bob = (meters.of(name, Quota(connections=1, in_flight=1)) for name in ("ann", "bob"))
    meters.connect("first", ann)
    ann.begin("first", 1)
    meters.connect("first", bob)
    meters.connect("second", ann)
    ann.begin("second", 1)
    with pytest.raises(Overloaded, match="bob has 1 connection, its quota"):
        meters.connect("second", bob)
    with pytest.raises(Overloaded, match="ann has 1 connection, its quota"):
        meters.connect("third", ann)
    for peer in ("first", "second"):
        meters.lost(peer)
    meters.connect("third", ann)
    meters.connect("fourth", bob)


def test_without_bounds_nothing_is_refused():
    meter = Meter[str]("ann", Quota())
    meter.connect("a")
    for request in range(100):
        meter.take(1 << 30, 0.0)
        meter.begin("a", request)
    assert meter.debt_s(0.0) == 0.0
