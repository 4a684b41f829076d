"""Choosing: which records a lease gets next.

Idea: priorities from high to low; within a priority, ready retries first, then due timers, then untouched records in
log order. Plain untouched records are a range of offsets from the frontier, so a hundred cost as much as one; records
with a priority or a delay come from the shelves.

Contract: `choose` decides and changes nothing; its result holds until something else is proposed. Times are log time.
No timer is taken before its time. Must not know workers, tokens or bytes. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .....transport.queue_messages import FOREVER_US
from ...tables.queues.queue import ShelfCursor
from ...tables.queues.shelves import Shelf, Shelves
from ...tables.queues.timers import NOTHING, Place

if TYPE_CHECKING:
    from ...tables.queues.leases import Run
    from ...tables.queues.queue import Queue

LOOK = 1000
"""Ready retries searched for the highest priority: the first in the log."""

Skipped = Callable[[int, int], Sequence[int]]
"""`skipped(low, high)`: offsets from `low` on and below `high`, sorted."""

Moved = tuple[int, int, int, int]
"""A group's cursor of one priority, as LeaseGranted has it."""


def nothing(low: int, high: int) -> Sequence[int]:
    """No offsets."""
    return ()


class Choice(NamedTuple):
    """The records of a lease; the fields are those of LeaseGranted."""

    runs: list[Run]
    frontier: int
    cursors: list[Moved] = []
    held: list[tuple[int, int]] = []
    keys: list[int] = []


class RecordSource(NamedTuple):
    """The records a partition has for its groups."""

    first: int  # untouched records begin here
    end: int  # the offset behind the last record
    skipped: Skipped = nothing  # untouched records that are void or cancelled
    shelves: Shelves | None = None  # records with a priority or a delay, where there are any
    shelved_us: int = FOREVER_US  # no timer up to this time can be added any more


def choose(queue: Queue, source: RecordSource, limit: int, now_us: int) -> Choice:
    """Choose up to `limit` records of a group. `runs` is empty if there are none."""
    if source.shelves:
        return _by_level(queue, source, source.shelves, limit, now_us)
    runs = list(_again(queue, queue.retrying.ready(now_us, limit)))
    frontier = _untouched(queue, source, limit - _count(runs), runs)
    return Choice(runs, frontier)


def _by_level(queue: Queue, source: RecordSource, shelves: Shelves, limit: int, now_us: int) -> Choice:
    """The choice where there are records with a priority or a delay."""
    ready = _ready(queue, shelves, limit, now_us)
    runs: list[Run] = []
    cursors: list[Moved] = []
    frontier = queue.frontier
    for level in sorted({0, *ready, *shelves.by_level}, reverse=True):
        left = limit - _count(runs)
        runs += _again(queue, ready.get(level, ())[:left])
        shelf = shelves.by_level.get(level)
        if shelf is not None:
            picker = ShelfPicker(queue, source, level, shelf)
            offsets = picker.take(limit - _count(runs), min(now_us, source.shelved_us))
            runs += joined((offset, 1) for offset in offsets)
            cursors += picker.moved()
        if not level:
            frontier = _untouched(queue, source, limit - _count(runs), runs)
    return Choice(runs, frontier, cursors)


def _ready(queue: Queue, shelves: Shelves, limit: int, now_us: int) -> dict[int, list[int]]:
    """Ready retries, by priority."""
    if shelves.by_level.keys() == {0}:
        return {0: queue.retrying.ready(now_us, limit)}
    found: dict[int, list[int]] = {}
    for offset in queue.retrying.ready(now_us, max(limit, LOOK)):
        found.setdefault(shelves.level_of(offset), []).append(offset)
    return found


class ShelfPicker:
    """Takes records from one shelf for one group, and keeps the cursor."""

    def __init__(self, queue: Queue, source: RecordSource, level: int, shelf: Shelf) -> None:
        self._queue = queue
        self._source = source
        self._level = level
        self._shelf = shelf
        self._before = queue.cursors.get(level, ShelfCursor())
        self._offset = self._before.offset
        self._timer = self._before.time_us, self._before.timer

    def take(self, limit: int, due_us: int) -> list[int]:
        """At most `limit` records: those that are due, in the order of their times, then those without a delay."""
        taken: list[int] = []
        look = limit
        while len(taken) < limit and self._due(taken, limit, look, due_us):
            look = LOOK  # many may be void or cancelled
        look = limit - len(taken)
        while len(taken) < limit and self._at_once(taken, limit, look):
            look = LOOK
        return taken

    def _due(self, taken: list[int], limit: int, look: int, due_us: int) -> bool:
        """Take from the next `look` that are due. Returns whether there were any."""
        due = self._shelf.timers.due(self._timer, due_us, look, self._queue.start)
        for place in zip(due.times.tolist(), due.offsets.tolist(), strict=True):
            if len(taken) == limit:
                break
            self._timer = place
            if self._is_work(place[1]):
                taken.append(place[1])
        return len(due.offsets) > 0

    def _at_once(self, taken: list[int], limit: int, look: int) -> bool:
        """As `_due`, of records without a delay."""
        numbers = self._shelf.offsets
        at = numbers.below(max(self._offset, self._queue.start))
        offsets = numbers.slice(at, at + look).tolist()
        for offset in offsets:
            if len(taken) == limit:
                break
            self._offset = offset + 1
            if self._is_work(offset):
                taken.append(offset)
        return bool(offsets)

    def _is_work(self, offset: int) -> bool:
        return not self._queue.passes(offset) and not len(self._source.skipped(offset, offset + 1))

    def moved(self) -> list[Moved]:
        """The cursor, if it moved."""
        time_us, timer = self._timer
        moved = ShelfCursor(self._offset, time_us, timer) != self._before
        return [(self._level, self._offset, time_us, timer)] if moved else []


