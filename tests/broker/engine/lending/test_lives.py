"""Random lives of lent logs."""

from __future__ import annotations

from collections import Counter

import pytest
from support.lent_life import LentLife


@pytest.mark.parametrize("seed", range(24))
def test_a_life(seed: int) -> None:
    LentLife(seed).run(60)


def test_lives_meet_everything() -> None:
    met: Counter[str] = Counter()
    for seed in range(100, 106):
        life = LentLife(seed)
        life.run(80)
        met += life.met
    wanted = {"direct", "resent", "Lent", "Failure", "stopped", "gone", "resign", "commit within", "die within"}
    assert not (wanted | {"orphaned", "asked anew", "given back"}) - set(met), met
