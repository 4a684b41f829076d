"""The search for a sustainable rate, on systems whose capacity is known."""

from __future__ import annotations

import numpy as np
import pytest

from perf.load import capacity, histograms
from perf.load.loads import Load, Outcome


def outcome(rate: int, *, p99_us: float = 100.0, missing: int = 0, growth: float = 0.0) -> Outcome:
    filled = histograms.histogram(np.full(1000, int(p99_us * 1e3)))
    return Outcome(Load(rate, 1.0), filled, None, missing, growth)


def synthetic(known: int):
    """A system that does `known` per second and falls behind at every rate above."""
    tried: list[int] = []

    def run(rate: int) -> Outcome:
        tried.append(rate)
        return outcome(rate, growth=max(0.0, rate / known - 1))

    return run, tried


@pytest.mark.parametrize("known", [1, 90, 1_000, 123_456, 9_999_999])
@pytest.mark.parametrize("first", [1, 1_000, 10_000_000])
def test_the_rate_found_is_within_the_precision_of_what_the_system_does(known, first):
    run, tried = synthetic(known)
    found = capacity.sustained(run, first, precision=0.1)
    assert known / 1.1 - 1 <= found <= known * (1 + capacity.GROWTH_MAX)
    assert len(set(tried)) <= capacity.TRIES_MAX


def test_a_system_that_sustains_nothing_gives_0_after_a_bounded_search():
    tried = []
    assert capacity.search(lambda rate: tried.append(rate) is not None, 1 << 40, 0.1) == 0
    assert len(tried) == capacity.TRIES_MAX


def test_a_system_without_a_limit_ends_the_search_too():
    tried = []
    assert capacity.search(lambda rate: not tried.append(rate), 1, 0.1) == tried[-1]
    assert len(tried) == capacity.TRIES_MAX


def test_a_rate_that_fails_once_is_tried_again():
    tried: list[int] = []

    def run(rate: int) -> Outcome:
        tried.append(rate)
        return outcome(rate, growth=0.0 if rate <= 1000 and tried.count(rate) > 1 else 1.0)

    assert capacity.sustained(run, 1000, precision=0.5) >= 1000 // 1.5


@pytest.mark.parametrize(
    ("given", "keeps_up"),
    [
        ({}, True),
        ({"missing": 1}, False),
        ({"growth": 0.019}, True),
        ({"growth": 0.03}, False),
        ({"p99_us": 99_000}, True),
        ({"p99_us": 101_000}, False),
    ],
)
def test_keeping_up_is_everything_received_in_time_without_growth(given, keeps_up):
    assert capacity.keeps_up(outcome(1000, **given)) is keeps_up
