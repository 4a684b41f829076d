"""Timers: delayed records, ordered by the time they are due.

Idea: sorted runs of (time, offset) that never change once made, and a small tail for the newest timers. Neighbouring
runs of one size merge into a larger one, up to SEALED, so there are few runs and no merge takes long; a sealed run is
written to disk once. Taking a record removes nothing: each group has its own cursor and looks beyond it.

Invariant: every timer is in one run, or in the tail. A run ascends by time, then offset; every offset in a run is
above all in the runs before it, so a stable sort by time alone is enough.
Contract: added in order of offsets; times are int64 microseconds, `after` is the (time, offset) taken last. Twelve
bytes per timer. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from msgspec import Struct, structs

SEALED = 1 << 17
"""Timers of a run that is never merged again: merging or writing it takes some milliseconds."""

TAIL = 1 << 10
_SPAN = 1 << 32

Place = tuple[int, int]
"""Time and offset."""

NO_OFFSETS = np.zeros(0, np.int64)

NOTHING: Place = (0, -1)
"""The cursor of a group that took nothing yet."""


class TimerRun(Struct, frozen=True, gc=False, eq=False):
    """Sorted timers. Offsets are differences from `base`; `high` is the highest offset."""

    times: np.ndarray
    deltas: np.ndarray
    base: int
    high: int
    number: int = 0  # of its file, once it has one
    checksum: int = 0

    @classmethod
    def of(cls, times: np.ndarray, offsets: np.ndarray, number: int = 0, checksum: int = 0) -> TimerRun:
        """A run of timers that are in order for each time: those of one time by offset."""
        order = times.argsort(kind="stable")
        base, high = int(offsets.min()), int(offsets.max())
        kind = np.uint32 if high - base < _SPAN else np.int64
        return cls(times[order], (offsets - base).astype(kind)[order], base, high, number, checksum)

    def __len__(self) -> int:
        return len(self.times)

    def offsets(self, first: int, end: int) -> np.ndarray:
        """Offsets of timers `first` to `end` (exclusive), int64."""
        return self.deltas[first:end].astype(np.int64) + self.base

    def behind(self, after: Place) -> int:
        """How many timers are at `after` or before."""
        time_us, offset = after
        first = int(np.searchsorted(self.times, time_us, side="left"))
        if first == len(self.times) or self.times[first] > time_us:
            return first
        end = int(np.searchsorted(self.times, time_us, side="right"))
        return first + int(np.searchsorted(self.offsets(first, end), offset, side="right"))

    def from_offset(self, low: int, keep: np.ndarray) -> TimerRun | None:
        """The timers of offsets from `low` on, and of those below that are among `keep`, which ascends."""
        if low <= self.base:
            return self
        keep = keep[np.searchsorted(keep, self.base) : np.searchsorted(keep, low)]
        if low > self.high and not len(keep):
            return None
        stay = self.deltas >= low - self.base
        if len(keep):
            stay |= np.isin(self.deltas, keep - self.base)
        if stay.all():
            return self
        offsets = self.deltas[stay].astype(np.int64) + self.base
        return TimerRun.of(self.times[stay], offsets, self.number, self.checksum) if len(offsets) else None


class Due(Struct, frozen=True):
    """Timers that were found, in order."""

    times: np.ndarray
    offsets: np.ndarray


class Timers:
    """All timers of one level."""

    def __init__(self, runs: Iterable[TimerRun] = ()) -> None:
        self._runs = list(runs)
        self._tail_times: list[np.ndarray] = []
        self._tail_offsets: list[np.ndarray] = []
        self._tail = 0

    def __len__(self) -> int:
        return sum(map(len, self._runs)) + self._tail

    @property
    def runs(self) -> list[TimerRun]:
        """All there is, as runs; none of them will change."""
        self._settle()
        return self._runs

    def add(self, times: np.ndarray, offsets: np.ndarray) -> None:
        """Add timers, in the order of their offsets, which are above all that are there."""
        if not len(times):
            return
        self._tail_times.append(times)
        self._tail_offsets.append(offsets)
        self._tail += len(times)
        if self._tail >= TAIL:
            self._settle()

    def _settle(self) -> None:
        """Make the tail a run, and merge the runs that are no longer than what follows them."""
        if not self._tail:
            return
        times, offsets = np.concatenate(self._tail_times), np.concatenate(self._tail_offsets)
        self._tail_times, self._tail_offsets, self._tail = [], [], 0
        for first in range(0, len(times), SEALED):
            self._runs.append(TimerRun.of(times[first : first + SEALED], offsets[first : first + SEALED]))
            self._merge()

    def _merge(self) -> None:
        runs = self._runs
        while len(runs) > 1 and len(runs[-2]) < SEALED and not runs[-2].number and len(runs[-2]) < 2 * len(runs[-1]):
            newer, older = runs.pop(), runs.pop()
            runs.append(_merged(older, newer))

    def filed(self) -> list[TimerRun]:
        """The runs that have a file."""
        return [run for run in self._runs if run.number]

    def unfiled(self) -> tuple[np.ndarray, np.ndarray]:
        """Times and offsets of all that has no file, in order."""
        runs = [run for run in self.runs if not run.number]
        if not runs:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        times = np.concatenate([run.times for run in runs])
        offsets = np.concatenate([run.offsets(0, len(run)) for run in runs])
        order = times.argsort(kind="stable")
        return times[order], offsets[order]

    def large(self) -> TimerRun | None:
        """A run that will not change and has no file; None without one."""
        return next((run for run in self._runs if len(run) >= SEALED and not run.number), None)

    def file(self, run: TimerRun, number: int, checksum: int) -> None:
        """A run has a file now."""
        self._runs[self._runs.index(run)] = structs.replace(run, number=number, checksum=checksum)

    # -- looking ------------------------------------------------------------------------------------

    def due(self, after: Place, now_us: int, limit: int, low: int = 0) -> Due:
        """The first timers behind `after` whose time has come, at most `limit`, of offsets from `low` on."""
        found: list[tuple[np.ndarray, np.ndarray]] = []
        for run, first in self._behind(after, low):
            end = int(np.searchsorted(run.times, now_us, side="right"))
            found.append(_some(run, first, end, limit, low))
        return _first_of(found, limit)

    def next(self, after: Place, low: int = 0) -> int | None:
        """When the first timer behind `after` is due; None if there is none."""
        found = [_some(run, first, len(run), 1, low)[0] for run, first in self._behind(after, low)]
        return min((int(times[0]) for times in found if len(times)), default=None)

    def lowest(self, after: Place, now_us: int, low: int = 0) -> int | None:
        """The lowest offset of the timers behind `after` whose time has come; None without one."""
        found: list[int] = []
        for run, first in self._behind(after, low):
            deltas = run.deltas[first : int(np.searchsorted(run.times, now_us, side="right"))]
            deltas = deltas[deltas >= low - run.base] if low > run.base else deltas
            if len(deltas):
                found.append(int(deltas.min()) + run.base)
        return min(found, default=None)

    def count(self, after: Place, low: int = 0) -> int:
        """How many are behind `after`."""
        count = 0
        for run, first in self._behind(after, low):
            count += len(run) - first if low <= run.base else np.count_nonzero(run.deltas[first:] >= low - run.base)
        return int(count)

    def time_of(self, offset: int) -> int:
        """The time of a record; 0 when it has none here."""
        for run in self.runs:
            if run.base <= offset <= run.high:
                places = np.flatnonzero(run.deltas == offset - run.base)
                return int(run.times[places[0]]) if len(places) else 0
        return 0

    def pending(self, after: Place, low: int, high: int) -> np.ndarray:
        """Offsets of timers behind `after`, from `low` on and below `high`, in no order."""
        found = [run.offsets(first, len(run)) for run, first in self._behind(after, low) if run.base < high]
        offsets = np.concatenate(found) if found else np.zeros(0, np.int64)
        return offsets[(offsets >= low) & (offsets < high)]

    def most_pending(self, after: Place, high: int) -> int:
        """At most so many timers behind `after` are of offsets below `high`."""
        return sum(len(run) - first for run, first in self._behind(after, 0) if run.base < high)

    def _behind(self, after: Place, low: int) -> Iterator[tuple[TimerRun, int]]:
        """Every run that has timers behind `after`, with the index of the first."""
        for run in self.runs:
            if run.high < low or run.times[-1] < after[0]:
                continue
            first = run.behind(after)
            if first < len(run):
                yield run, first

    # -- retention ----------------------------------------------------------------------------------

    def drop_below(self, offset: int, keep: np.ndarray = NO_OFFSETS) -> None:
        """Forget timers of offsets below, but for those of `keep`, which ascends."""
        self._runs = [kept for run in self.runs if (kept := run.from_offset(offset, keep)) is not None]


def _some(run: TimerRun, first: int, end: int, limit: int, low: int) -> tuple[np.ndarray, np.ndarray]:
    """At most `limit` timers of a run from index `first` on, of offsets from `low` on."""
    if low <= run.base:
        end = min(first + limit, end)
        return run.times[first:end], run.offsets(first, end)
    places = np.flatnonzero(run.deltas[first:end] >= low - run.base)[:limit] + first
    return run.times[places], run.deltas[places].astype(np.int64) + run.base


def _first_of(found: list[tuple[np.ndarray, np.ndarray]], limit: int) -> Due:
    """The first of what was found in some runs, in the order of the runs."""
    if len(found) == 1:
        return Due(*found[0])
    if not found:
        return Due(np.zeros(0, np.int64), np.zeros(0, np.int64))
    times, offsets = (np.concatenate(column) for column in zip(*found, strict=True))
    order = times.argsort(kind="stable")[:limit]
    return Due(times[order], offsets[order])


def _merged(older: TimerRun, newer: TimerRun) -> TimerRun:
    times = np.concatenate((older.times, newer.times))
    return TimerRun.of(times, np.concatenate((older.offsets(0, len(older)), newer.offsets(0, len(newer)))))
