"""When records were appended, as far as the gateway has seen them."""

from __future__ import annotations

import random

import pytest
from penstock.gateway import append_times as module
from penstock.gateway.append_times import AppendTimes

PLACE = (b"t" * 16, 0)


def test_what_was_noted_is_known_and_nothing_else():
    times = AppendTimes()
    assert times.milliseconds(PLACE, 0) == -1
    times.note(PLACE, range(10, 13), [5_000, 5_999, 7_000])
    assert [times.milliseconds(PLACE, offset) for offset in range(9, 14)] == [-1, 5, 5, 7, -1]
    assert times.milliseconds((PLACE[0], 1), 10) == -1


@pytest.mark.parametrize("seed", range(20))
def test_it_agrees_with_a_table_whatever_is_noted_in_which_order(seed):
    randomly, times = random.Random(seed), AppendTimes()
    table = sorted(randomly.randrange(20) for _ in range(100))
    seen: set[int] = set()
    for _ in range(60):
        first = randomly.randrange(100)
        end = min(first + randomly.randrange(1, 20), 100)
        times.note(PLACE, range(first, end), [table[at] * 1000 for at in range(first, end)])
        seen.update(range(first, end))
        for at in range(100):
            assert times.milliseconds(PLACE, at) in ((table[at], -1) if at in seen else (-1,))
    assert times.milliseconds(PLACE, end - 1) == table[end - 1]


def test_memory_is_bounded_and_the_latest_stays(monkeypatch):
    monkeypatch.setattr(module, "SPANS_MAX", 10)
    monkeypatch.setattr(module, "PLACES_MAX", 3)
    times = AppendTimes()
    for place in range(5):
        for at in range(20):
            times.note((b"t", place), [at], [at * 1000])
    assert [times.milliseconds((b"t", 4), at) for at in (9, 10, 19)] == [-1, 10, 19]
    assert [times.milliseconds((b"t", place), 19) for place in range(5)] == [-1, -1, 19, 19, 19]


def test_a_stretch_says_which_records_share_a_time():
    times = AppendTimes()
    times.note(PLACE, range(5, 9), [7_000, 7_000, 9_000, 9_000])
    assert [times.span(PLACE, offset) for offset in (5, 6, 7, 8)] == [(5, 7, 7), (5, 7, 7), (7, 9, 9), (7, 9, 9)]
    assert [times.span(PLACE, offset) for offset in (4, 9)] == [(4, 4, -1), (9, 9, -1)]
