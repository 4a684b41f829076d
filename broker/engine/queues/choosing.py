"""Choosing: which records a lease gets next.

Idea: what waits to be tried again and is ready goes first, in the order of the log; then untouched records from the
frontier on. Untouched records are a stretch of offsets, so a hundred of them cost as much as one.

Contract: `choose` decides and changes nothing; what it says holds until something else is proposed. Times are log time.
Must not know workers, tokens or bytes. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .leases import Run
    from .queue import Queue


Skipped = Callable[[int, int], Sequence[int]]
"""`skipped(low, high)`: offsets from `low` on and below `high`, sorted."""


def nothing(low: int, high: int) -> Sequence[int]:
    """No offsets."""
    return ()


class Choice(NamedTuple):
    """What a lease takes; the fields are those of LeaseGranted."""

    runs: list[Run]
    frontier: int
    cursors: list[tuple[int, int, int, int]] = []
    held: list[tuple[int, int]] = []
    keys: list[int] = []


class Source(NamedTuple):
    """What a partition has for its groups."""

    first: int  # records below are gone
    end: int  # the offset behind the last record
    skipped: Skipped = nothing  # untouched records that are not taken from the frontier


def choose(queue: Queue, source: Source, limit: int, now_us: int) -> Choice:
    """Up to `limit` records of a group. Without any, `runs` is empty."""
    runs = list(_again(queue, limit, now_us))
    limit -= sum([count for _, count, _ in runs])
    frontier = queue.frontier
    low = max(frontier, source.first)
    while limit > 0 and low < source.end:
        high = min(low + limit, source.end)
        for run in _between(low, high, _passed(queue, source, low, high)):
            add(runs, run)
            limit -= run[1]
            frontier = run[0] + run[1]
        low = high
    return Choice(runs, frontier)


def add(runs: list[Run], run: Run) -> None:
    """One more run, as part of the last one where it goes on with that."""
    if runs and runs[-1][0] + runs[-1][1] == run[0] and runs[-1][2] == run[2]:
        runs[-1] = (runs[-1][0], runs[-1][1] + run[1], run[2])
    else:
        runs.append(run)


def _passed(queue: Queue, source: Source, low: int, high: int) -> Sequence[int]:
    """Records that the frontier passes over, sorted."""
    passed = source.skipped(low, high)
    if queue.cancelled:
        return sorted({*passed, *(offset for offset in range(low, high) if offset in queue.cancelled)})
    return passed


def _between(low: int, high: int, passed: Sequence[int]) -> Iterator[Run]:
    """The first attempts from `low` to `high`, but for what is passed over."""
    for offset in passed:
        if low < offset:
            yield low, offset - low, 1
        low = offset + 1
    if low < high:
        yield low, high - low, 1


def _again(queue: Queue, limit: int, now_us: int) -> Iterator[Run]:
    """Records whose time to be tried again has come."""
    waiting = queue.waiting
    tried = ((offset, waiting[offset].attempt + 1) for offset in waiting.ready(now_us, limit))
    return joined(tried)


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
