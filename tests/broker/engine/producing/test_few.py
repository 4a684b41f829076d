"""A few plain records that are recognised: what becomes of them is what judging makes of them, byte for byte."""

from __future__ import annotations

from collections import Counter

import pytest
from support.few_life import FewLife

LIVES, STEPS = 12, 60


@pytest.mark.parametrize("seed", range(8))
def test_logs_states_and_answers_are_those_of_judging(seed: int):
    for number in range(LIVES):
        FewLife(seed * LIVES + number).run(STEPS)


@pytest.mark.parametrize("found", [
    "proposed", "repeated", "too large", "not plain", "poisoned", "anonymous", "below 0", "staging",
    "sequence_gap", "unknown_producer", "fenced", "answered ahead",
])  # fmt: skip
def test_lives_meet_each_reason_to_judge_or_refuse_a_batch_by_itself_and_answers_ahead(met: Counter[str], found: str):
    assert met[found] >= 3, met


@pytest.fixture(scope="module")
def met() -> Counter[str]:
    met: Counter[str] = Counter()
    for seed in range(LIVES):
        life = FewLife(seed)
        life.run(STEPS)
        met += life.met
    return met
