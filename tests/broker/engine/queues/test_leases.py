"""Leases as tables: masks over runs of offsets."""

from __future__ import annotations

import random

import pytest
from penstock.broker.engine.queues.leases import Lease


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
