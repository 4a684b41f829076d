"""The broker's side of durability: what its logs have written, which process syncs it, and what is durable.

Idea: each open log has a row on the board. After an append the broker says there what is written, and either
rings the keeper or, when it is idle and one file is dirty, syncs by itself, which is faster for a single
record. After a slow sync of its own it leaves that to the keeper until a sync there was fast. When the bell
rings back it reads what the keeper synced and says what is durable. Only the broker says `durable`; each
process writes words of its own.

Contract:
- Without a keeper (not yet started, or dead) every append is synced inline. A sync that the keeper began and
  never answered is answered by the broker's own descriptors, which were open before the bytes were written
  and therefore are told of every failed write-back: a later keeper's sync proves nothing about them.
- Before a new keeper gets a segment, everything in it is durable: its descriptors are never asked about older bytes.
- A poison word of the row's generation poisons the log here, at the latest when it is written next. Results of another
  generation are ignored.
- A row is given away only when the keeper has said that it forgot it.

Must not know: sockets of clients, topics, how the keeper works.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..storage.board import Level, Row, split, word
from ..storage.errors import Poisoned, StorageFull
from ..storage.histogram import Histogram
from ..storage.layout import log_number
from .diagnostics import say
from .errors import LimitReached
from .keeper import messages

if TYPE_CHECKING:
    from ..storage.board import Board
    from ..storage.log import LogWriter
    from ..storage.segment import SegmentRef
    from .keeper.jobs import KeeperJobs
    from .keeper.link import KeeperLink

BUSY_S = 60.0
"""A log that fills segments faster than this gets spares."""

MARK_S = 0.05
"""So long may the mark of an inline sync wait. Each dirties a page that the next sync has to write as well: with one
after every record, a third of the broker's turn and a sixth of its fdatasync. Recovery verifies what lies above it."""


SLOW_SYNC_S = 0.01
"""A tenth of the time between two heartbeats of a leader: a sync in the loop that takes longer holds up what followers
and clients wait for, and the way over the keeper is little beside it."""


class TrackedLog:
    """One open log on the board."""

    __slots__ = ("active", "inline_only", "lazy", "log", "number", "rolled_s", "rolls", "rolls_seen", "row")

    def __init__(self, log: LogWriter, number: int, row: Row, *, lazy: bool) -> None:
        self.log = log
        self.number = number
        self.row = row
        self.lazy = lazy  # commit="written": no request waits for its syncs
        self.inline_only = False  # the keeper could not open its files
        self.active: SegmentRef | None = None  # where batches go; None before the first append
        self.rolls = self.rolls_seen = 0
        self.rolled_s = float("-inf")

    @property
    def unsynced(self) -> bool:
        """Whether a sync has something to do, and may."""
        return self.log.durable < self.log.written and self.log.poisoned is None

    def publish(self) -> None:
        """Say on the board how far the log is."""
        log = self.log
        self.row.publish(log.generation, log.written, log.durable, log.first_offset)


class ReplicatedLog(TrackedLog):
    """A log of a member: readers see what a majority has."""

    __slots__ = ()

    def publish(self) -> None:
        """Say on the board how far the log is, and how far it is committed."""
        super().publish()
        self.row.quorum = word(self.log.generation, self.log.committed)


