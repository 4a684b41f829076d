"""A ledger: one log, the state it adds up to, and what has been proposed to it.

Idea: whatever changes goes through three steps. `propose` decides against `proposed` (the state as if all
proposals were committed) and queues; `flush` appends the queue in one write; `advance` applies to `committed` what
is committed, and tells the waiters. A partition and the catalogue are both ledgers over different states.

Contract: the order in the log is the order of proposals, except that commuting effects of one flush share one
state batch at its end. When an append fails, everything in it fails together and `proposed` is rebuilt from what
stands. Memory: one entry per uncommitted batch. Must not know what the effects mean.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import numpy as np
from msgspec import Struct

from ....storage.batch import Batch, Kind, encode_state, with_effects
from ....storage.errors import Error, Poisoned, StorageError
from ..tables import effects as fx
from ..tables.producers import Place
from ..tables.queues.placing import Intake, intake_of
from ..tables.queues.shelf_bodies import Read
from ..tables.stages import Staged

if TYPE_CHECKING:
    from ....storage.log import LogWriter
    from ..ports import Payload

OPEN_END = 1 << 63
"""An offset beyond all others."""


class State(Protocol):
    """What a ledger's log adds up to."""

    seq: int
    term: int
    time_us: int
    end: int

    def records(self, producer_id: int, epoch: int, place: Place, time_us: int) -> None: ...
    def stage(self, stage_id: int, place: Place, staged: Staged, time_us: int) -> None: ...
    def effect(self, effect: fx.AnyEffect, time_us: int) -> None: ...
    def keep(self, offsets: np.ndarray, seq: int) -> None: ...
    def shelve(self, intake: Intake, place: Place) -> None: ...
    def batch_applied(self, place: Place) -> None: ...
    def lost(self, seqs: range) -> None: ...
    def copy(self) -> Self: ...
    def encode(self) -> bytes: ...
    @classmethod
    def decode(cls, body: bytes, read: Read = ...) -> Self: ...


class Waiter(Protocol):
    """Whoever proposed something, told exactly once what became of it."""

    def committed(self, place: Place) -> None:
        """It is committed, at `place` (offset, seq, term and time hold)."""
        ...

    def failed(self, error: Error) -> None:
        """It never will be."""
        ...


class Entry(Struct, gc=False, eq=False):
    """One batch between proposal and commit. Nobody it leads to leads back to it."""

    batch: Payload
    place: Place
    producer_id: int = 0
    epoch: int = 0
    effects: Sequence[fx.AnyEffect] = ()
    waiters: list[Waiter] = []
    kept: np.ndarray | None = None  # offsets of records that it carries forward
    intake: Intake | None = None  # what its records say about priorities and delays
    staged: Staged | None = None  # its records wait for a transaction, and take no offsets

    @property
    def has_records(self) -> bool:
        """Whether it is for more than effects."""
        return bool(self.place.count) or self.kept is not None or self.staged is not None

    def apply(self, state: State, time_us: int) -> None:
        """Apply to a state."""
        if self.place.count:
            state.records(self.producer_id, self.epoch, self.place, time_us)
        if self.staged is not None:
            state.stage(self.producer_id, self.place, self.staged, time_us)
        if self.kept is not None:
            state.keep(self.kept, self.place.seq)
        if self.intake is not None:
            state.shelve(self.intake, self.place)
        for effect in self.effects:
            state.effect(effect, time_us)


