"""Faults that are built into the core on purpose, each of which the tests notice: `support.raft_mutants`."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest
from support.raft_mutants import MUTANTS
from support.sources import ROOT

SAMPLE = 6


def judged(names: list[str]) -> dict[str, str]:
    """What noticed each mutant, in a process of its own."""
    run = subprocess.run(
        [sys.executable, "-m", "support.raft_mutants", *names],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(line.split(": ", 1) for line in run.stdout.splitlines())


def test_each_mutant_has_one_place_in_the_core():
    found = {}
    for mutant in MUTANTS:
        count = (ROOT / "broker" / "raft" / f"{mutant.module}.py").read_text().count(mutant.old)
        found[mutant.name] = count
    assert [name for name, count in found.items() if count != 1] == []
    assert len(found) == len(MUTANTS) >= 30


def test_some_mutants_are_noticed(seed):
    names = [mutant.name for mutant in random.Random(seed).sample(MUTANTS, SAMPLE)]
    verdicts = judged(names)
    assert set(verdicts) == set(names)
    assert [name for name, verdict in verdicts.items() if verdict == "alive"] == []


@pytest.mark.soak
def test_every_mutant_is_noticed():
    verdicts = judged([])
    assert len(verdicts) == len(MUTANTS)
    assert [name for name, verdict in verdicts.items() if verdict == "alive"] == []
