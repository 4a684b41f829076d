"""Counting: what a partition has for a queue group, for people.

Contract: exact, of what is committed; every record is counted once, finished ones not at all. Costs what is open, not
what is behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....storage.errors import Corrupt, OutOfBounds
from ....transport.messages import QueuePartition

if TYPE_CHECKING:
    from ..partition import Partition
    from .queue import Queue


def counted(partition: Partition, queue: Queue, now_us: int) -> QueuePartition:
    """How a group stands on a partition."""
    low = partition.ledger.applied.voids.beyond(max(queue.frontier, partition.first))
    untouched = max(0, partition.end - low - _passed(partition, queue, low))
    later = sum([waiting.ready_us > now_us for waiting in queue.waiting.values()])
    ready = untouched + len(queue.waiting) - later + len(queue.held)
    paused_us = queue.paused_until_us if queue.paused_until_us > now_us else 0
    oldest_us = _oldest(partition, queue, low)
    return QueuePartition(partition.number, ready, queue.in_flight, 0, later, len(queue.dead), oldest_us, paused_us)


def _passed(partition: Partition, queue: Queue, low: int) -> int:
    """How many untouched records nobody will get."""
    voids = partition.ledger.applied.voids.between(low, partition.end)
    return len({*voids, *(offset for offset in queue.cancelled if offset >= low)})


def _oldest(partition: Partition, queue: Queue, low: int) -> int:
    """When the oldest record was appended that is ready, waiting or in flight; -1 without one."""
    leased = [first for lease in queue.leases.values() for first, _, _ in lease.runs()]
    open_ = [*leased, *queue.waiting, *queue.held]
    if low < partition.end:
        open_.append(low)
    try:
        return partition.time_at(min(open_)) if open_ else -1
    except (OutOfBounds, Corrupt):
        return -1  # retention or damage took it
