"""An overlay: uncommitted proposals to a history, and their waiters. Exists only while leading.

Idea: every change takes three steps. `propose` decides against `proposed` (the state as if all proposals were
committed) and queues; `flush` appends the queue in one write; `advance` has the history apply committed entries and
tells their waiters. Each partition and the catalogue have one, over different states.

Contract: the log has proposals in their order, except that commuting effects of one flush share one state batch at its
end. An append fails as a whole. A dropped overlay tells its waiters nothing, because it does not know whether its
proposals will commit. Memory: one proposal per uncommitted batch. Must not know what the effects mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from msgspec import Struct

from ....storage.batch import encode_state, with_effects
from ....storage.errors import BatchTooLarge, Error, Poisoned, StorageError
from ..tables import effects as fx
from ..tables.entry import Entry
from ..tables.producers import Place
from ..tables.queues.offsets import OPEN_END
from .history import State

if TYPE_CHECKING:
    from ....storage.batch import Batch
    from ....storage.log import LogWriter
    from ..ports import Payload
    from .history import History

TAIL_BYTES = 1 << 20
"""Limit of effects in one batch: results of tasks may be large, and a batch has a limit."""

BESIDE_BYTES = 64 << 10
"""Of a batch of records that takes effects beside it, which copies it: a batch of their own costs as much."""


TERM_SHIFT = 40
"""A token is the term of the log, shifted by so many bits, and a number that rises."""


class Waiter(Protocol):
    """The proposer of something, told at most once what became of it.

    One whose answer may not need the state has `answer_ahead`, too: as `committed`, before the batch is applied. It
    returns whether it answered, whatever became of the answer; if not, nothing has changed.
    """

    def committed(self, place: Place) -> None:
        """The proposal is committed at `place` (offset, seq, term and time hold)."""
        ...

    def failed(self, error: Error) -> None:
        """The proposal will never be committed."""
        ...


class Proposal(Struct, eq=False):
    """One batch that is to be appended."""

    batch: Payload
    entry: Entry
    waiters: list[Waiter] = []


def _state_batch(effects: Sequence[fx.AnyEffect]) -> Proposal:
    return Proposal(encode_state(fx.encode(effects)), Entry(Place(0, 0), effects=effects))


def _portions(effects: Sequence[fx.AnyEffect]) -> list[tuple[bytes, Sequence[fx.AnyEffect]]]:
    """Effects in order, encoded, cut in halves while they are too large together."""
    column = fx.encode(effects)
    if len(column) <= TAIL_BYTES or len(effects) == 1:
        return [(column, effects)]
    middle = len(effects) // 2
    return _portions(effects[:middle]) + _portions(effects[middle:])


class UncommittedTail:
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

    def proposals(self, end: int = OPEN_END) -> list[Proposal]:
        """Effects on records below `end`, as batches, usually one. Waiters wait for the last one."""
        effects = [effect for effect, above in self.effects.values() if above <= end]
        if not effects:
            return []
        found = [
            Proposal(encode_state(column), Entry(Place(0, 0), effects=some)) for column, some in _portions(effects)
        ]
        found[-1].waiters = [waiter for waiter, above in self.waiters if above <= end]
        return found

    def beside(self, proposal: Proposal, end: int, max_batch_bytes: int) -> Proposal | None:
        """All effects inside the only batch of records, which begins at `end`, if they concern only those records.

        Workers are notified before the producer.
        """
        entry = proposal.entry
        effects = [effect for effect, above in self.effects.values() if above > end]
        if not effects or len(effects) < len(self.effects) or entry.effects or not entry.place.count:
            return None
        if len(proposal.batch) > BESIDE_BYTES:
            return None
        batch = with_effects(proposal.batch, fx.encode(effects))
        if len(batch) > max_batch_bytes:
            return None
        waiters = [*(waiter for waiter, _ in self.waiters), *proposal.waiters]
        return Proposal(
            batch, Entry(entry.place, entry.producer_id, entry.epoch, effects, intake=entry.intake), waiters
        )

    def fail(self, error: Error, end: int = -1) -> None:
        """Fail the waiters of effects on records at or beyond `end`."""
        for waiter, above in self.waiters:
            if above > end:
                waiter.failed(error)


NO_EFFECTS = UncommittedTail()
"""Of a flush without any. Nothing is added to it."""

S = TypeVar("S", bound=State)


class Overlay(Generic[S]):
    """Proposals to one history. Calls `on_work` when there is something to flush."""

    def __init__(self, history: History[S], on_work: Callable[[Overlay[Any]], None]) -> None:
        self.history = history
        self.log: LogWriter = history.log
        self._on_work = on_work
        self._queue: list[Proposal] = []
        self.waiting: dict[int, list[Waiter]] = {}
        """For batches in flight, by seq."""
        self._queued_records = 0
        self.decided_end = 0  # behind the last queued records that effects beside them speak of; 0 without any
        self._tail = UncommittedTail()
        self.unshelved = self._count_unshelved()
        self._tokens = count(1)

    @cached_property
    def proposed(self) -> S:
        """The state as if everything that is proposed were committed: made when it is needed, and after a failure."""
        state = self.history.committed.copy()
        for entry in self._entries():
            state.apply(entry, entry.place.time_us or state.time_us)
            if entry.place.seq:
                state.batch_applied(entry.place)
        for effect, _ in self._tail.effects.values():
            state.effect(effect, state.time_us)
        return state

    @property
    def latest(self) -> S:
        """The same for one look, by a caller that proposes nothing meanwhile: no state is made for that."""
        is_ahead = "proposed" in self.__dict__ or self._queue or self.history.in_flight or self._tail.effects
        return self.proposed if is_ahead else self.history.committed

    def next_token(self) -> int:
        """A number that rises, and that no other leader of this log gives out."""
        return self.log.next_term << TERM_SHIFT | next(self._tokens)

    def propose_records(self, batch: Payload, entry: Entry, waiter: Waiter, before: fx.AnyEffect | None = None) -> None:
        """Queue a batch of records, with the effects of `entry` beside them: all will be in the log, or none.

        `before`: an effect that takes its place right before them, in a batch of its own.

        Raises BatchTooLarge.
        """
        if entry.effects:
            batch = with_effects(batch, fx.encode(entry.effects))
        limit = self.log.options.max_batch_bytes
        if len(batch) > limit:
            raise BatchTooLarge(
                f"the batch has {len(batch)} bytes, a batch of this log may have {limit}: send smaller ones"
            )
        if before is not None:
            self.propose_in_order(before)
        latest = self.latest
        if latest is not self.history.committed:  # else nothing is ahead of it that the next proposal would meet
            latest.apply(entry, latest.time_us)
        self._queue.append(Proposal(batch, entry, [waiter]))
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
        self._queue.append(Proposal(batch.buffer, Entry(Place(0, 0), kept=batch.offsets()), [waiter]))
        self._on_work(self)

    def propose_in_order(self, effect: fx.AnyEffect, waiter: Waiter | None = None) -> None:
        """Queue an effect that does not commute with records: it keeps its place between them."""
        latest, proposal = self.latest, _state_batch((effect,))
        if waiter is not None:
            proposal.waiters.append(waiter)
        if latest is not self.history.committed:
            latest.effect(effect, latest.time_us)
        self._queue.append(proposal)
        self._on_work(self)

    def propose(
        self, effect: fx.AnyEffect, waiter: Waiter | None = None, *, replaces: object = None, above: int = 0
    ) -> None:
        """Queue an effect that commutes with records. A later one with an equal `replaces` takes its place.

        `above`: it speaks of records below this offset, which may stand in the same flush, and fails with them.
        """
        proposed = self.proposed
        self._tail.add(effect, waiter, replaces if replaces is not None else object(), above)
        proposed.effect(effect, proposed.time_us)
        self._on_work(self)

    def propose_nothing(self) -> None:
        """Queue a state batch without effects: the log gets a new seq and means the same."""
        self._queue.append(_state_batch(()))
        self._on_work(self)

    def attach(self, place: Place, waiter: Waiter) -> None:
        """Let `waiter` wait for a batch that is proposed and not yet committed."""
        if place.seq:
            self.waiting.setdefault(place.seq, []).append(waiter)
            return
        for proposal in self._queue:
            if proposal.entry.place is place:
                proposal.waiters.append(waiter)
                return
        raise AssertionError(f"{place} is neither proposed nor in flight")

    def barrier(self, waiter: Waiter) -> None:
        """Let `waiter` wait for everything that is proposed so far; it is told at once when all of it is committed."""
        in_flight = self.history.in_flight
        if self._tail:
            self._tail.wait(waiter)
        elif self._queue:
            self._queue[-1].waiters.append(waiter)
        elif in_flight:
            self.attach(in_flight[-1].place, waiter)
        else:
            state = self.history.committed
            waiter.committed(Place(0, 0, state.end, state.seq, state.term, state.time_us))

    @property
    def commutes(self) -> bool:
        """Whether all that is queued means the same behind records that are not known yet."""
        return not any(each.entry.has_records or each.entry.effects for each in self._queue)

    def follow(self, entries: Sequence[Entry], size: int) -> None:
        """Another process appended these batches of `size` bytes: they stand before all that is queued."""
        history = self.history
        history.in_flight += entries
        history.since_snapshot_bytes += size
        if not self.commutes:
            self._drop_proposed()
        elif "proposed" in self.__dict__:
            for entry in entries:
                self.proposed.apply(entry, entry.place.time_us)
                self.proposed.batch_applied(entry.place)

    def flush(self, time_us: int) -> bool:
        """Append what is queued. Returns whether anything was appended; failures went to their waiters."""
        queue, tail = self._take()
        proposals = queue if tail is NO_EFFECTS else self._arranged(queue, tail)
        if not proposals:
            return False
        error = self._append(proposals, time_us)
        if error is None:
            return True
        # A full disk refuses records, but cursors may still fit: finishing work is what frees space.
        records = [each for each in queue if each.entry.has_records]
        others = [each for each in queue if each not in records] + tail.proposals(self.log.end_offset)
        retried = bool(records and others) and self._append(others, time_us) is None
        self._drop_proposed()
        for waiter in [waiter for each in (records if retried else queue) for waiter in each.waiters]:
            waiter.failed(error)
        tail.fail(error, self.log.end_offset if retried else -1)
        return retried

    def _arranged(self, queue: list[Proposal], tail: UncommittedTail) -> list[Proposal]:
        """The batches to append: a single one where leases of the only new records come with them."""
        if len(queue) == 1:
            log = self.log
            one = tail.beside(queue[0], log.end_offset, log.options.max_batch_bytes)
            if one is not None:
                return [one]
        return queue + tail.proposals()

    def answer_ahead(self) -> bool:
        """Have those answer who wait for batches that are committed and not applied yet, in their order, up to one that
        cannot: its answer needs the state. Returns whether any did; they hear nothing more.
        """
        answered, waiting, committed_seq = False, self.waiting, self.log.committed
        for entry in self.history.in_flight:
            place = entry.place
            if place.seq > committed_seq:
                break
            waiters = waiting.get(place.seq, ())
            while waiters and (ahead := getattr(waiters[0], "answer_ahead", None)) is not None and ahead(place):
                del waiters[0]
                answered = True
            if waiters:
                break
        return answered

    def advance(self) -> int:
        """Apply what is committed by now and tell its waiters. Returns how many batches that was."""
        applied, waiting = 0, self.waiting
        for entry in self.history.advance():
            self.unshelved -= entry.intake is not None
            applied += 1
            place = entry.place
            for waiter in waiting.pop(place.seq, ()):
                waiter.committed(place)
        if self.history.in_flight and self.log.poisoned is not None:
            self.abandon(Poisoned(f"{self.log.path}: a sync failed ({self.log.poisoned}); this was not committed"))
        return applied

    def end(self, error: Error) -> None:
        """The log is about to be closed: what is proposed by now and later fails."""
        self.abandon(error)
        self._on_work = lambda overlay: overlay.abandon(error)

    def abandon(self, error: Error) -> None:
        """Fail the waiters of all proposals: they will not be committed, or their outcome is unknown."""
        in_flight, self.waiting = self.waiting, {}
        self.history.in_flight.clear()
        queue, tail = self._take()
        self._drop_proposed()
        for waiters in [*in_flight.values(), *(each.waiters for each in queue)]:
            for waiter in waiters:
                waiter.failed(error)
        tail.fail(error)

    @property
    def idle(self) -> bool:
        """Whether nothing is queued and nothing is in flight."""
        return not (self.history.in_flight or self._queue or self._tail)

    def _take(self) -> tuple[list[Proposal], UncommittedTail]:
        queue, tail = self._queue, NO_EFFECTS
        self._queue, self._queued_records, self.decided_end = [], 0, 0
        if self._tail.effects:
            tail, self._tail = self._tail, UncommittedTail()
        return queue, tail

    def _append(self, proposals: list[Proposal], time_us: int) -> Error | None:
        log, history, waiting = self.log, self.history, self.waiting
        batches = (proposals[0].batch,) if len(proposals) == 1 else [each.batch for each in proposals]
        try:
            appended = log.append(batches, max(time_us, log.last_time_us))
        except StorageError as error:
            return error
        except OSError as error:
            return StorageError(f"{log.path} could not be written: {error}")
        term, time_us, in_flight = log.term, log.last_time_us, history.in_flight
        for proposal, (seq, offset, _) in zip(proposals, appended, strict=True):
            entry = proposal.entry
            place = entry.place
            place.offset, place.seq, place.term, place.time_us = offset, seq, term, time_us
            history.since_snapshot_bytes += len(proposal.batch)
            in_flight.append(entry)
            if proposal.waiters:
                waiting[seq] = proposal.waiters
        if "proposed" in self.__dict__:
            self.proposed.batch_applied(in_flight[-1].place)
        return None

    def _drop_proposed(self) -> None:
        """Discard the proposed state: it contains a proposal that will not be committed."""
        self.__dict__.pop("proposed", None)
        self.unshelved = self._count_unshelved()

    def _count_unshelved(self) -> int:
        """Batches that have a priority or a delay and are not committed yet."""
        return sum(entry.intake is not None for entry in self._entries())

    def _entries(self) -> list[Entry]:
        return [*self.history.in_flight, *(each.entry for each in self._queue)]
