"""Which records were carried forward: against a dict."""

from __future__ import annotations

import random

import numpy as np
import pytest
from penstock.broker.engine.tables.queues import kept as module
from penstock.broker.engine.tables.queues.kept import Kept


def array(offsets: list[int] | set[int]) -> np.ndarray:
    return np.array(sorted(offsets), np.int64)


@pytest.mark.parametrize("least", [1, 4096])
def test_it_says_what_a_dict_says_whatever_comes_in_between(monkeypatch: pytest.MonkeyPatch, least: int):
    monkeypatch.setattr(module, "RECENT_MIN", least)
    chance, kept, model = random.Random(7), Kept(), dict[int, int]()
    for seq in range(1, 300):
        offsets = set(chance.sample(range(500), chance.randint(1, 20)))
        if chance.random() < 0.1:
            stay = set(chance.sample(range(500), 300))
            kept.retain(array(stay), 400)
            model = {offset: at for offset, at in model.items() if offset in stay or offset >= 400}
        elif chance.random() < 0.2:
            kept = Kept.load(kept.dump())
        else:
            kept.add(array(offsets), seq)
            model |= dict.fromkeys(offsets, seq)
        assert [kept.seq(offset) for offset in range(500)] == [model.get(offset, 0) for offset in range(500)]
        assert bool(kept) == bool(model)
        assert kept.missing(array(offsets)).tolist() == sorted(offsets - model.keys())
        here, seqs = kept.standing(array(offsets))
        assert dict(zip(here.tolist(), seqs.tolist(), strict=True)) == {o: model[o] for o in offsets & model.keys()}
    assert len(kept) == len(model)


def test_equal_tables_have_equal_bytes_however_they_came_about():
    one, other = Kept(), Kept()
    one.add(array([1, 5]), 3)
    one.add(array([2]), 4)
    other.add(array([2, 5]), 4)
    other.retain(array([2]), 9)
    other.add(array([1, 5]), 3)
    assert one.dump() == other.dump()


def test_a_million_records_take_sixteen_bytes_each():
    kept = Kept()
    kept.add(np.arange(1_000_000), 9)
    body = kept.dump()
    assert len(body.offsets) + len(body.seqs) == 16_000_000
