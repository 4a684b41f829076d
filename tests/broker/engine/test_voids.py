"""Void records: two columns against a dict."""

from __future__ import annotations

import random

import numpy as np
import pytest
from penstock.broker.engine.voids import Voids


@pytest.mark.parametrize("seed", range(5))
def test_voids_are_what_a_dict_would_be(seed: int):
    chance, voids, model = random.Random(seed), Voids(), dict[int, int]()
    for _ in range(300):
        pairs = [(chance.randint(0, 500), chance.randint(0, 500)) for _ in range(chance.randint(0, 4))]
        voids.add(pairs)
        model.update(pairs)
        if chance.random() < 0.05:
            first = chance.randint(0, 100)
            voids.forget_below(first)
            model = {offset: task for offset, task in model.items() if offset >= first}
        low, high = sorted((chance.randint(-10, 520), chance.randint(-10, 520)))
        assert voids.between(low, high) == sorted(offset for offset in model if low <= offset < high)
        some = np.array(chance.sample(range(501), chance.randint(0, 40)), np.int64)
        assert voids.among(some).tolist() == sorted(offset for offset in some.tolist() if offset in model)
        assert voids.count(low, high) == len(voids.between(low, high))
        assert voids.beyond(low) == next(offset for offset in range(low, 1000) if offset not in model)
        assert [voids.task_of(offset) for offset in range(501)] == [model.get(offset, -1) for offset in range(501)]
        assert (len(voids), 7 in voids) == (len(model), 7 in model)
        voids = Voids.load(voids.dump())


def test_records_that_repeat_an_earlier_one_are_told_from_those_that_a_later_one_replaced():
    voids = Voids()
    voids.add([(10, 3), (11, 15), (12, 11)])
    assert voids.repeats(10, 3) == [(0, 3), (2, 11)]
    assert voids.repeats(11, 1) == []
    assert voids.repeats(13, 5) == []
