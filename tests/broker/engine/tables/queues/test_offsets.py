"""Ascending numbers in blocks are what a sorted list of them is."""

from __future__ import annotations

import random
from bisect import bisect_left

import numpy as np
import pytest
from penstock.broker.engine.tables.queues import offsets as module
from penstock.broker.engine.tables.queues.offsets import OffsetSet


def run_end(numbers: list[int], index: int) -> int:
    end = index + 1
    while end < len(numbers) and numbers[end] == numbers[end - 1] + 1:
        end += 1
    return end


@pytest.mark.parametrize("seed", range(30))
def test_it_is_a_sorted_list(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 16)
    rng = random.Random(seed)
    found, naive, last = OffsetSet(), list[int](), -1
    for _ in range(60):
        added = []
        for _ in range(rng.randrange(30)):
            last += rng.choice([1, 1, 1, 2, 50, 1 << 33]) if rng.random() < 0.9 else 1
            added.append(last)
        found.add(np.array(added, np.int64))
        naive += added
        if rng.random() < 0.2:
            first = rng.choice([*naive, 0, last + 1])
            found.drop_below(first)
            naive = [number for number in naive if number >= first]
        assert len(found) == len(naive)
        for number in {0, last, last + 1, *rng.sample(naive, min(5, len(naive)))}:
            for near in (number - 1, number, number + 1):
                assert found.below(near) == bisect_left(naive, near)
                assert (near in found) == (near in naive)
        low, high = sorted(rng.randrange(len(naive) + 3) for _ in range(2))
        assert found.slice(low, high).tolist() == naive[low:high]
        if naive:
            index = rng.randrange(len(naive))
            assert found.run_end(index) == run_end(naive, index)


@pytest.mark.parametrize(("step", "cost"), [(3, 2), (30, 4)])
def test_a_number_costs_two_bytes_or_four(step: int, cost: int) -> None:
    found = OffsetSet()
    for first in range(0, 1 << 20, 1000):
        found.add(np.arange(first, first + 1000, dtype=np.int64) * step)
    held = sum(block.deltas.nbytes for block in found._blocks) + found._tail.itemsize * len(found._tail)
    assert held <= (cost + 0.2) * len(found)
    found.drop_below(step << 19)
    assert len(found._blocks) <= len(found) // module.BLOCK + 2, "what is dropped gives its memory back"
