"""Shelves: records of a partition that are taken out of log order, because of a priority or a delay.

Idea: priority and delay are the same for all groups, so shelves are kept once. Each priority has one: offsets of
records without a delay, and timers. The offsets of all shelved records are kept too, so that a group's frontier skips
them. Each group keeps a cursor per shelf.

Contract: changed only by committed entries, in log order; entries go only when the log's first offset passes them. A
partition without shelved records has no shelves and no cost. Pure.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from .leases import Range
from .offsets import OffsetSet
from .placing import Placed
from .timers import NO_OFFSETS, TimerRun, Timers

LARGE = 1 << 17
"""Offsets of records without a delay in one run."""

WINDOW = 256
"""Shelved records examined at once while the frontier passes them."""


class Filed(Struct, frozen=True, gc=False):
    """A run that holds offsets of a shelf up to `last`."""

    last: int
    number: int
    checksum: int


class Large(Struct, frozen=True, gc=False, eq=False):
    """A part of the shelves that will not change and should not stand in each snapshot. No times: without a delay."""

    level: int
    times: np.ndarray
    offsets: np.ndarray
    run: TimerRun | None


class Shelf:
    """Records of one priority: `offsets` may be worked on at once, `timers` later. `filed` are runs of the former."""

    __slots__ = ("filed", "offsets", "timers")

    def __init__(self) -> None:
        self.offsets = OffsetSet()
        self.timers = Timers()
        self.filed: list[Filed] = []

    def unfiled_from(self) -> int:
        """Index of the first of the offsets that is in no run."""
        return self.offsets.below(self.filed[-1].last + 1) if self.filed else 0

    def numbers(self) -> set[int]:
        """The runs of it."""
        return {filed.number for filed in self.filed} | {run.number for run in self.timers.filed()}


class Shelves:
    """All shelved records of a partition."""

    def __init__(self) -> None:
        self.first = 0  # nothing below is remembered
        self.by_level: dict[int, Shelf] = {}
        self.special = OffsetSet()
        self.last_run = 0  # the highest number that was given to a run
        self._levels = bytearray()  # of each special record, in order
        self.carried: dict[int, int] = {}  # priorities of records below `first` that were carried forward, ascending

    def __bool__(self) -> bool:
        return bool(self.by_level)

    def add(self, found: Placed) -> None:
        """Special records of one batch, behind all that were added before."""
        self.special.add(found.offsets)
        self._levels += found.levels.tobytes()
        for level in np.unique(found.levels).tolist():
            mine = found.levels == level
            self._shelve(self.by_level.setdefault(level, Shelf()), found.offsets[mine], found.times[mine])

    def _shelve(self, shelf: Shelf, offsets: np.ndarray, times: np.ndarray) -> None:
        later = times > 0
        shelf.timers.add(times[later], offsets[later])
        shelf.offsets.add(offsets[~later])

    def drop_below(self, first: int, keep: np.ndarray = NO_OFFSETS) -> None:
        """The log begins at `first`. Below it, only the timers of `keep` stay: those that were carried forward."""
        if first < self.first or (first == self.first and not self.carried):
            return
        carried = keep[: np.searchsorted(keep, first)].tolist()
        self.carried = {offset: self.level_of(offset) for offset in carried}
        self.first = first
        del self._levels[: self.special.below(first)]
        self.special.drop_below(first)
        for level, shelf in list(self.by_level.items()):
            shelf.offsets.drop_below(first)
            shelf.timers.drop_below(first, keep)
            shelf.filed = [filed for filed in shelf.filed if filed.last >= first]
            if not (len(shelf.offsets) or len(shelf.timers)):
                del self.by_level[level]

    def restore(self, found: Placed) -> None:
        """The records that are on their shelves already."""
        self.special.add(found.offsets)
        self._levels += found.levels.tobytes()

    # -- runs ---------------------------------------------------------------------------------------

    def large(self) -> Large | None:
        """A large part that has no run yet; None if there is none."""
        for level, shelf in self.by_level.items():
            run = shelf.timers.large()
            if run is not None:
                return Large(level, run.times, run.offsets(0, len(run)), run)
            first = shelf.unfiled_from()
            if len(shelf.offsets) - first >= LARGE:
                return Large(level, np.zeros(0, np.int64), shelf.offsets.slice(first, first + LARGE), None)
        return None

    def file(self, large: Large, checksum: int) -> None:
        """A large part was written into the next run."""
        self.last_run += 1
        shelf = self.by_level[large.level]
        if large.run is not None:
            shelf.timers.file(large.run, self.last_run, checksum)
        else:
            shelf.filed.append(Filed(int(large.offsets[-1]), self.last_run, checksum))

    def numbers(self) -> set[int]:
        """The runs that are still of use."""
        return {number for shelf in self.by_level.values() for number in shelf.numbers()}

    # -- looking ------------------------------------------------------------------------------------

    def levels(self) -> list[int]:
        """The priorities of which there are records, the highest first; 0 is always among them."""
        return sorted({0, *self.by_level}, reverse=True)

    def __contains__(self, offset: int) -> bool:
        """Whether a record was put on a shelf; of those that were carried forward, whether it has a delay."""
        return self.time_of(offset) > 0 if offset < self.first else self.between(offset, offset + 1) > 0

    def level_of(self, offset: int) -> int:
        """The priority of a record."""
        if offset < self.first:
            return self.carried.get(offset, 0)
        at = self.special.below(offset)
        return self._levels[at] if self.special.slice(at, at + 1).tolist() == [offset] else 0

    def time_of(self, offset: int) -> int:
        """When a delayed record may be worked on; 0 for one without a delay."""
        shelf = self.by_level.get(self.level_of(offset))
        return 0 if shelf is None else shelf.timers.time_of(offset)

    def plain(self, low: int, end: int, limit: int) -> tuple[list[Range], int]:
        """Ranges of records that are not special, from `low` on, at most `limit` records of them.

        Returns them with the offset behind the last record that was passed or taken.
        """
        special, found = self.special, list[Range]()
        at = special.below(low)
        while low < end and limit > 0:
            near = special.slice(at, at + WINDOW)
            near = near[near < end]
            if not len(near):
                count = min(end - low, limit)
                found.append((low, count))
                return found, low + count
            if near[0] == low:
                beyond = special.run_end(at)
                low, at = min(low + beyond - at, end), beyond
                continue
            low, limit = _between(near, low, limit, found)
            at = special.below(low)
        return found, low

    def beyond(self, low: int) -> int:
        """The first offset from `low` on that is not special."""
        if not self.by_level:
            return low
        at = self.special.below(low)
        return low + self.special.run_end(at) - at if self.special.slice(at, at + 1).tolist() == [low] else low

    def special_between(self, low: int, high: int) -> np.ndarray:
        """The special records from `low` on and below `high`, ascending."""
        return self.special.slice(self.special.below(low), self.special.below(high))

    def between(self, low: int, high: int) -> int:
        """How many special records there are from `low` on and below `high`."""
        return max(self.special.below(high) - self.special.below(low), 0)


def _between(special: np.ndarray, low: int, limit: int, found: list[Range]) -> tuple[int, int]:
    """Add the ranges from `low` up to the last of some special records. Returns how far that is, and what is left."""
    starts = np.concatenate(([low], special[:-1] + 1))
    counts = special - starts
    taken = np.minimum(counts, np.maximum(limit - (np.cumsum(counts) - counts), 0))
    some = np.flatnonzero(taken)
    found.extend(zip(starts[some].tolist(), taken[some].tolist(), strict=True))
    left = limit - int(taken.sum())
    return (sum(found[-1]) if not left else int(special[-1]) + 1), left
