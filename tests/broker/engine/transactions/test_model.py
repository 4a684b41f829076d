"""Random lives of transactions, with full disks, cold pages, kills and power cuts at any time.

`Life(seed).run(STEPS)` replays a failure; its message has the seed and the last steps.
"""

from __future__ import annotations

from typing import Any

import pytest
from penstock.broker.engine.logs.replay import replay
from penstock.broker.engine.tables.state import PartitionState
from support.transaction_life import Life

STEPS = 60
LIVES = 10
"""Of each seed."""


class NoSnapshots:
    """A store that has lost all its snapshots."""

    def load_snapshot(self, log: Any) -> None:
        return None


@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_a_transaction_is_there_once_and_whole_or_not_at_all(
    seed: int, monkeypatch: pytest.MonkeyPatch
):
    for number in range(LIVES):
        monkeypatch.setattr("penstock.broker.engine.transactions.publishing.PORTION_BYTES", (1, 1 << 20)[number % 2])
        life = Life(seed * LIVES + number)
        life.run(STEPS)
        check_replay(life)


def check_replay(life: Life) -> None:
    """The log adds up to what is there, with snapshots, and without where it still has its beginning."""
    for history in life.rig.node._registry.partitions:
        live = history.committed.encode()
        for store in (life.rig.store, NoSnapshots())[: 2 if history.log.segments()[0].base_seq == 1 else 1]:
            again = replay(history.log, PartitionState, store)  # pyright: ignore[reportArgumentType]
            assert again.committed.encode() == live, (
                f"seed {life.seed}: replay of {history.log.path} gives another state"
            )


def test_equal_seeds_live_equal_lives():
    def run() -> list[str]:
        life = Life(7)
        life.run(STEPS)
        return life.steps

    assert run() == run()


def test_lives_meet_everything():
    """Over some lives epochs are committed, refused and repeated, and end in every way."""
    lives = [Life(seed) for seed in range(30)]
    for life in lives:
        life.run(STEPS)
    wishes = [wish for life in lives for wish in life.wishes]
    assert sum(wish.done and bool(wish.values) for wish in wishes) > 30
    assert sum(wish.refused for wish in wishes) > 10
    text = "\n".join(step for life in lives for step in life.steps)
    for word in ("lose_power none", "lose_power some", "restart", "fill data/metadata", "4000.0 s", "cool", "hold"):
        assert word in text, f"no life ever had {word!r}"
