"""Groups of tasks on a simulated cluster: whatever its nodes, disks and network do, each callback comes once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from penstock.broker.engine.queues.upkeep import barriers
from penstock.broker.engine.queues.upkeep.barriers import Barriers
from support.group_life import GroupLife
from support.sim import failure


@pytest.mark.parametrize("first", range(0, 100, 25))
def test_each_callback_comes_once_whatever_happens(first: int):
    for seed in range(first, first + 25):
        assert failure(seed, 250, kind="groups") == "", f"make sim LIFE=groups SEEDS=2 FROM={seed}"


@pytest.mark.soak
@pytest.mark.parametrize("first", range(10_000, 12_000, 50))
def test_each_callback_comes_once_in_longer_lives(first: int):
    for seed in range(first, first + 50):
        assert failure(seed, 400, kind="groups") == "", f"make sim LIFE=groups SEEDS=1 STEPS=400 FROM={seed}"


def test_lives_have_callbacks_and_deletions_of_both_kinds():
    counts: Counter[str] = Counter()
    for seed in range(6):
        counts.update(GroupLife(seed, 250).run().counts)
    assert counts["callback"] > 20
    assert counts["group deleted: done"] >= 2


def test_a_callback_that_comes_twice_is_noticed(monkeypatch: pytest.MonkeyPatch):
    append = barriers._append

    def twice(*how: Any) -> None:
        append(*how)
        append(*how)

    monkeypatch.setattr(barriers, "_append", twice)
    assert "2 callbacks of" in failure(0, 100, kind="groups")


def test_an_end_that_a_barrier_does_not_hear_of_is_noticed(monkeypatch: pytest.MonkeyPatch):
    tell = Barriers.tell

    def half(self: Barriers, partition: Any, origin: Any, tellings: Any, waiter: Any) -> None:
        tell(self, partition, origin, [each for each in tellings if each.member != 1], waiter)

    monkeypatch.setattr(Barriers, "tell", half)
    assert "callbacks of" in failure(0, 100, kind="groups")
