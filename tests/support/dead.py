"""Dead letters without workers: the effects alone, in the log of a real node."""

from __future__ import annotations

from typing import Any

from penstock.broker.engine.logs.partition import Partition
from penstock.broker.engine.tables import effects as fx
from penstock.broker.engine.tables.queues.queue import Queue
from penstock.broker.engine.tables.queues.settings import parse
from penstock.storage.batch import Batch, batches
from support.engine import Rig


def opened(rig: Rig, topic: bytes, partition: int = 0) -> Partition:
    """An open partition."""
    return rig.node._registry.topics.get(topic).partition(partition)


def queue(rig: Rig, topic: bytes, group: str = "g", partition: int = 0) -> Queue:
    """A queue group as committed."""
    return opened(rig, topic, partition).committed.queues.by_name[group]


def set_queue(rig: Rig, topic: bytes, group: str = "g", partition: int = 0, start: int = 0, **settings: Any) -> None:
    """A queue group with these settings."""
    opened(rig, topic, partition).propose(fx.QueueSet(group, parse(settings).named(), start))
    rig.turn()


def lease(rig: Rig, topic: bytes, runs: list[tuple[int, int]], group: str = "g", partition: int = 0) -> int:
    """Runs of records (first offset, how many) in one lease for an hour, everything before them taken."""
    books = opened(rig, topic, partition)
    known = books.proposed.queues.by_name[group]
    token = known.last_token + 1
    frontier = max([known.frontier, *(first + count for first, count in runs)])
    until_us = rig.now.wall_us + 3_600_000_000
    books.propose(fx.LeaseGranted(group, token, "w", until_us, [(*run, 1) for run in runs], frontier))
    rig.turn()
    return token


def die(
    rig: Rig, topic: bytes, offsets: list[int], group: str = "g", partition: int = 0, *, reason: str = "broken"
) -> None:
    """These are dead now, everything before them is done."""
    token = lease(rig, topic, [(offset, 1) for offset in offsets], group, partition)
    opened(rig, topic, partition).propose(fx.TasksDied(group, token, [(offset, 1, 1) for offset in offsets], reason))
    rig.turn()


def held_by(payload: bytes) -> dict[int, bytes]:
    """Value by offset of everything in a second frame."""
    found: dict[int, bytes] = {}
    for batch in batches(payload):
        found |= values_of(batch)
    return found


def values_of(batch: Batch) -> dict[int, bytes]:
    """Value by offset."""
    return dict(zip(batch.offsets().tolist(), batch.values(), strict=True))
