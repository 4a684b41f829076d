"""A queue group on one partition: the sum of its effects.

Invariant: every record from `start` on is in exactly one state. At or above the frontier: untouched. Below it: leased,
retrying, held (skipped because of its key), dead-lettered, or done; done records are in no table. Leased records below
`gone_below` are gone from the log: they only leave their leases, and are done then. Records with a
priority or a delay are skipped by the frontier; `cursors` say how far the group has taken each shelf.

Contract: applying decides nothing and never fails on logged effects; replay gives the same tables. Memory is O(open
records), never O(backlog). Must not know clocks, workers' connections, or how records are chosen. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from .....transport.queue_messages import FOREVER_US
from .. import effects as fx
from .endings import Endings
from .lease_table import LeaseTable
from .leases import Failure, Lease, LeaseBody
from .retrying import RetryingRecord, RetryingTable
from .settings import QueueSettings, parse
from .workers import KnownWorker, WorkerTable

if TYPE_CHECKING:
    from .kept import Kept
    from .shelves import Shelves

ENDED_MAX = 4096
"""Remembered leases that their own worker settled, so that settling again is no error."""

HISTORY_MAX = 20
"""Failures that are remembered of one record, the latest."""


class DeadLetter(Struct, array_like=True):
    """A dead-lettered record, or several that fared alike: retried only when redriven."""

    attempt: int
    time_us: int
    reason: str
    history: list[Failure] = []
    key: int = 0  # hash, where the group looks at keys


class ShelfCursor(Struct, array_like=True):
    """A group's position on the shelf of one priority: records without a delay, and timers."""

    offset: int = 0  # of those without a delay, this one is next
    time_us: int = 0  # of the last timer that was taken
    timer: int = -1  # its offset

    def passed(self, time_us: int, offset: int) -> bool:
        """Whether a record was taken; `time_us` is 0 without a delay."""
        return (time_us, offset) <= (self.time_us, self.timer) if time_us else offset < self.offset


class QueueBody(Struct, array_like=True):
    """A queue group in a snapshot."""

    group: str
    settings: dict[str, Any]
    start: int
    frontier: int
    last_token: int
    paused_until_us: int
    last_us: int
    cursors: list[tuple[int, ShelfCursor]]
    leases: list[LeaseBody]
    retrying: list[tuple[int, RetryingRecord]]
    held: list[tuple[int, int]]
    dead_letters: list[tuple[int, DeadLetter]]
    cancelling: list[int]
    cancelled: list[int]
    ended: list[int]
    progress: list[tuple[int, bytes]]
    finals: int = 0
    endings: list[tuple[int, int]] = []
    apart: list[int] = []
    workers: list[KnownWorker] = []
    gone_below: int = 0
    full_us: int = 0


