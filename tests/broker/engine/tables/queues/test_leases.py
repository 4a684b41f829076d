"""Leases as tables: masks over runs of offsets."""

from __future__ import annotations

import random

import pytest
from penstock.broker.engine.tables.queues import leases
from penstock.broker.engine.tables.queues.leases import Extent, Lease


def test_what_is_asked_for_is_found_once_however_it_is_named():
    lease = Lease.of(1, "w", 0, [(0, 10, 1), (20, 5, 2)])
    assert lease.among([(8, 20), (3, 2), (4, 1), (9, 1)]) == [(3, 2, 1), (8, 2, 1), (20, 5, 2)]
    assert lease.among([]) == [(0, 10, 1), (20, 5, 2)]
    assert lease.among([(12, 3)]) == []


@pytest.mark.parametrize("seed", range(50))
def test_what_is_left_among_ranges_is_what_a_loop_finds(seed: int):
    dice = random.Random(seed)
    runs = [(first, dice.randint(1, 9), dice.randint(1, 3)) for first in range(0, 100, 10) if dice.random() < 0.7]
    dice.shuffle(runs)
    lease = Lease.of(1, "w", 0, runs)
    held = {first + n: attempt for first, count, attempt in runs for n in range(count)}
    for _ in range(5):
        first, count = dice.randrange(100), dice.randint(1, 8)
        assert lease.clear(first, count) == len([held.pop(at) for at in range(first, first + count) if at in held])
    ranges = [(dice.randrange(100), dice.randint(1, 20)) for _ in range(dice.randint(1, 6))]
    named = {first + n for first, count in ranges for n in range(count)}
    found = [(first + n, attempt) for first, count, attempt in lease.among(ranges) for n in range(count)]
    assert sorted(found) == sorted((at, attempt) for at, attempt in held.items() if at in named)


@pytest.mark.parametrize("seed", range(20))
def test_a_lease_of_many_extents_answers_as_one_that_looks_at_each(seed: int, monkeypatch: pytest.MonkeyPatch):
    dice = random.Random(seed)
    runs = [(first, dice.randint(1, 3), dice.randint(1, 3)) for first in range(0, 400, 4) if dice.random() < 0.6]
    dice.shuffle(runs)
    lease, naive = Lease.of(1, "w", 0, runs), Lease.of(1, "w", 0, runs)
    for _ in range(300):
        first, count = dice.randrange(-2, 410), dice.choice([1, 1, 2, 5, 40])
        found = lease.granted(first, count), lease.attempt(first), lease.clear(first, count // 2)
        monkeypatch.setattr(leases, "FEW_EXTENTS", 1000)
        assert found == (naive.granted(first, count), naive.attempt(first), naive.clear(first, count // 2))
        monkeypatch.undo()
    assert lease.dump() == naive.dump()


def test_settling_a_lease_of_many_extents_one_by_one_looks_at_few_of_them_each(monkeypatch: pytest.MonkeyPatch):
    lease, looked = Lease.of(1, "w", 0, [(offset, 1, 2) for offset in range(0, 3000, 3)]), 0
    clear = Extent.clear

    def counted(extent: Extent, first: int, count: int) -> int:
        nonlocal looked
        looked += 1
        return clear(extent, first, count)

    monkeypatch.setattr(Extent, "clear", counted)
    assert sum(lease.clear(offset, 1) for offset in range(0, 3000, 3)) == 1000
    assert looked <= 2000
