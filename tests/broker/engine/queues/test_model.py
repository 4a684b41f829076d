"""Thousands of random lives of queue groups against the model, and the model against lives gone wrong.

Each life drives every verb, right and wrong, with crashes that keep or lose what was not synced, restarts from files
with and without snapshots, and clocks that are set. After every step the engine's state is the model's; at the end
everything is processed, and the log gives the same state from its first batch and from its newest snapshot.

`Life(seed).run(STEPS)` replays a failure; its message has the seed and the last steps.
"""

from __future__ import annotations

from typing import Any

import pytest
from penstock.broker.engine.logs.replay import replay
from penstock.broker.engine.tables import effects
from penstock.broker.engine.tables.state import PartitionState
from support.queue_life import Life

STEPS = 30
LIVES = 50
"""Of each seed: 20 seeds make 1,000 in `make test`."""


class NoSnapshots:
    """A store that has lost all its snapshots."""

    def load_snapshot(self, log: Any) -> None:
        return None


@pytest.mark.parametrize("seed", range(20))
def test_a_random_life_is_what_the_model_says_at_every_step(seed: int):
    for number in range(LIVES):
        life = Life(seed * LIVES + number, keyed=number % 4 == 0)
        life.run(STEPS)
        check_replay(life)


def check_replay(life: Life) -> None:
    """The log adds up to what is there, with snapshots, and without where nothing was removed."""
    for history in life.rig.node._registry.partitions:
        live = history.committed.encode()
        whole = history.log.names[0].base_seq == 1
        for store in (life.rig.store, NoSnapshots()) if whole else (life.rig.store,):
            again = replay(history.log, PartitionState, store)  # pyright: ignore[reportArgumentType]
            assert again.committed.digest() == history.committed.digest()
            assert again.committed.encode() == live, (
                f"seed {life.seed}: replay of {history.log.path} gives another state"
            )


def test_equal_seeds_live_equal_lives():
    def run() -> list[str]:
        life = Life(7)
        life.run(STEPS)
        return life.steps

    assert run() == run()


def test_lives_are_long_enough_to_meet_everything():
    """Over some lives each command does its work: leases, refusals, losses, snapshots."""
    text, snapshots = "", 0
    for seed in range(100):
        life = Life(seed)
        life.run(STEPS)
        text += "\n".join(life.steps)
        snapshots += len(life.rig.store.snapshots)
    for word in (
        "-> w",
        "lease_lost",
        "unknown_lease",
        "invalid_request",
        "lose_power 0:",
        "restart killed",
        "restart clean",
    ):
        assert word in text, f"no life ever had {word!r}"
    assert snapshots


# -- the checker is checked -----------------------------------------------------------------------


def fails(monkeypatch: pytest.MonkeyPatch, target: str, wrong: Any) -> bool:
    """Whether some life notices that the engine is wrong."""
    for seed in range(200):
        with monkeypatch.context() as patch:
            patch.setattr(target, wrong)
            try:
                Life(seed).run(STEPS)
            except AssertionError as error:
                return f"seed {seed}" in str(error)
    return False


QUEUE = "penstock.broker.engine.tables.queues.queue.Queue"
OUTCOMES = "penstock.broker.engine.tables.queues.outcomes"


def test_an_ack_that_is_forgotten_is_noticed(monkeypatch: pytest.MonkeyPatch):
    assert fails(monkeypatch, f"{QUEUE}.finished", lambda *_: None)


def test_a_lease_that_never_ends_is_noticed(monkeypatch: pytest.MonkeyPatch):
    assert fails(monkeypatch, "penstock.broker.engine.queues.wakeups.expire", lambda *_: None)


def test_an_attempt_too_many_is_noticed(monkeypatch: pytest.MonkeyPatch):
    def endless(queue: Any, lease: Any, runs: Any, reason: str, retry: Any, *, ended: bool) -> Any:
        timed = [each for run in runs for each in retry(run)]
        return [effects.TasksReturned(queue.group, lease.token, timed, reason, ended)]

    assert fails(monkeypatch, f"{OUTCOMES}.failed", endless)


def test_a_pause_that_is_too_short_is_noticed(monkeypatch: pytest.MonkeyPatch):
    def hasty(settings: Any, now_us: int, chance: Any, run: tuple[int, int, int]) -> list[tuple[int, int, int, int]]:
        return [(*run, now_us)]

    assert fails(monkeypatch, f"{OUTCOMES}.backed_off", hasty)


def test_a_worker_that_is_not_forgotten_is_noticed(monkeypatch: pytest.MonkeyPatch):
    assert fails(monkeypatch, f"{QUEUE}.forget_worker", lambda *_: None)


def test_a_worker_without_records_that_is_not_remembered_is_noticed(monkeypatch: pytest.MonkeyPatch):
    assert fails(monkeypatch, "penstock.broker.engine.queues.verbs.remember", lambda *_: None)
