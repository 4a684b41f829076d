"""Retrying records: by offset, and by the time of their next attempt.

Idea: a heap of (ready time, offset) orders the records that are not ready. Ready ones are in a sorted list of offsets;
a lease takes the lowest. Stale heap entries are dropped when they surface.

Invariant: every record of the table is under its present time in the heap, or in the ready list.
Contract: a table by offset like the others; times are arguments. Memory: a few numbers per record. Pure.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heapify, heappop, heappush

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
        self._timed: list[tuple[int, int]] = []
        self._ready: list[int] = []

    def __setitem__(self, offset: int, record: RetryingRecord) -> None:
        super().__setitem__(offset, record)
        heappush(self._timed, (record.ready_us, offset))
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
            ready_us, offset = timed[0]
            known = self.get(offset)
            if known is not None and known.ready_us == ready_us:
                return ready_us
            heappop(timed)
        return None

    def _ripen(self, now_us: int) -> None:
        """Move what is ready by now to the ready ones."""
        timed, ripe = self._timed, set[int]()  # one that left and came back within a microsecond is there twice
        while timed and timed[0][0] <= now_us:
            ready_us, offset = heappop(timed)
            known = self.get(offset)
            if known is not None and known.ready_us == ready_us and not self._is_ready(offset):
                ripe.add(offset)
        if len(ripe) > SLACK:
            self._ready = sorted([*self._ready, *ripe])
            return
        for offset in ripe:
            insort(self._ready, offset)

    def _drop(self, found: list[int], passed: int) -> None:
        """Forget entries that were passed because their records left; they lead the list as a rule."""
        seen = len(found) + passed
        self._ready[:seen] = found

    def _is_ready(self, offset: int) -> bool:
        at = bisect_left(self._ready, offset)
        return at < len(self._ready) and self._ready[at] == offset

    def _stands(self, offset: int, now_us: int) -> bool:
        known = self.get(offset)
        return known is not None and known.ready_us <= now_us

    def _tidy(self) -> None:
        self._timed = [(record.ready_us, offset) for offset, record in self.items()]
        self._ready = []
        heapify(self._timed)