def _untouched(queue: Queue, source: RecordSource, limit: int, runs: list[Run]) -> int:
    """Add plain untouched records, at most `limit`. Returns the frontier behind them."""
    frontier = queue.frontier
    for run in untouched(queue, source, limit):
        add(runs, run)
        frontier = run[0] + run[1]
    return frontier


def untouched(queue: Queue, source: RecordSource, limit: int) -> Iterator[Run]:
    """Plain untouched records in the order of the log, at most `limit`."""
    low = max(queue.frontier, source.first)
    while limit > 0 and low < source.end:
        high, ranges = min(low + limit, source.end), [(low, min(limit, source.end - low))]
        if source.shelves:
            ranges, high = source.shelves.plain(low, source.end, limit)
        for first, count in ranges:
            for run in _between(first, first + count, _passed(queue, source, first, first + count)):
                yield run
                limit -= run[1]
        low = high


def add(runs: list[Run], run: Run) -> None:
    """One more run, as part of the last one where it goes on with that."""
    if runs and runs[-1][0] + runs[-1][1] == run[0] and runs[-1][2] == run[2]:
        runs[-1] = (runs[-1][0], runs[-1][1] + run[1], run[2])
    else:
        runs.append(run)


def _passed(queue: Queue, source: RecordSource, low: int, high: int) -> Sequence[int]:
    """Records that the frontier skips, sorted."""
    passed = source.skipped(low, high)
    if queue.cancelled or queue.apart:
        return sorted({*passed, *(offset for offset in range(low, high) if queue.passes(offset))})
    return passed


def _between(low: int, high: int, passed: Sequence[int]) -> Iterator[Run]:
    """The first attempts from `low` to `high`, except for skipped ones."""
    for offset in passed:
        if low < offset:
            yield low, offset - low, 1
        low = offset + 1
    if low < high:
        yield low, high - low, 1


def _again(queue: Queue, offsets: Sequence[int]) -> Iterator[Run]:
    """Retries, under their next attempt."""
    return joined((offset, queue.retrying[offset].attempt + 1) for offset in offsets)


def next_timer_us(queue: Queue, shelves: Shelves, now_us: int) -> int | None:
    """When the next delayed record that a group has yet to take is due, after `now_us`; None without one."""
    found: list[int] = []
    for level, shelf in shelves.by_level.items():
        time_us = shelf.timers.next(max(_taken(queue, level), (now_us, FOREVER_US)), queue.start)
        if time_us is not None:
            found.append(time_us)
    return min(found, default=None)


def on_shelves(queue: Queue, shelves: Shelves, now_us: int) -> tuple[int, int]:
    """How many records on the shelves a group has yet to take: those that it could, and those that are delayed."""
    ready = delayed = 0
    for level, shelf in shelves.by_level.items():
        taken, offset = _taken(queue, level), queue.cursors.get(level, ShelfCursor()).offset
        later = shelf.timers.count(max(taken, (now_us, FOREVER_US)), queue.start)
        ready += shelf.timers.count(taken, queue.start) - later
        ready += len(shelf.offsets) - shelf.offsets.below(max(offset, queue.start))
        delayed += later
    return ready, delayed


def lowest_on_shelves(queue: Queue, shelves: Shelves, now_us: int) -> list[int]:
    """The lowest offset of each sort that a group could take from the shelves."""
    found: list[int] = []
    for level, shelf in shelves.by_level.items():
        offset = shelf.timers.lowest(_taken(queue, level), now_us, queue.start)
        found += [] if offset is None else [offset]
        at = shelf.offsets.below(max(queue.cursors.get(level, ShelfCursor()).offset, queue.start))
        found += shelf.offsets.slice(at, at + 1).tolist()
    return found


def _taken(queue: Queue, level: int) -> Place:
    """The last timer of a priority that a group has taken."""
    cursor = queue.cursors.get(level)
    return NOTHING if cursor is None else (cursor.time_us, cursor.timer)


def _count(runs: list[Run]) -> int:
    return sum([count for _, count, _ in runs])


def joined(tried: Iterable[tuple[int, int]]) -> Iterator[Run]:
    """(offset, attempt) pairs as runs."""
    first, count, attempt = -1, 0, 0
    for offset, each in tried:
        if count and offset == first + count and each == attempt:
            count += 1
            continue
        if count:
            yield first, count, attempt
        first, count, attempt = offset, 1, each
    if count:
        yield first, count, attempt
