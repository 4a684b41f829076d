"""Carrying: copies long-open records forward, so that a few of them do not keep a whole log.

Idea: retention stops at records that queue groups have not begun. Records that are open for long (dead-lettered,
retrying, leased, in an outbox) and delayed records are copied into a KEPT batch at the end of the log, a portion per
pass, and then stop nothing. When the segment with that batch is to go in turn, those still open are carried again.

Contract: no unfinished record is ever lost: the first offset moves only past records that are finished or carried and
committed, and a segment is removed only when it holds no open record. Time is log time.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import numpy as np

from .....storage.batch import parse
from .....storage.kept import keep_all
from ...tables.queues.settings import DAY_S
from ...tables.queues.unfinished import delayed, most_delayed, on_the_way, open_in, unfinished, untouched
from ...turns.replies import Gather
from ..choosing.picking import Pick

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .....storage.batch import Batch
    from .....storage.retention import SegmentExtent
    from ...logs.log_registry import LogRegistry
    from ...logs.partition import Partition
    from ..choosing.picking import Picker

PORTION = 4096
PORTION_BYTES = 1 << 20
"""Carried at once, one record at least: per partition and pass."""

DELAYED_MAX = 100_000
"""Delayed records that are carried; more are left where they are, and the log with them."""

OUTBOX_CARRY_S = DAY_S
"""Records that are in an outbox for longer are carried, too."""

NO_SEQ = 1 << 62


class Carrier:
    """Carries for all partitions of a node."""

    def __init__(self, registry: LogRegistry, picker: Picker) -> None:
        self._registry = registry
        self._picker = picker
        self._busy: set[Partition] = set()

    def allowed(self, partition: Partition, extents: Sequence[SegmentExtent], wanted: int, time_us: int) -> int:
        """The highest first offset allowed, at most `wanted`. Begins to carry records that alone stop it."""
        head = partition.proposed
        if not head.queues.by_name and not head.outbox.entries:
            return wanted
        if partition.state_damaged:
            return partition.first  # what its groups have done is not known for certain
        limit = self._passable(partition, untouched(head.queues, head.shelves, wanted))
        waits = [delayed(queue, head.shelves, head.voids, limit) for queue in head.queues.by_name.values()]
        pending = partition.committed.kept.missing(np.unique(np.concatenate([unfinished(head), *waits])))
        if len(pending) and pending[0] < limit:
            self._carry(partition, _overdue(partition, extents, limit, time_us))
            limit = int(pending[0])
        return _beginning(extents, limit)

    def _passable(self, partition: Partition, limit: int) -> int:
        """As far as there are not too many delayed records to be carried: more of them keep their place in the log."""
        head = partition.proposed
        while limit > partition.first and most_delayed(head.queues, head.shelves, limit) > DELAYED_MAX:
            limit = partition.first + (limit - partition.first) // 2
        return limit

    def bound(self, partition: Partition) -> int:
        """The last seq whose segment may go: no open record is in a kept batch up to it."""
        _, seqs = self._standing(partition)
        return int(seqs.min()) - 1 if len(seqs) else NO_SEQ

    def carry_again(self, partition: Partition, last_seq: int) -> None:
        """Carry what is open and stands in kept batches up to `last_seq`."""
        offsets, seqs = self._standing(partition)
        self._carry(partition, offsets[seqs <= last_seq])

    def _standing(self, partition: Partition) -> tuple[np.ndarray, np.ndarray]:
        """Carried records that are open, and the batches that hold them."""
        kept = partition.committed.kept
        return kept.standing(unfinished(partition.proposed) if kept else np.empty(0, np.int64))

    def _carry(self, partition: Partition, offsets: np.ndarray) -> None:
        if len(offsets) and partition not in self._busy:
            self._busy.add(partition)
            self._picker.pick(Pick(partition, offsets[:PORTION].tolist(), PORTION_BYTES, self._picked))

    def _picked(self, pick: Pick) -> None:
        partition, log = pick.partition, pick.partition.log
        batch = _together(pick.batches)
        alive = self._registry.holds(partition) and log.poisoned is None
        if alive and batch is not None and batch.batch_bytes <= log.options.max_batch_bytes:
            # When it is committed the next pass goes on, when it fails that tries again.
            waiter = Gather(lambda: self._busy.discard(partition), lambda error: self._busy.discard(partition))
            partition.propose_kept(batch, waiter)
        else:
            self._busy.discard(partition)


def _together(batches: list[Batch]) -> Batch | None:
    """All records as one batch."""
    if not batches:
        return None
    return parse(keep_all([(batch, [(0, batch.record_count)]) for batch in batches]))


def _beginning(extents: Sequence[SegmentExtent], limit: int) -> int:
    """The last beginning of a segment that is not above `limit`."""
    place = bisect_right(extents, limit, key=lambda extent: extent.base_offset)
    return extents[max(place - 1, 0)].base_offset


def _overdue(partition: Partition, extents: Sequence[SegmentExtent], limit: int, time_us: int) -> np.ndarray:
    """Long-open records that were not carried yet, in segments that end before `limit`."""
    head = partition.proposed
    found = [
        (open_in(queue), queue.settings.carry_after_s) for queue in head.queues.by_name.values()
    ]  # fmt: skip
    found += [
        (delayed(queue, head.shelves, head.voids, limit), queue.settings.carry_after_s)
        for queue in head.queues.by_name.values()
    ]
    found.append((on_the_way(head.outbox), OUTBOX_CARRY_S))
    due = [offsets[offsets < _old(extents, limit, time_us - round(after_s * 1e6))] for offsets, after_s in found]
    return partition.committed.kept.missing(np.unique(np.concatenate(due)))


def _old(extents: Sequence[SegmentExtent], limit: int, oldest_us: int) -> int:
    """The ends of segments before `limit` that were last written before a time."""
    ends = [each.end_offset for each in extents[:-1] if each.end_offset <= limit and each.last_time_us <= oldest_us]
    return max(ends, default=0)
