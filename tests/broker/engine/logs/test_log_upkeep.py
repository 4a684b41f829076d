"""Snapshots of logs, without anything that a leader decides."""

from __future__ import annotations

from typing import Any

from penstock.broker.engine.logs.log_upkeep import LogUpkeep
from penstock.broker.engine.ports import NodeConfig
from support.engine import Rig


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
        assert upkeep.snapshot_if_due(history) is is_due
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