class Watermarks:
    """All open logs of one broker, by identity."""

    def __init__(
        self, board: Board, jobs: KeeperJobs, *, replicated: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`replicated`: the logs are those of a member of a cluster."""
        self.progress_s = 0.0  # when the keeper last had nothing to do or did something
        self._board = board
        self._jobs = jobs
        self._track = ReplicatedLog if replicated else TrackedLog
        self._level = Level.QUORUM if replicated else Level.DURABLE
        self._link: KeeperLink | None = None
        self._held: dict[LogWriter, TrackedLog] = {}
        self._by_number: dict[int, TrackedLog] = {}
        self._free = list(range(board.rows - 1, -1, -1))
        self._forgetting: set[int] = set()
        self._pending: dict[LogWriter, TrackedLog] = {}  # syncs that the keeper owes, and requests wait for
        self._pending_lazily: dict[LogWriter, TrackedLog] = {}  # syncs that it owes and no request waits for
        self._ring_due = False
        self._unmarked: dict[LogWriter, None] = {}  # synced here, and without a mark that says so
        self._marks_due_s = 0.0
        self._sync_us = Histogram()
        self._clock = clock
        self._is_slow = False  # the latest sync of the broker's own was, and none of the keeper's has been fast since
        self._asked_s = 0.0  # when the keeper came to owe syncs that requests wait for

    def stats(self) -> dict[str, Any]:
        """How long syncs took, microseconds: the broker's own, of one log each, and the keeper's rounds."""
        return {"sync.us": self._sync_us.values(), "keeper.round_us": self._board.rounds()}

    @property
    def board_name(self) -> str:
        """The name by which other processes find the board."""
        return self._board.name

    # -- logs -------------------------------------------------------------------------------------

    def hold(self, log: LogWriter, *, lazy: bool) -> int:
        """Give a log a row and its segments to the keeper. Returns the row. Raises LimitReached."""
        if not self._free:
            raise LimitReached(
                f"the board has {self._board.rows} rows, and each partition takes one: restart with more board_rows"
            )
        number = self._free.pop()
        row = self._board.row(number)
        log_id = log_number(log.log_id)
        row.assign(log_id, generation=log.generation, level=Level.WRITTEN if lazy else self._level)
        held = self._track(log, number, row, lazy=lazy)
        try:
            held.publish()
        except BaseException:
            row.release()
            self._free.append(number)
            raise
        self._held[log] = self._by_number[number] = held
        log.on_segment = lambda ref: self._on_segment(held, ref)
        log.on_first = lambda _: held.publish()
        if self._keeper_works:
            self._hand_over(held)
        return number

    def held(self, log: LogWriter) -> TrackedLog | None:
        """An open log with its row."""
        return self._held.get(log)

    def number_of(self, log: LogWriter) -> int:
        """The log's row; -1 when it has none."""
        held = self._held.get(log)
        return -1 if held is None else held.number

    @property
    def unopened(self) -> int:
        """How many logs have no files open for writing: the first append opens them."""
        return sum(not log.opened for log in self._held)

    def log_at(self, number: int) -> LogWriter | None:
        """The log that has a row."""
        held = self._by_number.get(number)
        return None if held is None else held.log

    def let_go(self, log: LogWriter) -> None:
        """The log is being closed: free its row as soon as the keeper has forgotten it."""
        held = self._held.pop(log, None)
        if held is None:
            return
        log.on_segment = log.on_first = None
        del self._by_number[held.number]
        self._pending.pop(log, None)
        self._pending_lazily.pop(log, None)
        self._unmarked.pop(log, None)
        held.row.release()
        if self._link is not None and not self._link.gone:
            self._forgetting.add(held.number)
            self._link.send([messages.Forget(held.number)])
        else:
            self._free.append(held.number)

    def forgotten(self, number: int) -> None:
        """The keeper will not touch this row again."""
        if number in self._forgetting:
            self._forgetting.discard(number)
            self._board.row(number).release()
            self._free.append(number)

    def refused(self, number: int, why: str) -> None:
        """The keeper cannot open this log's files: the broker syncs it. Nothing, if the log was deleted meanwhile."""
        held = self._by_number.get(number)
        if held is not None:
            say(f"the keeper cannot sync a partition, the broker does: {why}")
            held.inline_only = True
            self._sync_inline(held, even_lazy=True)

    def publish(self, logs: Iterable[LogWriter]) -> None:
        """More of these logs is committed: let readers see it."""
        for held in filter(None, map(self._held.get, logs)):
            held.publish()

    # -- after an append --------------------------------------------------------------------------

    def flushed(self, logs: Iterable[LogWriter], *, idle: bool, now_s: float, named: Sequence[str] = ()) -> bool:
        """Make sure that logs just appended to become durable. Returns whether the only one was synced here, or failed.

        `idle` says that nothing else waits to be done, so that a sync in the loop delays no request.
        `named`: ids of requests that wait for it, for the keeper's log.
        """
        dirty, link = list(filter(None, map(self._held.get, logs))), self._link
        works = link is not None and link.started and not link.gone  # as _keeper_works
        for held in dirty:
            if held.rolls != held.rolls_seen:
                self._rolled(held, now_s)
            if held.row.poison:
                self._take_poison(held)
        if works and idle and len(dirty) == 1 and not (self._pending or self._is_slow or dirty[0].lazy):
            self._sync_alone(dirty[0], now_s)
            return True
        ring = False
        for held in dirty:
            if held.inline_only or not works or held.log.poisoned is not None or held.log.failing:
                self._sync_inline(held, even_lazy=held.inline_only)
                continue
            self._take_synced(held)
            held.publish()
            if not held.unsynced:
                continue  # the keeper has seen it on the board before anything waited for it
            if held.log not in self._pending_lazily:
                self._expect(held, now_s)
            ring = ring or not held.lazy
        if ring and link is not None:
            if named:
                link.send([messages.Named(list(named[: messages.NAMED_MOST]))])
            link.ring()
            self._ring_due = False
        return False

    def _sync_alone(self, held: TrackedLog, now_s: float) -> None:
        """Sync for waiting requests, and leave the mark to `after_answers`."""
        self._sync_inline(held, mark=False)
        if not self._unmarked:
            self._marks_due_s = now_s + MARK_S
        self._unmarked[held.log] = None

    def after_answers(self, now_s: float) -> float:
        """Work that no request waits for: ring for lazy logs, write marks of inline syncs. Returns when more is due."""
        if self._ring_due and self._link is not None:
            self._link.ring()
        self._ring_due = False
        if self._unmarked and now_s >= self._marks_due_s:
            self._mark_synced()
        return self._marks_due_s if self._unmarked else math.inf

    def _mark_synced(self) -> None:
        while self._unmarked:
            log, _ = self._unmarked.popitem()
            if log.poisoned is None and log.durable == log.written:
                try:
                    log.mark_durable()
                except (StorageFull, OSError) as error:  # the bytes are synced, and the next mark says as much
                    say(f"the mark of {log.path} could not be written: {error}")

    def sync_now(self, log: LogWriter) -> None:
        """Make this log durable at once."""
        held = self._held.get(log)
        if held is not None:
            self._sync_inline(held, even_lazy=True)

    def settle(self, now_s: float) -> bool:
        """The bell rang: take over what the keeper synced. Returns whether anything moved."""
        moved = again = False
        owed = bool(self._pending)
        for log, held in [*self._pending.items(), *self._pending_lazily.items()]:
            before = log.durable
            moved = self._take_poison(held) or moved
            self._take_synced(held)
            if log.durable != before:
                moved = True
                held.publish()
            if held.unsynced:
                again = again or (held.lazy and log.durable != before)
            else:
                del (self._pending_lazily if held.lazy else self._pending)[log]
        if moved or not self.waiting:
            self.progress_s = now_s
        if owed and not self._pending and now_s - self._asked_s <= SLOW_SYNC_S:
            self._is_slow = False
        if again and self._link is not None:
            self._link.ring()
        return moved

    def _take_synced(self, held: TrackedLog) -> None:
        generation, seq = split(held.row.synced)
        if held.log.poisoned is None:
            held.log.settle(generation, seq)

    def _take_poison(self, held: TrackedLog) -> bool:
        """Poison the log if the keeper could not sync something of it. Returns whether that is new here."""
        log, poison = held.log, held.row.poison
        if not poison or log.poisoned is not None or split(poison)[0] != log.generation:
            return False
        log.poison("the keeper's sync failed")
        return True

    def stuck(self, now_s: float, timeout_s: float) -> bool:
        """Whether the keeper has owed something for so long that it must be replaced."""
        return now_s - self.progress_s > timeout_s and self.waiting and self._keeper_works

    @property
    def waiting(self) -> bool:
        """Whether the keeper owes us something."""
        return bool(self._pending or self._pending_lazily)

    # -- keepers ----------------------------------------------------------------------------------

    def keeper_started(self, link: KeeperLink) -> None:
        """A keeper watches the board: give it every open log."""
        self._link = link
        for held in self._held.values():
            held.inline_only = False
            self._hand_over(held)

    def keeper_lost(self) -> None:
        """The keeper is gone: answer what it left open, and do without one."""
        self._link = None
        for number in list(self._forgetting):
            self.forgotten(number)
        for held in list(self._pending.values()):
            self._sync_inline(held)
        self._pending.clear()
        self._pending_lazily.clear()

    def sync_all(self) -> None:
        """Make everything durable here and now. For the end, when there is no keeper any more."""
        for held in self._held.values():
            self._sync_inline(held, even_lazy=True)

    @property
    def _keeper_works(self) -> bool:
        return self._link is not None and self._link.started and not self._link.gone

    def _hand_over(self, held: TrackedLog) -> None:
        """Let the keeper sync this log from here on, after a sync of everything before.

        A poisoned log is given to no keeper: descriptors opened now would not see the failed sync.
        """
        self._sync_inline(held, even_lazy=True)
        if held.active is not None and held.log.poisoned is None:
            self._register(held, held.active)

    def _on_segment(self, held: TrackedLog, ref: SegmentRef) -> None:
        held.active = ref
        held.rolls += 1
        self._register(held, ref)
        held.publish()  # a cut has synced, and begun a generation that nothing may be appended to for long

    def _register(self, held: TrackedLog, ref: SegmentRef) -> None:
        if self._keeper_works and self._link is not None:
            log_id, directory = held.log.log_id, held.log.path
            self._link.send([messages.Register(held.number, log_id, directory, ref.base_seq, ref.generation)])

    def _rolled(self, held: TrackedLog, now_s: float) -> None:
        """The log went on to another segment; if that happens often, have a spare ready for the next time."""
        if now_s - held.rolled_s < BUSY_S:
            self._jobs.prepare_spare(held.number, held.log.path, held.log.options.segment_bytes)
        held.rolls_seen, held.rolled_s = held.rolls, now_s

    def _expect(self, held: TrackedLog, now_s: float) -> None:
        if not self.waiting:
            self.progress_s = now_s
        if not held.lazy:
            if not self._pending:
                self._asked_s = now_s
            self._pending[held.log] = held
        else:
            self._pending_lazily[held.log] = held
            self._ring_due = True

    def _sync_inline(self, held: TrackedLog, *, even_lazy: bool = False, mark: bool = True) -> None:
        """Sync with the broker's own descriptors and publish. A failure poisons the log and the row."""
        if held.unsynced and (even_lazy or not held.lazy):
            held.publish()  # if we die in the sync, this is what says that it may have failed
            begun_s = self._clock()
            try:
                held.log.sync(mark=mark)
            except (Poisoned, OSError) as error:
                self._sync_failed(held, error)
            took_s = self._clock() - begun_s
            self._sync_us.note(int(took_s * 1e6))
            self._is_slow = took_s > SLOW_SYNC_S
        if not held.unsynced:  # the keeper owes nothing of it: what comes next would wait for a bell that rang already
            self._pending.pop(held.log, None)
            self._pending_lazily.pop(held.log, None)
        held.publish()

    def _sync_failed(self, held: TrackedLog, error: Exception) -> None:
        held.log.poison(str(error))
        held.row.poison = word(held.log.generation, held.log.written)
        say(str(error))
