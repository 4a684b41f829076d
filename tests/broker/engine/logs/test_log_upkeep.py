"""Snapshots of logs, without anything that a leader decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from penstock.broker.engine.logs.log_upkeep import LogUpkeep
from penstock.broker.engine.ports import NodeConfig
from penstock.broker.engine.tables import effects as fx
from penstock.storage.errors import StorageFull
from penstock.transport import messages as m
from support.engine import Rig
from support.staging import STAGE, partition_of, stage


def upkeep_of(rig: Rig, **config: Any) -> tuple[LogUpkeep, Any]:
    (partition,) = rig.node._registry.partitions.values()
    return LogUpkeep(rig.node._registry, NodeConfig(**config)), partition.history


def written_only() -> tuple[Rig, bytes]:
    """A log whose records are committed and not durable."""
    rig = Rig()
    topic = rig.topic(commit="written")
    rig.store.hold = True
    rig.produce(topic, [b"x"])
    return rig, topic


def test_a_snapshot_is_due_after_so_many_batches_or_bytes():
    rig = Rig()
    topic = rig.topic()
    rig.produce(topic, [b"x"])
    rig.produce(topic, [b"x"])
    for config, is_due in (
        ({"snapshot_batches": 3}, False),
        ({"snapshot_batches": 2}, True),
        ({"snapshot_bytes": 1}, True),
    ):
        upkeep, history = upkeep_of(rig, **config)
        history.snapshot_seq, history.since_snapshot_bytes = 0, 500
        assert upkeep.advanced(history) is is_due
        assert history.snapshot_seq == (2 if is_due else 0)


def test_a_snapshot_waits_until_what_it_covers_is_durable():
    rig, _ = written_only()
    upkeep, history = upkeep_of(rig)
    upkeep.snapshot(history)
    upkeep.save(history)
    assert upkeep.is_saving(history)
    assert rig.store.load_snapshot(history.log) is None
    history.log.sync()
    upkeep.save_all()
    assert not upkeep.is_saving(history)
    saved = rig.store.load_snapshot(history.log)
    assert saved is not None
    assert (saved.seq, saved.body) == (1, history.committed.encode())


def test_what_was_taken_of_a_log_that_is_closed_meanwhile_is_forgotten():
    rig, _ = written_only()
    upkeep, history = upkeep_of(rig)
    upkeep.snapshot(history)
    rig.node._registry.close(rig.node._registry.partitions[history])
    upkeep.save_all()
    assert not upkeep.is_saving(history)


def test_a_snapshot_that_cannot_be_saved_is_counted(monkeypatch: pytest.MonkeyPatch):
    rig = Rig(snapshot_batches=1)
    monkeypatch.setattr(rig.store, "save_snapshot", raising(StorageFull("no space")))
    rig.produce(rig.topic(), [b"x"])
    assert rig.ask(m.Stats).values["snapshots.failed"] > 0


def raising(error: Exception) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


def test_staged_batches_are_needed_until_their_publication_is_durable():
    rig = Rig()
    topic = rig.topic(commit="written")
    partition = partition_of(rig, topic)
    upkeep, _ = upkeep_of(rig)
    nothing_staged = partition.committed.stages.first_seq
    stage(rig, topic, [b"staged"])
    partition.log.sync()
    staged_at = partition.seq
    assert partition.committed.stages.first_seq == upkeep.needed(partition) == staged_at
    rig.store.hold = True
    partition.propose(fx.StagesDropped([STAGE]))
    rig.turn()
    assert (partition.committed.stages.first_seq, partition.log.durable) == (nothing_staged, staged_at)
    assert [upkeep.needed(partition) for _ in range(2)] == [0, 0], "a power cut may take that back"
    partition.log.sync()
    rig.produce(topic, [b"x"])
    assert partition.log.durable < partition.seq
    assert upkeep.needed(partition) == nothing_staged
    stage(rig, topic, [b"later"], stage=STAGE + 1)
    assert upkeep.needed(partition) == 0, "what came since is looked at when it is durable"
    partition.log.sync()
    assert upkeep.needed(partition) == partition.seq