class Queue:
    """One queue group on one partition."""

    def __init__(self, group: str, settings: QueueSettings, start: int, first: int = 0) -> None:
        """`first`: where the log begins."""
        self.group = group
        self.settings = settings
        self.start = start
        self.frontier = start
        self.last_token = 0
        self.paused_until_us = 0
        self.last_us = 0  # append time of its last effect
        self.cursors: dict[int, ShelfCursor] = {}  # by priority
        self.leases = LeaseTable()  # by token
        self.workers = WorkerTable()  # by name
        self.retrying = RetryingTable()  # by offset
        self.held: dict[int, int] = {}  # key hash by offset
        self.dead_letters: dict[int, DeadLetter] = {}  # by offset, the oldest first
        self.cancelling: set[int] = set()  # leased, and not leased again
        self.cancelled: set[int] = set()  # done without being tried; skipped where they were untouched
        self.gone_below = 0  # trimmed: what is still leased below it has no end
        self.apart: set[int] = set()  # open when the group was moved before them: they have a state of their own
        self.ended: dict[int, None] = {}  # tokens, oldest first
        self.progress: dict[int, bytes] = {}  # by offset, of leased records
        self.finals = 0  # how often a record ended with something to tell (finals.py)
        self.endings = Endings(first=first)  # of a group that keeps what is finished for a time
        self.full_us = 0  # when the bucket of the group's rate is full again, as the last lease here said

    # -- applying -----------------------------------------------------------------------------------

    def granted(self, effect: fx.LeaseGranted, time_us: int) -> None:
        """Records went into a lease."""
        lease = Lease.of(effect.token, effect.worker, effect.until_us, effect.runs, effect.given_us or time_us)
        if effect.keys:
            offsets = [offset for first, count, _ in effect.runs for offset in range(first, first + count)]
            lease.keys = dict(zip(offsets, effect.keys, strict=True))
        if self.retrying or self.held:
            lease.history.update(self._chosen((first, count) for first, count, _ in effect.runs))
        self.held.update(effect.held)
        self.leases.add(lease)
        self.workers.given(effect.worker, time_us, self.leases.by_worker)
        self.last_token = effect.token
        self.full_us = effect.full_us or self.full_us
        self.moved(effect)

    def taken(self, effect: fx.TasksTaken, time_us: int) -> None:
        """Records were given to a worker, and are done."""
        self._chosen(effect.ranges)
        self.held.update(effect.held)
        self.full_us = effect.full_us or self.full_us
        self.moved(effect)
        self._over(effect.ranges, time_us)
        if effect.worker:
            self.workers.given(effect.worker, time_us, self.leases.by_worker)

    def moved(self, effect: fx.LeaseGranted | fx.TasksTaken | fx.FrontierMoved) -> None:
        """Records before these places were taken, or are void or cancelled."""
        self.frontier = max(self.frontier, effect.frontier)
        for level, offset, time_us, timer in effect.cursors:
            self.cursors[level] = ShelfCursor(offset, time_us, timer)

    def _chosen(self, ranges: Iterable[tuple[int, int]]) -> dict[int, list[Failure]]:
        """Records are retrying or held no more. Returns the failures of those that have some."""
        failures: dict[int, list[Failure]] = {}
        for first, count in ranges:
            for offset in self._known(first, count):
                waited = self.retrying.pop(offset, None)
                if waited is None:
                    self.held.pop(offset, None)
                elif waited.history:
                    failures[offset] = waited.history
        return failures

    def _known(self, first: int, count: int) -> Iterable[int]:
        """Records of a range that may be retrying or held: looked for in whichever is shorter."""
        if count <= len(self.retrying) + len(self.held):
            return range(first, first + count)
        return [offset for offset in (*self.retrying, *self.held) if first <= offset < first + count]

    def extended(self, effect: fx.LeasesExtended, time_us: int) -> None:
        """Leases were extended."""
        tokens = [token for token in effect.tokens if token in self.leases]
        for token in tokens:
            self.leases.extend(token, effect.until_us)
        self.workers.extended(dict.fromkeys(self.leases[token].worker for token in tokens), time_us)
        self.progress.update(effect.progress)

    def forget_worker(self, name: str) -> None:
        """Forget a worker, unless it holds records."""
        if name not in self.leases.by_worker:
            self.workers.pop(name, None)

    def set(self, settings: QueueSettings, time_us: int) -> None:
        """Other settings. When it begins to keep what is finished for a time, that counts from now for what is."""
        if settings.keep_finished_s is None:
            self.endings.entries.clear()
        elif self.settings.keep_finished_s is None:
            self.endings.note(time_us, self.endings.first, 1)
        self.settings = settings

    def _over(self, ranges: Iterable[tuple[int, int]], time_us: int) -> None:
        """Records (first offset, how many) ended for good."""
        if self.settings.keep_finished_s is not None:
            for first, count in ranges:
                self.endings.note(time_us, first, count)

    def finished(self, token: int, ranges: Iterable[tuple[int, int]], time_us: int) -> None:
        """Records of a lease are done."""
        lease = self.leases.get(token)
        if lease is None:
            return
        self._over(ranges or [(extent.offset, extent.count) for extent in lease.extents], time_us)
        if not (ranges or self._remembers(lease)):
            self.leases.finish(lease)
        else:
            for first, count in ranges or [(offset, count) for offset, count, _ in lease.runs()]:
                self._out(lease, first, count)
        self._settled(lease, ended=True)

    def returned(self, effect: fx.TasksReturned, time_us: int) -> None:
        """Records went from a lease to retrying, or were taken and came back."""
        if not effect.token:
            for first, count, attempt, ready_us in effect.runs:
                self.retrying.put(first, first + count, RetryingRecord(attempt, ready_us))
            return
        lease = self.leases.get(effect.token)
        if lease is None:
            return
        for first, count, attempt, ready_us in effect.runs:
            begin, end = max(first, self.gone_below), first + count
            if self._are_alike(lease):
                history = self._history(lease, begin, time_us, effect.reason)
                self.retrying.put(begin, end, RetryingRecord(attempt, ready_us, 0, history, effect.released))
                begin = end
            for offset in range(begin, end):
                if offset in self.cancelling:
                    self.cancelled.add(offset)
                    self._over([(offset, 1)], time_us)
                    continue
                history = self._history(lease, offset, time_us, effect.reason)
                key = lease.keys.get(offset, 0)
                self.retrying[offset] = RetryingRecord(attempt, ready_us, key, history, effect.released)
            self._out(lease, first, count)
        self._settled(lease, ended=effect.ended)

    def died(self, effect: fx.TasksDied, time_us: int) -> None:
        """Records went from a lease, or from retrying, to dead-lettered."""
        lease = self.leases.get(effect.token)
        for first, count, attempt in effect.runs:
            begin, end = max(first, self.gone_below), first + count
            if lease is not None and self._are_alike(lease):
                history = self._history(lease, begin, time_us, effect.reason)
                letter = DeadLetter(attempt, time_us, effect.reason, history)
                self.dead_letters.update(dict.fromkeys(range(begin, end), letter))
                begin = end
            for offset in range(begin, end):
                if effect.token and lease is None and offset >= self.frontier:
                    continue  # its lease was lost with a damaged batch: here it is untouched, and will be tried
                waited = self.retrying.pop(offset, None)
                if offset in self.cancelling:
                    self.cancelled.add(offset)
                    self._over([(offset, 1)], time_us)
                    continue
                if lease is not None:
                    history, key = self._history(lease, offset, time_us, effect.reason), lease.keys.get(offset, 0)
                else:
                    history, key = (waited.history, waited.key) if waited is not None else ([], 0)
                self.dead_letters[offset] = DeadLetter(attempt, time_us, effect.reason, history, key)
            if lease is not None:
                self._out(lease, first, count)
        if lease is not None:
            self._settled(lease, ended=effect.ended)

    def redriven(self, runs: Iterable[tuple[int, int, int]]) -> None:
        """Dead letters are retrying again; earlier failures stay in their history."""
        for first, count, ready_us in runs:
            for offset in range(first, first + count):
                dead = self.dead_letters.pop(offset, None)
                if dead is not None:
                    self.retrying[offset] = RetryingRecord(0, ready_us, dead.key, dead.history)

    def discarded(self, ranges: Sequence[tuple[int, int]], time_us: int) -> None:
        """Dead letters are discarded: done."""
        self._over(ranges, time_us)
        for first, count in ranges:
            for offset in range(first, first + count):
                self.dead_letters.pop(offset, None)

    def cancel(self, offsets: Iterable[int], time_us: int) -> None:
        """Stop records from being leased again; leased ones end with their lease."""
        for offset in offsets:
            if self.lease_of(offset) is not None:
                self.cancelling.add(offset)
            else:
                self._over([(offset, 1)], time_us)
                self.retrying.pop(offset, None)
                self.held.pop(offset, None)
                self.cancelled.add(offset)

    def forget_below(self, first: int, kept: Kept) -> None:
        """The log's first offset moved: forget removed records, except those on shelves."""
        self.endings.forget_below(first)
        if self.apart and min(self.apart) < first:
            self.apart = {offset for offset in self.apart if offset >= first or kept.seq(offset)}
        if self.cancelled and min(self.cancelled) < first:
            self.cancelled = {offset for offset in self.cancelled if offset >= first or kept.seq(offset)}

    def drop_below(self, first: int) -> None:
        """Records before `first` are none of the group's any more, whatever it had begun; leases of them are lost.

        Leases without an end are settled by their worker alone, which hears that the records are gone.
        """
        self.start, self.frontier = max(self.start, first), max(self.frontier, first)
        self.gone_below = max(self.gone_below, first)
        for lease in list(self.leases.values()):
            if lease.until_us < FOREVER_US:
                self.leases.take_out(lease, 0, first)
            lease.forget_below(first)
            self._settled(lease, ended=False)
        tables: tuple[dict[int, Any], ...] = (self.retrying, self.held, self.dead_letters, self.progress)
        for table in tables:
            for offset in [offset for offset in table if offset < first]:
                del table[offset]
        self.cancelling = {offset for offset in self.cancelling if offset >= first}

    def begin_at(self, offset: int) -> None:
        """The group goes on at `offset`. Records that are leased, retrying or dead-lettered stay so."""
        self.start = self.frontier = offset
        self.cursors.clear()
        self.held.clear()
        leased = (
            at
            for lease in self.leases.values()
            for first, count, _ in lease.runs()
            for at in range(first, first + count)
        )
        self.apart = {at for at in (*self.retrying, *self.dead_letters, *leased) if at >= offset}

    def delete(self, offset: int) -> None:
        """A record was deleted: it leaves its lease, which is lost if it has no others, and every table."""
        lease = self.lease_of(offset)
        if lease is not None:
            self._out(lease, offset, 1)
            self._settled(lease, ended=False)
        self.dead_letters.pop(offset, None)
        self.passed_over(offset)

    def passed_over(self, offset: int) -> None:
        """A record became void: no group leases it any more."""
        self.retrying.pop(offset, None)
        self.held.pop(offset, None)

    def _history(self, lease: Lease, offset: int, time_us: int, reason: str) -> list[Failure]:
        before = lease.history.get(offset, [])
        return [*before, (time_us, lease.worker, reason)][-HISTORY_MAX:] if reason else before

    def _out(self, lease: Lease, first: int, count: int) -> None:
        """Records leave their lease."""
        self.leases.take_out(lease, first, count)
        if self._remembers(lease):
            for offset in range(first, first + count):
                self.cancelling.discard(offset)
                self.progress.pop(offset, None)
                lease.history.pop(offset, None)
                lease.keys.pop(offset, None)

    def _remembers(self, lease: Lease) -> bool:
        """Whether single records of a lease have a key, history or progress."""
        return bool(self.progress) or not self._are_alike(lease)

    def _are_alike(self, lease: Lease) -> bool:
        """Whether all records of a lease fare alike when they leave it: none has a key, a history, or was cancelled."""
        return not (self.cancelling or lease.history or lease.keys)

    def _settled(self, lease: Lease, *, ended: bool) -> None:
        """Remove a lease that holds nothing any more."""
        if lease.left or lease.token not in self.leases:
            return
        self.leases.remove(lease)
        if ended:
            self.ended[lease.token] = None
            if len(self.ended) > ENDED_MAX:
                del self.ended[next(iter(self.ended))]

    # -- looking ------------------------------------------------------------------------------------

    def lease_of(self, offset: int) -> Lease | None:
        """The lease that holds a record."""
        return self.leases.holding(offset)

    def begun(self, offset: int, shelves: Shelves) -> bool:
        """Whether a record is leased or ended: done, dead-lettered or cancelled."""
        if offset in self.retrying or offset in self.held:
            return False
        if self.has(offset):
            return True
        if offset < self.start or offset in self.apart:
            return offset >= self.start
        if offset in shelves:
            cursor = self.cursors.get(shelves.level_of(offset), ShelfCursor())
            return cursor.passed(shelves.time_of(offset), offset)
        return offset < max(self.frontier, shelves.first)

    def has(self, offset: int) -> bool:
        """Whether a record is leased, retrying, dead-lettered or cancelled, wherever the group begins."""
        waits = offset in self.retrying or offset in self.dead_letters or offset in self.cancelled
        return waits or self.lease_of(offset) is not None

    def knows(self, worker: str) -> bool:
        """Whether it remembers a worker, or the worker holds records."""
        return worker in self.workers or worker in self.leases.by_worker

    def passes(self, offset: int) -> bool:
        """Whether an untouched record is no work: it was cancelled, or has a state of its own."""
        return offset in self.cancelled or offset in self.apart

    @property
    def in_flight(self) -> int:
        """How many records are leased."""
        return self.leases.records

    # -- snapshots ----------------------------------------------------------------------------------

    def dump(self) -> QueueBody:
        """Dump for a snapshot, in a fixed order."""
        return QueueBody(
            self.group, self.settings.named(), self.start, self.frontier, self.last_token, self.paused_until_us,
            self.last_us, sorted(self.cursors.items(), key=_first), [lease.dump() for lease in self.leases.values()],
            sorted(self.retrying.items(), key=_first), sorted(self.held.items()),
            sorted(self.dead_letters.items(), key=_first), sorted(self.cancelling), sorted(self.cancelled),
            list(self.ended), sorted(self.progress.items()), self.finals, self.endings.entries[:],
            sorted(self.apart), list(self.workers.values()), self.gone_below, self.full_us,
        )  # fmt: skip

    @classmethod
    def load(cls, body: QueueBody, first: int) -> Queue:
        """Restore from a snapshot of a log that begins at `first`."""
        queue = cls(body.group, parse(body.settings), body.start)
        queue.frontier, queue.last_token = body.frontier, body.last_token
        queue.paused_until_us, queue.last_us = body.paused_until_us, body.last_us
        queue.cursors = dict(body.cursors)
        for each in body.leases:
            queue.leases.add(Lease.load(each))
        for offset, record in body.retrying:
            queue.retrying[offset] = record
        queue.held, queue.dead_letters = dict(body.held), dict(sorted(body.dead_letters, key=_since_us))
        queue.cancelling, queue.cancelled = set(body.cancelling), set(body.cancelled)
        queue.ended = dict.fromkeys(body.ended)
        queue.apart = set(body.apart)
        queue.progress = dict(body.progress)
        queue.workers = WorkerTable.load(body.workers)
        queue.finals, queue.gone_below, queue.full_us = body.finals, body.gone_below, body.full_us
        queue.endings = Endings(body.endings, first)
        return queue


def _first(item: tuple[int, Any]) -> int:
    return item[0]


def _since_us(item: tuple[int, DeadLetter]) -> int:
    return item[1].time_us
