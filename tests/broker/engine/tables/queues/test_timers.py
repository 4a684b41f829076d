"""Timers are what a sorted list of (time, offset) is, and cost a few bytes each."""

from __future__ import annotations

import random
from bisect import bisect_right

import numpy as np
import pytest
from penstock.broker.engine.tables.queues import timers as module
from penstock.broker.engine.tables.queues.timers import NOTHING, Timers


def added(timers: Timers, pairs: list[tuple[int, int]]) -> None:
    times, offsets = (np.array(column, np.int64) for column in zip(*pairs, strict=True)) if pairs else ([], [])
    timers.add(times, offsets)


@pytest.mark.parametrize("seed", range(40))
def test_they_are_a_sorted_list(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TAIL", 4)
    monkeypatch.setattr(module, "SEALED", 32)
    rng = random.Random(seed)
    timers, naive, end = Timers(), list[tuple[int, int]](), 0
    for _ in range(50):
        fresh = []
        for _ in range(rng.choice([0, 1, 3, 12, 70])):
            end += rng.choice([1, 1, 5, 1 << 33 if rng.random() < 0.01 else 1])
            fresh.append((rng.randrange(40), end))
        added(timers, fresh)
        naive = sorted(naive + fresh)
        if rng.random() < 0.15:
            first = rng.randrange(end + 2)
            keep = sorted(rng.sample([offset for _, offset in naive], len(naive) // 4))
            timers.drop_below(first, np.array(keep, np.int64))
            naive = [pair for pair in naive if pair[1] >= first or pair[1] in keep]
        check(rng, timers, naive, end)


def check(rng: random.Random, timers: Timers, naive: list[tuple[int, int]], end: int) -> None:
    assert len(timers) == len(naive)
    after = rng.choice([NOTHING, *naive, (rng.randrange(41), rng.randrange(end + 2))])
    low = rng.choice([0, 0, rng.randrange(end + 2)])
    now_us, limit = rng.randrange(42), rng.randrange(1, 9)
    left = [pair for pair in naive[bisect_right(naive, after) :] if pair[1] >= low]
    due = timers.due(after, now_us, limit, low)
    found = list(zip(due.times.tolist(), due.offsets.tolist(), strict=True))
    assert found == [pair for pair in left if pair[0] <= now_us][:limit]
    assert timers.next(after, low) == (left[0][0] if left else None)
    assert timers.lowest(after, now_us, low) == min((pair[1] for pair in left if pair[0] <= now_us), default=None)
    assert timers.count(after, low) == len(left)
    high = rng.randrange(end + 2)
    assert timers.most_pending(after, high) >= len([pair for pair in naive if pair > after and pair[1] < high])
    assert sorted(timers.pending(after, low, high)) == sorted(offset for _, offset in left if offset < high)


def test_taking_what_is_due_again_and_again_takes_each_timer_once_and_none_early() -> None:
    rng = random.Random(5)
    timers, wanted = Timers(), []
    for offset in range(0, 5000, 100):
        pairs = [(rng.randrange(1000), number) for number in range(offset, offset + 100)]
        added(timers, pairs)
        wanted += pairs
    taken, after = [], NOTHING
    for now_us in range(0, 1001, 50):
        while len(due := timers.due(after, now_us, 64).offsets):
            batch = timers.due(after, now_us, 64)
            assert (batch.times <= now_us).all()
            after = (int(batch.times[-1]), int(batch.offsets[-1]))
            taken += due.tolist()
    assert taken == [offset for _, offset in sorted(wanted)]
    assert timers.next(after) is None


def test_runs_stay_few_and_sealed_ones_are_never_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TAIL", 8)
    monkeypatch.setattr(module, "SEALED", 256)
    timers, seen = Timers(), dict[int, object]()
    for offset in range(0, 8192, 4):
        added(timers, [(offset * 7 % 1000, number) for number in range(offset, offset + 4)])
        sealed = [run for run in timers._runs if len(run) >= 256]
        for place, run in enumerate(sealed):
            assert seen.setdefault(place, run) is run
    assert len(timers.runs) <= 8192 // 256 + 8


def nbytes(timers: Timers) -> int:
    return sum(run.times.nbytes + run.deltas.nbytes for run in timers.runs)


def test_a_timer_costs_twelve_bytes() -> None:
    rng = np.random.default_rng(1)
    timers = Timers()
    for offset in range(0, 200_000, 1000):
        timers.add(rng.integers(0, 1 << 50, 1000), np.arange(offset, offset + 1000))
    assert nbytes(timers) <= 12.1 * len(timers)
