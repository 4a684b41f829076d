"""Transactions on a simulated cluster: whatever its nodes, disks and network do, each is there whole, once, or not."""

from __future__ import annotations

import pytest
from support.sim import failure, lived, met
from support.sources import ROOT
from support.transaction_mutants import MUTANTS, verdict

LIVES = [range(first, first + 25) for first in range(0, 100, 25)]


@pytest.mark.parametrize("seeds", LIVES, ids=str)
def test_each_transaction_is_whole_or_not_there_whatever_happens(seeds: range):
    failed, problem, _ = lived(seeds, "transactions")
    assert problem == "", f"make sim LIFE=transactions SEEDS=2 FROM={failed}"


@pytest.mark.soak
@pytest.mark.parametrize("first", range(10_000, 12_000, 50))
def test_each_transaction_is_whole_in_longer_lives(first: int):
    for seed in range(first, first + 50):
        assert failure(seed, 400, kind="transactions") == "", (
            f"make sim LIFE=transactions SEEDS=1 STEPS=400 FROM={seed}"
        )


@pytest.mark.timeout(600)  # alone, it runs all lives
def test_lives_have_commits_refusals_and_fenced_attempts():
    counts = met(lived(seeds, "transactions") for seeds in LIVES)
    assert counts["committed"] > 400
    assert min(counts["fenced"], counts["refused"]) > 60, counts


def test_each_mutant_has_one_place():
    counts = [(ROOT / mutant.file).read_text().count(mutant.old) for mutant in MUTANTS]
    assert [mutant.says for mutant, count in zip(MUTANTS, counts, strict=True) if count != 1] == []


def test_a_broken_rule_is_noticed():
    assert verdict(0).startswith("life ")


@pytest.mark.soak
def test_every_broken_rule_is_noticed():
    assert [mutant.says for at, mutant in enumerate(MUTANTS) if verdict(at) == "alive"] == []
