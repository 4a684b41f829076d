"""Retrying records: by offset, and by the time of their next attempt.

Idea: a heap of (ready time, first offset, how many) orders the records that are not ready. Ready ones are in a sorted
list of offsets; a lease takes the lowest. Stale heap entries are dropped when they surface. A lease may have a hundred
thousand records, and they come back in one turn: those that fare alike are one entry of the heap and share a record.

Invariant: every record of the table is under its present time in the heap, or in the ready list.
Contract: a table by offset like the others; times are arguments, and a record in it does not change. Memory: a few
numbers per record. Pure.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heapify, heappop, heappush, heapreplace

from msgspec import Struct

from .leases import Failure

SLACK = 64
"""Entries of records that left are cleared away once they are more than those of the present ones and this."""


class RetryingRecord(Struct, array_like=True):
    """A record to be retried from `ready_us` on. `attempt`: of the lease before, 0 when none counts; `released`: and it
    did not fail then, but was given back."""

    attempt: int
    ready_us: int
    key: int = 0
    history: list[Failure] = []
    released: bool = False


class RetryingTable(dict[int, RetryingRecord]):
    """Retrying records by offset. Set and removed like the entries of any table."""

    def __init__(self) -> None:
        super().__init__()
        self._timed: list[tuple[int, int, int]] = []
        self._ready: list[int] = []

    def __setitem__(self, offset: int, record: RetryingRecord) -> None:
        super().__setitem__(offset, record)
        self._wait(record.ready_us, offset, 1)

    def put(self, first: int, end: int, record: RetryingRecord) -> None:
        """Set all offsets from `first` on and below `end` to one record, at the cost of one."""
        if first < end:
            self.update(dict.fromkeys(range(first, end), record))
            self._wait(record.ready_us, first, end - first)

    def _wait(self, ready_us: int, first: int, count: int) -> None:
        heappush(self._timed, (ready_us, first, count))
        if len(self._timed) > 2 * len(self) + SLACK:
            self._tidy()

    def ready(self, now_us: int, limit: int) -> list[int]:
        """The lowest ready offsets, at most `limit`."""
        if not self:
            self._timed, self._ready = [], []
            return []
        self._ripen(now_us)
        found, passed = list[int](), 0
        for offset in self._ready:
            if len(found) == limit:
                break
            if self._stands(offset, now_us):
                found.append(offset)
            else:
                passed += 1
        if passed:
            self._drop(found, passed)
        return found

    def next_us(self, now_us: int) -> int | None:
        """When the next record becomes ready after `now_us`; None without any."""
        self._ripen(now_us)
        timed = self._timed
        while timed:
            ready_us, first, count = timed[0]
            offset = next((at for at in range(first, first + count) if self._is_due(at, ready_us)), None)
            if offset is None:
                heappop(timed)
                continue
            if offset > first:  # those before it left: they are passed once
                heapreplace(timed, (ready_us, offset, first + count - offset))
            return ready_us
        return None

    def _ripen(self, now_us: int) -> None:
        """Move what is ready by now to the ready ones."""
        if len(self._ready) > 2 * len(self) + SLACK:  # where keys decide, they are taken past this list
            self._ready = [offset for offset in self._ready if offset in self]
        timed, ripe = self._timed, set[int]()  # one that left and came back within a microsecond is there twice
        while timed and timed[0][0] <= now_us:
            ready_us, first, count = heappop(timed)
            if count == 1:
                ripe.update((first,) if self._is_due(first, ready_us) else ())
            else:
                known = map(self.get, range(first, first + count))
                ripe.update([at for at, each in enumerate(known, first) if each and each.ready_us == ready_us])
        if len(ripe) > SLACK:
            self._ready = sorted(ripe.union(self._ready))
            return
        for offset in ripe:
            if not self._is_ready(offset):
                insort(self._ready, offset)

    def _drop(self, found: list[int], passed: int) -> None:
        """Forget entries that were passed because their records left; they lead the list as a rule."""
        seen = len(found) + passed
        self._ready[:seen] = found

    def _is_ready(self, offset: int) -> bool:
        at = bisect_left(self._ready, offset)
        return at < len(self._ready) and self._ready[at] == offset

    def _is_due(self, offset: int, ready_us: int) -> bool:
        known = self.get(offset)
        return known is not None and known.ready_us == ready_us

    def _stands(self, offset: int, now_us: int) -> bool:
        known = self.get(offset)
        return known is not None and known.ready_us <= now_us

    def _tidy(self) -> None:
        self._timed = [(record.ready_us, offset, 1) for offset, record in self.items()]
        self._ready = []
        heapify(self._timed)
