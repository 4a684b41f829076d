"""Groups of tasks on a simulated cluster: whatever its nodes, disks and network do, each callback comes once."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.broker.engine.queues.upkeep import barriers
from penstock.broker.engine.queues.upkeep.barriers import Barriers
from support.sim import failure, lived, met

LIVES = [range(first, first + 25) for first in range(0, 100, 25)]


@pytest.mark.parametrize("seeds", LIVES, ids=str)
def test_each_callback_comes_once_whatever_happens(seeds: range):
    failed, problem, _ = lived(seeds, "groups")
    assert problem == "", f"make sim LIFE=groups SEEDS=2 FROM={failed}"


@pytest.mark.soak
@pytest.mark.parametrize("first", range(10_000, 12_000, 50))
def test_each_callback_comes_once_in_longer_lives(first: int):
    for seed in range(first, first + 50):
        assert failure(seed, 400, kind="groups") == "", f"make sim LIFE=groups SEEDS=1 STEPS=400 FROM={seed}"


@pytest.mark.timeout(600)  # alone, it runs all lives
def test_lives_have_callbacks_deletions_of_both_kinds_and_leases_that_a_grace_keeps():
    counts = met(lived(seeds, "groups") for seeds in LIVES)
    assert counts["callback"] > 200
    assert counts["group deleted: done"] > 100
    assert counts["a lease is kept by a grace"] > 2
    assert counts["a completed task is looked at"] > 30


def test_a_callback_that_comes_twice_is_noticed(monkeypatch: pytest.MonkeyPatch):
    append = barriers._append

    def twice(*how: Any) -> None:
        append(*how)
        append(*how)

    monkeypatch.setattr(barriers, "_append", twice)
    assert "2 callbacks of" in failure(1, 100, kind="groups")


def test_an_end_that_a_barrier_does_not_hear_of_is_noticed(monkeypatch: pytest.MonkeyPatch):
    tell = Barriers.tell

    def half(self: Barriers, partition: Any, origin: Any, tellings: Any, waiter: Any) -> None:
        tell(self, partition, origin, [each for each in tellings if each.member != 1], waiter)

    monkeypatch.setattr(Barriers, "tell", half)
    assert "callbacks of" in failure(1, 100, kind="groups")
