"""The leases of a queue group: by token, by the time they end, and by the records they hold.

Idea: records stand in blocks of 256. Each block has the tokens of the leases that were given some of its records, and
the blocks are kept in order: so the lease of a record, and the leased records from an offset on, are found by looking
at a few leases, however many there are.

Contract: applies effects and decides nothing. A record is in at most one lease of its group. Records leave leases
through `take_out` and `finish`, which count. Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import NamedTuple

from .....transport.queue_messages import FOREVER_US
from .leases import Lease
from .offsets import OPEN_END

SLACK = 64
"""Entries of what is over are cleared away once they are more than those of what is there and this."""

BLOCK = 256
"""Records of a block."""


class PendingRun(NamedTuple):
    """Records without a gap that one lease holds under one attempt."""

    offset: int
    many: int
    attempt: int
    lease: Lease


class LeaseTable(dict[int, Lease]):
    """Leases by token, which of them ends next, and which one holds a record.

    Invariant: every lease that has an end is in the heap under its present one; every lease is in the blocks of all
    records that it was given; `by_worker` counts what each worker's leases hold.
    """

    def __init__(self) -> None:
        super().__init__()
        self.by_worker: dict[str, int] = {}
        """How many records each worker holds that holds any."""
        self._ends: list[tuple[int, int]] = []
        self._blocks: dict[int, set[int]] = {}  # tokens by block
        self._order: list[int] = []  # blocks, ascending; some may have no leases any more

    def add(self, lease: Lease) -> None:
        """A new lease."""
        self[lease.token] = lease
        self._ends_at(lease)
        self._count(lease.worker, lease.left)
        for block in _blocks_of(lease):
            tokens = self._blocks.get(block)
            if tokens is None:
                self._blocks[block] = {lease.token}
                self._put_in_order(block)
            else:
                tokens.add(lease.token)

    def remove(self, lease: Lease) -> None:
        """Remove an ended lease, which holds nothing any more."""
        del self[lease.token]
        for block in _blocks_of(lease):
            tokens = self._blocks[block]
            tokens.discard(lease.token)
            if not tokens:
                del self._blocks[block]
        if len(self._order) > 2 * len(self._blocks) + SLACK:
            self._order = sorted(self._blocks)

    def take_out(self, lease: Lease, first: int, count: int) -> None:
        """Records of a range leave a lease."""
        self._count(lease.worker, -lease.clear(first, count))

    def finish(self, lease: Lease) -> None:
        """All records leave a lease."""
        self._count(lease.worker, -lease.left)
        lease.finish()

    @property
    def records(self) -> int:
        """How many records are leased."""
        return sum(self.by_worker.values())

    def holding(self, offset: int) -> Lease | None:
        """The lease that holds a record."""
        near = (self[token] for token in self._blocks.get(offset // BLOCK, ()))
        return next((lease for lease in near if lease.attempt(offset)), None)

    def from_offset(self, offset: int, end: int = OPEN_END) -> tuple[list[PendingRun], int]:
        """The leased records of the first block from `offset` on, in order, and the offset of the next; -1 at the end.

        The list is empty if all records of the block are settled. Records from `end` on are left out.
        """
        order = self._order
        at = bisect_left(order, offset // BLOCK)
        while at < len(order) and order[at] not in self._blocks:
            at += 1
        if at == len(order) or order[at] * BLOCK >= end:
            return [], -1
        return self._of_block(order[at], offset, end)

    def first(self) -> int:
        """The lowest offset that is leased; -1 without one."""
        runs, beyond = self.from_offset(0)
        while not runs and beyond >= 0:
            runs, beyond = self.from_offset(beyond)
        return runs[0].offset if runs else -1

    def last(self) -> int:
        """The highest offset that is leased; -1 without one."""
        for block in reversed(self._order):
            if block in self._blocks and (runs := self._of_block(block, 0)[0]):
                return runs[-1].offset + runs[-1].many - 1
        return -1

    def _of_block(self, block: int, offset: int, end: int = OPEN_END) -> tuple[list[PendingRun], int]:
        first, beyond = max(offset, block * BLOCK), (block + 1) * BLOCK
        leases = [self[token] for token in self._blocks[block]]
        runs = [PendingRun(*run, lease) for lease in leases for run in lease.within(first, min(beyond, end))]
        return sorted(runs, key=_offset_of), beyond if beyond < end else -1

    def _count(self, worker: str, more: int) -> None:
        held = self.by_worker.get(worker, 0) + more
        if held:
            self.by_worker[worker] = held
        else:
            self.by_worker.pop(worker, None)

    def _put_in_order(self, block: int) -> None:
        order = self._order
        if not order or block > order[-1]:
            order.append(block)
            return
        at = bisect_left(order, block)
        if order[at] != block:
            order.insert(at, block)

    def extend(self, token: int, until_us: int) -> None:
        """A lease ends at another time, or never."""
        lease = self[token]
        lease.until_us = until_us
        self._ends_at(lease)

    def next_end(self) -> Lease | None:
        """The lease that ends first; None when none of them ends."""
        ends = self._ends
        while ends:
            until_us, token = ends[0]
            lease = self.get(token)
            if lease is not None and lease.until_us == until_us:
                return lease
            heappop(ends)
        return None

    def _ends_at(self, lease: Lease) -> None:
        if lease.until_us < FOREVER_US:
            heappush(self._ends, (lease.until_us, lease.token))
        if len(self._ends) > 2 * len(self) + SLACK:
            self._ends = [(each.until_us, token) for token, each in self.items() if each.until_us < FOREVER_US]
            heapify(self._ends)


_offset_of = attrgetter("offset")


def _blocks_of(lease: Lease) -> Iterable[int]:
    """The blocks of all records that a lease was given."""
    extents = lease.extents
    if len(extents) == 1:
        return range(extents[0].offset // BLOCK, (extents[0].offset + extents[0].count - 1) // BLOCK + 1)
    blocks: set[int] = set()
    for extent in extents:
        blocks.update(range(extent.offset // BLOCK, (extent.offset + extent.count - 1) // BLOCK + 1))
    return blocks
