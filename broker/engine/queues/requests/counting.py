"""Counting: the records of a queue group by state, for `queue list` and statistics.

Contract: exact, as committed; every unfinished record is counted once. Cost grows with open records, not with the
backlog.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .....transport.messages import QueuePartition
from .....transport.queue_messages import FOREVER_US
from ...tables.queues.queue import Queue, ShelfCursor
from ...tables.queues.unfinished import shelved
from ..choosing.choosing import lowest_on_shelves, on_shelves

if TYPE_CHECKING:
    from ...logs.partition import Partition


def counted(partition: Partition, queue: Queue, now_us: int) -> QueuePartition:
    """The counts of a group on a partition."""
    applied = partition.committed
    low = applied.voids.beyond(max(queue.frontier, partition.first))
    plain = max(0, partition.end - low) - applied.shelves.between(low, partition.end)
    shelved, delayed = on_shelves(queue, applied.shelves, now_us)
    later = sum([record.ready_us > now_us for record in queue.retrying.values()])
    ready = plain + shelved + len(queue.retrying) - later + len(queue.held)
    ready -= _skipped(partition, queue, low, -1, now_us)
    delayed -= _skipped(partition, queue, FOREVER_US, now_us, FOREVER_US)
    paused_us = queue.paused_until_us if queue.paused_until_us > now_us else 0
    oldest_us = _oldest(partition, queue, low, now_us)
    return QueuePartition(
        partition.number, ready, queue.in_flight, delayed, later, len(queue.dead_letters), oldest_us, paused_us
    )


def _skipped(partition: Partition, queue: Queue, low: int, after_us: int, until_us: int) -> int:
    """How many untouched records are void or cancelled: plain ones from `low` on, and shelved ones of some times."""
    shelves, voids = partition.committed.shelves, partition.committed.voids
    known = {*voids.between(low, partition.end), *queue.cancelled, *queue.apart}
    if voids and shelves:
        known.update(voids.among(shelved(queue, shelves, low)).tolist())
    count = 0
    for offset in known:
        if offset not in shelves:
            count += offset >= low
        elif after_us < (time_us := shelves.time_of(offset)) <= until_us and offset >= queue.start:
            count += not queue.cursors.get(shelves.level_of(offset), ShelfCursor()).passed(time_us, offset)
    return count


def _oldest(partition: Partition, queue: Queue, low: int, now_us: int) -> int:
    """When the oldest record was appended that is ready, retrying or in flight; -1 without one."""
    leased = [first for lease in queue.leases.values() for first, _, _ in lease.runs()]
    shelves = partition.committed.shelves
    open_ = [*leased, *queue.retrying, *queue.held, *lowest_on_shelves(queue, shelves, now_us)]
    low = shelves.beyond(low)
    if low < partition.end:
        open_.append(low)
    return partition.appended_us(min(open_)) if open_ else -1