def entry_of(batch: Batch) -> Entry:
    """The entry that a batch in the log stands for.

    Raises UnknownEffect for a kind this version does not know, BadChecksum or InvalidBatch for damaged effects.
    """
    if batch.kind not in Kind._value2member_map_:
        raise fx.UnknownEffect(
            f"batch {batch.seq} has kind {batch.kind}, unknown to this version of penstock; upgrade it"
        )
    count = batch.record_count if batch.kind == Kind.RECORDS else 0  # others have theirs already, or none yet
    place = Place(batch.first_sequence, count, batch.base_offset, batch.seq, batch.term, batch.append_time_us)
    if batch.kind == Kind.KEPT:
        batch.check()
        return Entry(b"", place, kept=batch.offsets())
    if batch.kind == Kind.STAGED:
        return Entry(b"", place, batch.producer_id, staged=Staged(batch.record_count, batch.batch_bytes))
    effects: Sequence[fx.AnyEffect] = ()
    if batch.kind == Kind.STATE or batch.column_count > 1:
        column = batch.effects()
        if column is not None:
            batch.check_effects()  # who reads a log verifies headers; damage to records costs no more than them
            effects = fx.decode(column)
    intake = intake_of(batch) if batch.kind == Kind.RECORDS else None
    if intake is not None:
        batch.check()
    return Entry(b"", place, batch.producer_id, batch.producer_epoch, effects, intake=intake)


TAIL_BYTES = 1 << 20
"""Of effects in one batch: results of tasks may be large, and a batch has a limit."""


BESIDE_BYTES = 64 << 10
"""Of a batch of records that takes effects beside it, which copies it: a batch of their own costs as much."""


def _portions(effects: Sequence[fx.AnyEffect]) -> Iterator[tuple[bytes, Sequence[fx.AnyEffect]]]:
    """Effects in order, encoded, cut in halves while they are too large together."""
    column = fx.encode(effects)
    if len(column) <= TAIL_BYTES or len(effects) == 1:
        yield column, effects
        return
    middle = len(effects) // 2
    yield from _portions(effects[:middle])
    yield from _portions(effects[middle:])


class Tail:
    """The effects of one flush that commute with records: a batch behind all others."""

    __slots__ = ("effects", "waiters")

    def __init__(self) -> None:
        self.effects: dict[object, tuple[fx.AnyEffect, int]] = {}
        self.waiters: list[tuple[Waiter, int]] = []

    def __bool__(self) -> bool:
        return bool(self.effects)

    def add(self, effect: fx.AnyEffect, waiter: Waiter | None, key: object, above: int) -> None:
        """One more, instead of one with an equal key."""
        self.effects.pop(key, None)
        self.effects[key] = (effect, above)
        if waiter is not None:
            self.waiters.append((waiter, above))

    def wait(self, waiter: Waiter) -> None:
        """Let one more wait, for what is the least likely to fail."""
        self.waiters.append((waiter, min(above for _, above in self.effects.values())))

    def entries(self, end: int = OPEN_END) -> list[Entry]:
        """What speaks of no record at or beyond `end`, as batches, mostly one; who waits, waits for the last one."""
        effects = [effect for effect, above in self.effects.values() if above <= end]
        if not effects:
            return []
        entries = [Entry(encode_state(column), Place(0, 0), effects=some) for column, some in _portions(effects)]
        entries[-1].waiters = [waiter for waiter, above in self.waiters if above <= end]
        return entries

    def beside(self, entry: Entry, end: int, max_batch_bytes: int) -> Entry | None:
        """All as part of the one entry that has records, which begin at `end`, if they speak of nothing but those.

        Who waits for work is told before who brought it.
        """
        effects = [effect for effect, above in self.effects.values() if above > end]
        if not effects or len(effects) < len(self.effects) or entry.effects or not entry.place.count:
            return None
        if len(entry.batch) > BESIDE_BYTES:
            return None
        batch = with_effects(entry.batch, fx.encode(effects))
        if len(batch) > max_batch_bytes:
            return None
        waiters = [*(waiter for waiter, _ in self.waiters), *entry.waiters]
        return Entry(batch, entry.place, entry.producer_id, entry.epoch, effects, waiters, intake=entry.intake)

    def fail(self, error: Error, end: int = -1) -> None:
        """Tell those who wait for what speaks of records at or beyond `end`."""
        for waiter, above in self.waiters:
            if above > end:
                waiter.failed(error)


S = TypeVar("S", bound=State)


