"""Each rule of direct append broken once, which a test notices: `support.lending_mutants`."""

from __future__ import annotations

import random

import pytest
from support.lending_mutants import MUTANTS, verdict
from support.sources import ROOT

SAMPLE = 2


def test_each_mutant_has_one_place():
    counts = {mutant.says: (ROOT / mutant.file).read_text().count(mutant.old) for mutant in MUTANTS}
    assert [says for says, count in counts.items() if count != 1] == []
    assert len(counts) == len(MUTANTS)


def test_some_broken_rules_are_noticed(seed):
    alive = [mutant.says for mutant in random.Random(seed).sample(MUTANTS, SAMPLE) if verdict(mutant) == "alive"]
    assert alive == []


@pytest.mark.soak
def test_every_broken_rule_is_noticed():
    assert [mutant.says for mutant in MUTANTS if verdict(mutant) == "alive"] == []
