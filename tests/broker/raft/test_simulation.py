"""Random lives of a group, over disks that forget and a network that loses: `support.raft_simulation`."""

from __future__ import annotations

from collections import Counter

import pytest
from support.raft_simulation import Life

LIVES = 30  # of one seed
HAPPENS = ("proposals", "reads", "crashes", "elections", "changes", "transfers", "checkpoints", "installs")


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5, 6, 7, 8])
def test_a_group_that_loses_messages_processes_and_disks_keeps_what_it_committed(seed):
    counts: Counter[str] = Counter()
    for life in range(LIVES):
        counts += Life(seed * 1000 + life).run()
    assert [what for what in HAPPENS if not counts[what]] == []


def test_a_life_is_decided_by_its_seed():
    first, second = Life(7), Life(7)
    assert first.run() == second.run()
    assert list(first.trace) == list(second.trace)


def test_a_lost_entry_is_noticed():
    life = Life(7)
    life.history[3] = (1, b"another")
    with pytest.raises(AssertionError, match="life 7, step"):
        life.run()
