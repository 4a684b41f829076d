"""Buckets of tokens, one for each key."""

from __future__ import annotations

import random

import pytest
from penstock.broker.engine.queues.choosing import rates
from penstock.broker.engine.queues.choosing.rates import BUCKETS_MAX, Rates
from penstock.broker.engine.tables.queues.pace import pace_of, per_second

SECOND = 1_000_000


def test_one_may_go_and_the_next_exactly_one_interval_later():
    buckets, start = Rates(), 1_700_000_000 * SECOND
    assert buckets.take(5, per_second(4.0), start) == 0
    assert buckets.take(5, per_second(4.0), start) == start + SECOND // 4
    assert buckets.take(5, per_second(4.0), start + SECOND // 4 - 1) == start + SECOND // 4
    assert buckets.take(5, per_second(4.0), start + SECOND // 4) == 0


def test_keys_do_not_share_a_bucket():
    buckets = Rates()
    assert [buckets.take(key, per_second(1.0), 0) for key in (2, 3, 2)] == [0, 0, SECOND]


def test_a_tenth_of_a_seconds_worth_may_go_at_once():
    buckets = Rates()
    assert [buckets.take(2, per_second(50.0), 0) for _ in range(6)] == [0] * 5 + [SECOND // 50]


def test_a_refused_attempt_costs_nothing():
    buckets = Rates()
    buckets.take(2, per_second(1.0), 0)
    assert {buckets.take(2, per_second(1.0), at) for at in range(0, SECOND, 1000)} == {SECOND}
    assert buckets.take(2, per_second(1.0), SECOND) == 0


@pytest.mark.parametrize("rate", [0.001, 0.3, 1.0, 7.0, 100.0, 12345.6, 1e9])
def test_asking_when_told_gets_the_rate_and_waits_a_microsecond_too_long_at_most(rate: float):
    buckets, now = Rates(), 0
    for _ in range(1000):
        while again := buckets.take(2, per_second(rate), now):
            assert again > now
            now = again
    intervals = max(0, 1000 - max(1, round(rate / 10)))
    exact = intervals / rate * SECOND
    assert exact - 1 <= now <= exact + intervals


@pytest.mark.parametrize("seed", range(5))
def test_no_span_of_time_sees_more_than_the_rate_and_the_burst(seed: int):
    dice, buckets, now, went = random.Random(seed), Rates(), 0, []
    for _ in range(2000):
        now += dice.choice([0, 0, 0, 100, 5_000, 400_000])
        if buckets.take(2, per_second(30.0), now) == 0:
            went.append(now)
    for first in range(0, len(went), 7):
        for last in range(first, len(went), 11):
            assert last - first + 1 <= 30.0 * (went[last] - went[first]) / SECOND + 3 + 1e-6


def test_full_buckets_are_forgotten_and_others_are_not(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rates, "BUCKETS_MAX", 10)
    buckets = Rates()
    for key in range(2, 12):
        buckets.take(key, per_second(1.0), 0)
    buckets.take(100, per_second(1.0), 2 * SECOND)
    assert len(buckets._full) == 1
    assert buckets.take(100, per_second(1.0), 2 * SECOND) == 3 * SECOND
    assert BUCKETS_MAX > 10


def test_a_bucket_is_recalled_as_it_was_told_of_and_never_fuller():
    pace, told, buckets = pace_of("3/s", 2), Rates[str](), Rates[str]()
    full_us = told.spend("g", pace, 10, 2)
    assert full_us == 10 + -(-2 * SECOND // 3)
    buckets.recall("g", pace, 10, full_us)
    buckets.recall("g", pace, 10, 5)
    assert [each.room("g", pace, 10) for each in (told, buckets)] == [0, 0]
    again_us = told.again_us("g", pace, 10, 2)
    assert again_us <= buckets.again_us("g", pace, 10, 2) <= again_us + 1
    buckets.drop("g")
    assert buckets.room("g", pace, 10) == 2