class Ledger(Generic[S]):
    """One log and its state. `on_work` is told when there is something to flush."""

    def __init__(self, log: LogWriter, committed: S, on_work: Callable[[Ledger[Any]], None]) -> None:
        """Over a log whose committed batches are all in `committed` (see replay.py)."""
        self.log = log
        self.committed = committed
        self.proposed: S = committed.copy()
        self.in_flight: deque[Entry] = deque()
        self.unshelved = 0  # batches that have a priority or a delay and are not committed yet
        self.damaged = False  # something that was durable cannot be read: effects may be missing
        self.snapshot_seq = committed.seq  # of the last one taken or loaded
        self.since_snapshot_bytes = 0
        self._on_work = on_work
        self._queue: list[Entry] = []
        self._queued_records = 0
        self.decided_end = 0  # behind the last queued records that effects beside them speak of; 0 without any
        self._tail = Tail()

    def resume(self, waiting: list[Entry], snapshot_seq: int, replayed_bytes: int) -> None:
        """After a replay: batches in the log that are not yet committed, and what the state was made from."""
        self.in_flight.extend(waiting)
        self.snapshot_seq = snapshot_seq
        self.since_snapshot_bytes = replayed_bytes
        self._rebuild()

    def check_writable(self) -> None:
        """Raise Poisoned when nothing will ever be committed again."""
        reason = self.log.poisoned
        if reason is not None:
            raise Poisoned(f"{self.log.path} takes no more writes since a sync failed ({reason}); reads go on")

    def propose_records(self, entry: Entry) -> None:
        """Queue a records batch, with the effects beside it."""
        entry.apply(self.proposed, self.proposed.time_us)
        self._queue.append(entry)
        self._queued_records += entry.place.count
        if entry.effects:
            self.decided_end = self.predicted_end
        self.unshelved += entry.intake is not None
        self._on_work(self)

    @property
    def predicted_end(self) -> int:
        """The offset that the next record proposed will have: what fails takes everything behind it along."""
        return self.log.end_offset + self._queued_records

    def propose_kept(self, batch: Batch, waiter: Waiter) -> None:
        """Queue records that are carried forward, in a batch of kind KEPT."""
        self._queue.append(Entry(batch.buffer, Place(0, 0), waiters=[waiter], kept=batch.offsets()))
        self._on_work(self)

    def propose_in_order(self, effect: fx.AnyEffect, waiter: Waiter | None = None) -> None:
        """Queue an effect that does not commute with records: it keeps its place between them."""
        entry = Entry(encode_state(fx.encode([effect])), Place(0, 0), effects=(effect,))
        if waiter is not None:
            entry.waiters.append(waiter)
        self.proposed.effect(effect, self.proposed.time_us)
        self._queue.append(entry)
        self._on_work(self)

    def propose(
        self, effect: fx.AnyEffect, waiter: Waiter | None = None, *, replaces: object = None, above: int = 0
    ) -> None:
        """Queue an effect that commutes with records. A later one with an equal `replaces` takes its place.

        `above`: it speaks of records below this offset, which may stand in the same flush, and fails with them.
        """
        self._tail.add(effect, waiter, replaces if replaces is not None else object(), above)
        self.proposed.effect(effect, self.proposed.time_us)
        self._on_work(self)

    def propose_nothing(self) -> None:
        """Queue a state batch without effects: the log gets a new seq and means the same."""
        self._queue.append(Entry(encode_state(fx.encode([])), Place(0, 0)))
        self._on_work(self)

    def attach(self, place: Place, waiter: Waiter) -> None:
        """Let `waiter` wait for a batch that is proposed and not yet committed."""
        for entry in self._uncommitted():
            if entry.place is place:
                entry.waiters.append(waiter)
                return
        raise AssertionError(f"{place} is neither proposed nor in flight")

    def barrier(self, waiter: Waiter) -> None:
        """Let `waiter` wait for everything that is proposed so far; it is told at once when all of it is committed."""
        if self._tail:
            self._tail.wait(waiter)
        elif self._queue or self.in_flight:
            (self._queue or self.in_flight)[-1].waiters.append(waiter)
        else:
            state = self.committed
            waiter.committed(Place(0, 0, state.end, state.seq, state.term, state.time_us))

    def flush(self, time_us: int) -> bool:
        """Append what is queued. Returns whether anything was appended; failures went to their waiters."""
        queue, tail = self._take()
        entries = self._arranged(queue, tail)
        if not entries:
            return False
        error = self._append(entries, time_us)
        if error is None:
            return True
        # A full disk refuses records, but cursors may still fit: finishing work is what frees space.
        records = [entry for entry in queue if entry.has_records]
        others = [entry for entry in queue if entry not in records] + tail.entries(self.log.end_offset)
        retried = bool(records and others) and self._append(others, time_us) is None
        self._rebuild()
        for waiter in [waiter for entry in (records if retried else queue) for waiter in entry.waiters]:
            waiter.failed(error)
        tail.fail(error, self.log.end_offset if retried else -1)
        return retried

    def _arranged(self, queue: list[Entry], tail: Tail) -> list[Entry]:
        """What is to be appended: one batch where leases of the only records are all there is beside those."""
        if tail and len(queue) == 1:
            log = self.log
            one = tail.beside(queue[0], log.end_offset, log.options.max_batch_bytes)
            if one is not None:
                return [one]
        return queue + tail.entries()

    def advance(self) -> int:
        """Apply what is committed by now and tell its waiters. Returns how many batches that was."""
        in_flight, state, committed_seq = self.in_flight, self.committed, self.log.committed
        count = 0
        while in_flight and in_flight[0].place.seq <= committed_seq:
            entry = in_flight.popleft()
            place = entry.place
            entry.apply(state, place.time_us)
            state.batch_applied(place)
            self.unshelved -= entry.intake is not None
            count += 1
            for waiter in entry.waiters:
                waiter.committed(place)
        if in_flight and self.log.poisoned is not None:
            self.abandon(Poisoned(f"{self.log.path}: a sync failed ({self.log.poisoned}); this was not committed"))
        return count

    def end(self, error: Error) -> None:
        """The log is about to be closed: what is proposed by now and later fails."""
        self.abandon(error)
        self._on_work = lambda ledger: ledger.abandon(error)

    def abandon(self, error: Error) -> None:
        """What is proposed or in flight will not be committed, or nobody will know: tell its waiters."""
        entries = list(self._uncommitted())
        self.in_flight.clear()
        _, tail = self._take()
        self._rebuild()
        for waiter in [waiter for entry in entries for waiter in entry.waiters]:
            waiter.failed(error)
        tail.fail(error)

    def snapshot(self) -> tuple[int, int, bytes]:
        """Seq, term and body of a snapshot of what is committed."""
        self.snapshot_seq, self.since_snapshot_bytes = self.committed.seq, 0
        return self.committed.seq, self.committed.term, self.committed.encode()

    @property
    def idle(self) -> bool:
        """Nothing is queued and nothing is in flight."""
        return not (self.in_flight or self._queue or self._tail)

    def _take(self) -> tuple[list[Entry], Tail]:
        taken = self._queue, self._tail
        self._queue, self._tail, self._queued_records, self.decided_end = [], Tail(), 0, 0
        return taken

    def _append(self, entries: list[Entry], time_us: int) -> Error | None:
        log = self.log
        try:
            appended = log.append([entry.batch for entry in entries], max(time_us, log.last_time_us))
        except StorageError as error:
            return error
        except OSError as error:
            return StorageError(f"{log.path} could not be written: {error}")
        term, time_us = log.term, log.last_time_us
        for entry, (seq, offset, _) in zip(entries, appended, strict=True):
            place = entry.place
            place.offset, place.seq, place.term, place.time_us = offset, seq, term, time_us
            self.since_snapshot_bytes += len(entry.batch)
            entry.batch = b""
        self.in_flight.extend(entries)
        self.proposed.batch_applied(entries[-1].place)
        return None

    def _uncommitted(self) -> Iterator[Entry]:
        yield from self.in_flight
        yield from self._queue

    def _rebuild(self) -> None:
        self.proposed = self.committed.copy()
        self.unshelved = sum(entry.intake is not None for entry in self._uncommitted())
        for entry in self._uncommitted():
            entry.apply(self.proposed, entry.place.time_us)
            if entry.place.seq:
                self.proposed.batch_applied(entry.place)
