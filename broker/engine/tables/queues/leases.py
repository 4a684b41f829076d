"""Leases: the records that a worker holds, and until when.

Idea: leased records are mostly contiguous, so a lease is a few extents, each a bit mask over a run of offsets. Memory
and time grow with leases, not with records. All leases of a group are in a LeaseTable (lease_table.py).

Contract: applies effects and decides nothing. Pure.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter

from msgspec import Struct

Range = tuple[int, int]
"""First offset, how many."""

Run = tuple[int, int, int]
"""First offset, how many, attempt."""

Failure = tuple[int, str, str]
"""When an attempt failed, which worker had it, why."""


class ExtentBody(Struct, array_like=True, frozen=True):
    """An extent in a snapshot; `left` is the mask, little-endian, bit n for record n."""

    offset: int
    count: int
    attempt: int
    left: bytes


class LeaseBody(Struct, array_like=True, frozen=True):
    """A lease in a snapshot."""

    token: int
    worker: str
    until_us: int
    extents: list[ExtentBody]
    keys: list[tuple[int, int]]
    history: list[tuple[int, list[Failure]]]
    given_us: int = 0  # 0: written before this was remembered


FEW_EXTENTS = 8
"""The most extents of a lease that are searched one by one."""


class Extent:
    """A run of records under one lease. `left` has a bit for each that is not settled."""

    __slots__ = ("attempt", "count", "left", "offset")

    def __init__(self, offset: int, count: int, attempt: int, left: int) -> None:
        self.offset = offset
        self.count = count
        self.attempt = attempt
        self.left = left

    def clear(self, first: int, count: int) -> int:
        """Take out the records of a range, and return how many there were."""
        low, high = max(first - self.offset, 0), min(first + count - self.offset, self.count)
        if low >= high:
            return 0
        gone = self.left & ((1 << high) - (1 << low))
        self.left ^= gone
        return gone.bit_count()

    def runs(self) -> Iterator[Range]:
        """The remaining records, as ranges."""
        return self.within(self.offset, self.offset + self.count)

    def within(self, first: int, end: int) -> Iterator[Range]:
        """The remaining records from `first` on and below `end`, as ranges."""
        low, high = max(first - self.offset, 0), min(end - self.offset, self.count)
        if low >= high:
            return
        all_of_it = (1 << (high - low)) - 1
        left, offset = self.left >> low & all_of_it, self.offset + low
        if left == all_of_it:
            yield offset, high - low
            return
        while left:
            skip = (left & -left).bit_length() - 1
            left >>= skip
            offset += skip
            count = (~left & (left + 1)).bit_length() - 1
            yield offset, count
            left >>= count
            offset += count

    def dump(self) -> ExtentBody:
        """Dump for a snapshot."""
        return ExtentBody(self.offset, self.count, self.attempt, self.left.to_bytes((self.count + 7) // 8, "little"))

    @classmethod
    def load(cls, body: ExtentBody) -> Extent:
        """Restore from a snapshot."""
        return cls(body.offset, body.count, body.attempt, int.from_bytes(body.left, "little"))


class Lease:
    """One lease."""

    __slots__ = ("_in_order", "extents", "given_us", "history", "keys", "left", "token", "until_us", "worker")

    def __init__(self, token: int, worker: str, until_us: int, extents: list[Extent], given_us: int) -> None:
        self.token = token
        self.worker = worker
        self.until_us = until_us  # FOREVER_US: it has no end
        self.given_us = given_us  # 0: not known
        self.extents = extents
        self.left = sum(extent.left.bit_count() for extent in extents)
        self.keys: dict[int, int] = {}  # key hash by offset, where the group looks at keys
        self.history: dict[int, list[Failure]] = {}  # earlier failures by offset
        self._in_order: list[Extent] = []  # by offset, once that is worth it

    @classmethod
    def of(cls, token: int, worker: str, until_us: int, runs: Sequence[Run], given_us: int = 0) -> Lease:
        """A new lease of runs."""
        extents = [Extent(offset, count, attempt, (1 << count) - 1) for offset, count, attempt in runs]
        return cls(token, worker, until_us, extents, given_us)

    def clear(self, first: int, count: int) -> int:
        """Take records out. Returns how many of the range it still had."""
        cleared = sum(extent.clear(first, count) for extent in self._near(first, count))
        self.left -= cleared
        return cleared

    def forget_below(self, first: int) -> None:
        """Forget keys and failures of records before `first`, which have left it."""
        self.keys = {offset: key for offset, key in self.keys.items() if offset >= first}
        self.history = {offset: known for offset, known in self.history.items() if offset >= first}

    def runs(self) -> Iterator[Run]:
        """The records it still has, as (first offset, how many, attempt)."""
        for extent in self.extents:
            for offset, count in extent.runs():
                yield offset, count, extent.attempt

    def within(self, first: int, end: int) -> Iterator[Run]:
        """As `runs`, of the records from `first` on and below `end`."""
        for extent in self._near(first, end - first):
            for offset, count in extent.within(first, end):
                yield offset, count, extent.attempt

    def finish(self) -> None:
        """Take all out."""
        for extent in self.extents:
            extent.left = 0
        self.left = 0

    def among(self, ranges: Sequence[Range]) -> list[Run]:
        """Records of `ranges` that it still has, all if there are none, as (first offset, how many, attempt)."""
        if not ranges:
            return list(self.runs())
        named = apart(ranges)
        found: list[Run] = []
        for offset, count, attempt in self.within(named[0][0], named[-1][1]):
            at = max(bisect_right(named, (offset,)) - 1, 0)
            while at < len(named) and named[at][0] < offset + count:
                low, high = max(offset, named[at][0]), min(offset + count, named[at][1])
                if low < high:
                    found.append((low, high - low, attempt))
                at += 1
        return found

    def granted(self, first: int, count: int) -> bool:
        """Whether every record of the range was given out under this lease, settled by now or not."""
        held = sum(
            max(min(first + count, extent.offset + extent.count) - max(first, extent.offset), 0)
            for extent in self._near(first, count)
        )
        return count > 0 and held == count

    def attempt(self, offset: int) -> int:
        """The attempt of a record it holds; 0 when it does not hold it (any more)."""
        for extent in self._near(offset, 1):
            index = offset - extent.offset
            if 0 <= index < extent.count and extent.left >> index & 1:
                return extent.attempt
        return 0

    def _near(self, first: int, count: int) -> Sequence[Extent]:
        """Extents that may hold records of a range. A lease of a thousand retries has as many extents."""
        if len(self.extents) <= FEW_EXTENTS:
            return self.extents
        if not self._in_order:
            self._in_order = sorted(self.extents, key=_offset_of)
        low = max(bisect_right(self._in_order, first, key=_offset_of) - 1, 0)
        return self._in_order[low : bisect_left(self._in_order, first + count, low, key=_offset_of)]

    def dump(self) -> LeaseBody:
        """Dump for a snapshot."""
        extents = [extent.dump() for extent in self.extents]
        return LeaseBody(
            self.token, self.worker, self.until_us, extents, sorted(self.keys.items()), sorted(self.history.items()),
            self.given_us,
        )  # fmt: skip

    @classmethod
    def load(cls, body: LeaseBody) -> Lease:
        """Restore from a snapshot."""
        extents = [Extent.load(each) for each in body.extents]
        lease = cls(body.token, body.worker, body.until_us, extents, body.given_us)
        lease.keys, lease.history = dict(body.keys), dict(body.history)
        return lease


_offset_of = attrgetter("offset")


def apart(ranges: Sequence[Range]) -> list[tuple[int, int]]:
    """Ranges as (first, end), in order and without overlap: a record that is named twice is one record."""
    named: list[tuple[int, int]] = []
    for first, count in sorted(ranges):
        if named and first <= named[-1][1]:
            named[-1] = (named[-1][0], max(named[-1][1], first + count))
        else:
            named.append((first, first + count))
    return named
