"""Outcomes on their way: ranges, whole leases, and who hears what."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.clients.working.leases import Gathering, Held, SettleFuture, length_ms, ranges_of
from penstock.transport.queue_messages import BY_GROUP, FOREVER_US, Leased, Verb


@given(st.lists(st.integers(0, 60), max_size=40))
def test_ranges_say_each_offset_once_in_as_few_pieces_as_there_are(offsets):
    ranges = ranges_of(offsets)
    assert [n for first, count in ranges for n in range(first, first + count)] == sorted(set(offsets))
    assert all(first + count < after for (first, count), (after, _) in pairwise(ranges))


@pytest.mark.parametrize(
    ("offsets", "ranges"),
    [(range(5, 8), []), ([7, 5, 6], []), ([5, 6], [(5, 2)]), ([5, 5, 6], [(5, 2)]), ([7, 5], [(5, 1), (7, 1)])],
)
def test_only_all_of_a_lease_is_named_as_a_whole(offsets, ranges):
    core: object = object()
    gathering = Gathering(Held(core, 3, 99, 30_000, {5, 6, 7}), Verb.ACK, BY_GROUP, "")
    gathering.add(list(offsets), SettleFuture(core))
    settle = gathering.settle()
    assert (settle.partition, settle.token, settle.verb, settle.ranges) == (3, 99, 0, ranges)


def test_a_lease_is_extended_when_a_third_of_its_usual_time_is_left_behind():
    lease = Held(object(), 0, 1, 30_000, {1})
    lease.keep(100.0, 30_000)
    assert (lease.until, lease.beat_at) == (130.0, 110.0)
    lease.keep(100.0, 3_600_000)
    assert (lease.until, lease.beat_at) == (3700.0, 3680.0), "an hour by hand needs no heartbeat for an hour"


def test_a_lease_without_an_end_is_asked_after_as_one_of_half_a_minute():
    lease = Held(object(), 0, 1, 0, {1})
    lease.keep(100.0, 0)
    assert (lease.until, lease.beat_at, lease.at_least(5_000, 100.0)) == (math.inf, 110.0, 0)
    lease.keep(110.0, 60_000)
    assert (lease.until, lease.beat_at, lease.lease_ms) == (170.0, 130.0, 60_000), "it has an end now"
    assert (lease.at_least(5_000, 150.0), lease.at_least(25_000, 150.0)) == (20_000, 25_000)
    lease.keep(130.0, 0)
    assert (lease.until, lease.beat_at, lease.lease_ms) == (math.inf, 140.0, 0)


@pytest.mark.parametrize(("until_us", "lease_ms"), [(FOREVER_US, 0), (FOREVER_US - 1, 700), (5, 700)])
def test_only_the_end_of_a_lease_says_that_it_has_none(until_us, lease_ms):
    assert length_ms(Leased(1, 0, 1, until_us, 700, []), 700) == lease_ms
    assert length_ms(Leased(1, 0, 1, until_us, 0, []), 0) == min(lease_ms, 1), "one that is over is no endless one"
