"""Answers that leave before what they say is applied change nothing: random lives, with them and without."""

from __future__ import annotations

from collections import Counter

import pytest
from support.ahead_life import AheadLife

LIVES, STEPS = 6, 80


@pytest.mark.parametrize("seed", range(8))
def test_logs_states_and_answers_are_those_of_a_node_that_applies_first(seed: int):
    for number in range(LIVES):
        AheadLife(seed * LIVES + number).run(STEPS)


def test_lives_meet_all_that_is_answered_ahead():
    met: Counter[str] = Counter()
    for seed in range(2 * LIVES):
        life = AheadLife(seed)
        life.run(STEPS)
        met += life.met
    assert min(met[each] for each in ("Produced ahead", "Settled ahead", "Leased ahead", "refused ahead")) >= 3, met
