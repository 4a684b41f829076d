"""Choosing: which records a lease gets next.

Idea: what waits to be tried again and is ready goes first, in the order of the log; then untouched records from the
frontier on. Untouched records are a stretch of offsets, so a hundred of them cost as much as one.

Contract: `choose` decides and changes nothing; what it says holds until something else is proposed. Times are log time.
Must not know workers, tokens or bytes. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .leases import Run
    from .queue import Queue


class Choice(NamedTuple):
    """What a lease takes; the fields are those of LeaseGranted."""

    runs: list[Run]
    frontier: int
    cursors: list[tuple[int, int, int, int]] = []
    held: list[tuple[int, int]] = []
    keys: list[int] = []


def choose(queue: Queue, first: int, end: int, limit: int, now_us: int) -> Choice:
    """Up to `limit` records of a group, of those from `first` to `end`. Without any, `runs` is empty."""
    runs = list(_again(queue, limit, now_us))
    limit -= sum(count for _, count, _ in runs)
    low = max(queue.frontier, first)
    if limit <= 0 or low >= end:
        return Choice(runs, queue.frontier)
    if queue.cancelled:
        frontier = _untouched(queue, low, end, limit, runs)
    else:
        frontier = min(low + limit, end)
        runs.append((low, frontier - low, 1))
    return Choice(runs, frontier)


def _again(queue: Queue, limit: int, now_us: int) -> Iterator[Run]:
    """Records whose time to be tried again has come."""
    waiting = queue.waiting
    tried = ((offset, waiting[offset].attempt + 1) for offset in waiting.ready(now_us, limit))
    return joined(tried)


def _untouched(queue: Queue, low: int, end: int, limit: int, runs: list[Run]) -> int:
    """Add untouched records, leaving out the cancelled ones. Returns the frontier after them."""
    offset = low
    found: list[tuple[int, int]] = []
    while offset < end and len(found) < limit:
        if offset not in queue.cancelled:
            found.append((offset, 1))
        offset += 1
    runs.extend(joined(found))
    return offset


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
