"""The records that queue groups still need, which retention must keep.

Idea: untouched records are one number, the lowest frontier, and retention never passes it. Open records below it
(leased, retrying, held, dead-lettered, or in the outbox) are in tables, and may be carried forward instead.

Contract: reads state and changes none. Arrays are sorted, each offset once. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from .queue import ShelfCursor

if TYPE_CHECKING:
    from .outbox import Outbox
    from .queue import Queue
    from .shelves import Shelves
    from .table import QueueTable
    from .voids import Voids

NOTHING_TAKEN = ShelfCursor()


class HasQueues(Protocol):
    """The part of a partition's state that this module reads."""

    first: int
    end: int
    queues: QueueTable
    shelves: Shelves
    voids: Voids
    outbox: Outbox


class Finished(NamedTuple):
    """Records that all groups of a partition finished longer ago than they keep them."""

    below: int  # nothing below this offset ended later than that
    is_all: bool  # it is everything, and nothing is open
    next_us: int  # when that may change by itself


NEVER_US = 1 << 62

LOOK = 1000
"""Limit on stretches of void or cancelled records skipped at once, or on such records of one priority."""


def next_plain(queue: Queue, shelves: Shelves, voids: Voids, offset: int) -> int:
    """The first record from `offset` on that is on no shelf, neither void nor cancelled, or a later look finds it."""
    for _ in range(LOOK):
        low = shelves.beyond(voids.beyond(offset))
        while queue.passes(low):
            low += 1
        if low == offset:
            break
        offset = low
    return offset


def untouched(queues: QueueTable, shelves: Shelves, end: int) -> int:
    """The lowest record that some group could have begun with; `end` without one. Delayed records are skipped."""
    low = [end]
    for queue in queues.by_name.values():
        low.append(next_plain(queue, shelves, queues.voids, queue.frontier))
        for level, shelf in shelves.by_level.items():
            at = shelf.offsets.below(max(queue.start, queue.cursors.get(level, NOTHING_TAKEN).offset))
            offsets = shelf.offsets.slice(at, at + LOOK).tolist()
            work = (each for each in offsets if not queue.passes(each) and each not in queues.voids)
            low += [next(work, offsets[-1])] if offsets else []
    return min(low)


def open_in(queue: Queue) -> np.ndarray:
    """The open records of one group below its frontier, without leased ones that are gone."""
    runs = [np.arange(first, first + count) for lease in queue.leases.values() for first, count, _ in lease.runs()]
    tables = [_keys(table) for table in (queue.retrying, queue.held, queue.dead_letters)]
    found = np.unique(np.concatenate([*runs, *tables]))
    return found[np.searchsorted(found, queue.gone_below) :]


def shelved(queue: Queue, shelves: Shelves, high: int) -> np.ndarray:
    """Records with a priority or a delay, below `high`, that one group has yet to take, void ones among them."""
    found = [np.empty(0, np.int64)]
    for level, shelf in shelves.by_level.items():
        cursor = queue.cursors.get(level, NOTHING_TAKEN)
        found.append(shelf.timers.pending((cursor.time_us, cursor.timer), queue.start, high))
        first = shelf.offsets.below(max(cursor.offset, queue.start))
        found.append(shelf.offsets.slice(first, shelf.offsets.below(high)))
    return np.setdiff1d(np.concatenate(found), _passed(queue))


def delayed(queue: Queue, shelves: Shelves, voids: Voids, high: int) -> np.ndarray:
    """Records with a delay, below `high`, that one group has not taken from their shelf."""
    found = [np.empty(0, np.int64)]
    for level, shelf in shelves.by_level.items():
        cursor = queue.cursors.get(level, NOTHING_TAKEN)
        found.append(shelf.timers.pending((cursor.time_us, cursor.timer), queue.start, high))
    pending = np.setdiff1d(np.concatenate(found), _passed(queue))
    return np.setdiff1d(pending, voids.among(pending))


def most_delayed(queues: QueueTable, shelves: Shelves, high: int) -> int:
    """At most so many records with a delay, below `high`, have yet to be taken by some group."""
    count = 0
    for queue in queues.by_name.values():
        for level, shelf in shelves.by_level.items():
            cursor = queue.cursors.get(level, NOTHING_TAKEN)
            count += shelf.timers.most_pending((cursor.time_us, cursor.timer), high)
    return count


def on_the_way(outbox: Outbox) -> np.ndarray:
    """Records that have yet to be copied to another topic."""
    return np.unique(_keys([entry.offset for entry in outbox.entries.values()]))


def open_below(state: HasQueues, queue: Queue, high: int) -> int:
    """How many records before `high` a group has not finished, or has dead-lettered."""
    shelves, voids = state.shelves, state.voids
    low = min(max(queue.frontier, state.first), high)
    special = shelves.special_between(low, high)
    skipped = _passed(queue)
    passed = np.union1d(voids.range(low, high), skipped[(skipped >= low) & (skipped < high)])
    waiting, opened = shelved(queue, shelves, high), open_in(queue)
    waiting = np.setdiff1d(waiting, voids.among(waiting))
    plain = high - low - len(np.union1d(special, passed))
    return plain + len(waiting) + int(np.count_nonzero(opened < high))


def unfinished(state: HasQueues) -> np.ndarray:
    """All that is open in any group, or on its way; of what has a delay, what the log has no more but carried."""
    queues = state.queues.by_name.values()
    found = [open_in(queue) for queue in queues]
    found += [delayed(queue, state.shelves, state.voids, state.first) for queue in queues]
    return np.unique(np.concatenate([on_the_way(state.outbox), *found]))


def finished_long_ago(state: HasQueues, time_us: int) -> Finished | None:
    """The records that expire at a time, apart from open and untouched ones; None where some group keeps them."""
    queues = list(state.queues.by_name.values())
    keeps = [queue.settings.keep_finished_s for queue in queues]
    if not queues or None in keeps:
        return None
    keeps_us = [round(keep_s * 1e6) for keep_s in keeps if keep_s is not None]
    ended = [queue.endings.forgettable(time_us - us, state.end) for queue, us in zip(queues, keeps_us, strict=True)]
    nexts = [queue.endings.next_us(us) for queue, us in zip(queues, keeps_us, strict=True)]
    below = min(ended)
    is_all = below == state.end == untouched(state.queues, state.shelves, state.end) and not len(unfinished(state))
    return Finished(below, is_all, min((us for us in nexts if us is not None), default=NEVER_US))


def _passed(queue: Queue) -> np.ndarray:
    """Records that are no work for a group if they are untouched."""
    return np.concatenate([_keys(queue.cancelled), _keys(queue.apart)])


def _keys(table: Iterable[int]) -> np.ndarray:
    return np.fromiter(table, np.int64)
