"""The state of a partition: the sum of its log. STATE.md describes the snapshot in words.

Idea: one class that batches and effects are applied to; a snapshot is its encoding. A partition keeps two: the
committed state, and the proposed one, which is ahead by the uncommitted proposals.

Contract: applying decides nothing and never fails on logged entries, so the same log gives the same state on every
node and in every version that knows its effects. No configuration, clock or randomness. Pure.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from xxhash import xxh3_64_intdigest

from ....storage.errors import Corrupt, NewerFormat
from . import effects as fx
from .barriers import BarrierBody, BarrierTable
from .decisions import TransactionState, TransactionTable
from .dedup import KeyTable, KeyTableBody
from .entry import Entry
from .groups import GroupState, GroupTable
from .producers import Place, ProducerState, ProducerTable
from .queues.kept import NOTHING_KEPT, Kept, KeptBody
from .queues.outbox import Outbox, OutboxEntry
from .queues.placing import placed
from .queues.queue import QueueBody
from .queues.shelf_bodies import NO_SHELVES, Read, ShelvesBody, content, dump, load, no_runs
from .queues.shelves import Shelves
from .queues.table import QueueTable
from .queues.unfinished import unfinished
from .queues.voids import Voids, VoidsBody
from .stages import Stage, Staged, StageTable
from .ties import NO_TIES, Ties, TiesBody
from .timetable import ScheduleBody, Timetable

VERSION = 1
Body = TypeVar("Body")


class SnapshotBody(Struct, array_like=True):
    """A partition's snapshot, as a msgpack array of these fields in this order."""

    version: int
    seq: int  # the last batch applied
    term: int
    first: int
    end: int
    time_us: int  # append time of the last batch applied
    configuration: dict[str, Any]  # of the Raft group; empty on a standalone node
    producers: list[ProducerState]
    groups: list[GroupState]
    transactions: list[TransactionState] = []  # only in partitions of `__txn`
    outbox: list[OutboxEntry] = []
    queues: list[QueueBody] = []
    keys: KeyTableBody = KeyTableBody()
    voids: VoidsBody = VoidsBody()
    outbox_last: int = 0  # the highest number that was given out
    kept: KeptBody = NOTHING_KEPT
    schedules: list[ScheduleBody] = []
    shelves: ShelvesBody = NO_SHELVES
    stages: list[Stage] = []
    barriers: list[BarrierBody] = []
    ties: TiesBody = NO_TIES


class PartitionState:
    """The state of a partition: its log up to `seq`."""

    def __init__(self) -> None:
        self.seq = 0
        self.term = 0
        self.first = 0
        self.end = 0
        self.time_us = 0
        self.end_term = -1  # of the last record that was applied; the log has it, so snapshots do not
        self.producers = ProducerTable()
        self.groups = GroupTable()
        self.keys = KeyTable()
        self.voids = Voids()
        self.schedules = Timetable()
        self.queues = QueueTable(self.voids)
        self.outbox = Outbox()
        self.kept = Kept()
        self.shelves = Shelves()
        self.stages = StageTable()
        self.transactions = TransactionTable()
        self.barriers = BarrierTable()
        self.ties = Ties()
        self.ahead = False  # of what is committed: then shelves and ties are another's

    def apply(self, entry: Entry, time_us: int) -> None:
        """Apply one batch. Raises UnknownEffect for an effect that does not belong into a partition."""
        place = entry.place
        if place.count:  # its producer is 0 when it has none and cannot be told from a resend
            self.end_term, producer_id = place.term, entry.producer_id
            if producer_id in self.stages.by_id:
                self.stages.published(producer_id, place.first_sequence, place.count)
            elif producer_id:
                self.producers.record(producer_id, entry.epoch, place, time_us)
        if entry.staged is not None:
            self._stage(entry.producer_id, place, entry.staged, time_us)
        if not self.ahead:  # which sees what is kept and shelved once that is committed
            if entry.kept is not None:
                self.kept.add(entry.kept, place.seq)
            if entry.intake is not None:
                self.shelves.add(placed(entry.intake, place.offset, place.time_us))
        for effect in entry.effects:
            self.effect(effect, time_us)

    def _stage(self, stage_id: int, place: Place, staged: Staged, time_us: int) -> None:
        """A batch that waits for its transaction; what is ahead does not know where it stands."""
        self.stages.staged(stage_id, place.first_sequence, staged, time_us)
        if not self.ahead:
            self.stages.placed(stage_id, place.seq)

    def effect(self, effect: fx.AnyEffect, time_us: int) -> None:
        """Apply one effect. Raises UnknownEffect for one that does not belong into a partition."""
        if not self.ties.open or self.ahead:
            self._apply(effect, time_us)
            return
        ties = self.ties.concerned(effect, self.queues)
        self._apply(effect, time_us)
        if ties:
            self.ties.applied(effect, ties, self)

    def _apply(self, effect: fx.AnyEffect, time_us: int) -> None:
        match effect:
            case fx.QueueEffect():
                self.queues.apply(effect, time_us)
                if isinstance(effect, fx.TasksDied):
                    self.outbox.died(effect, self.queues.by_name.get(effect.group), time_us)
            case fx.CursorMoved(group, offset):
                self.groups.moved(group, offset, time_us)
            case fx.CursorNoted(group, offset, note):
                self.groups.moved(group, offset, time_us, note)
            case fx.OwnerSet(group, member, epoch, start):
                self.groups.owned(group, member, epoch, start, time_us)
            case fx.FirstOffset(offset):
                self._begins(offset)
            case fx.Trimmed(offset):
                self.queues.drop_below(offset)
                self.outbox.drop_below(offset)
                self._begins(offset)
            case fx.RecordsDeleted(ranges):
                self.voids.delete(ranges)
                self.queues.delete(ranges)
            case fx.ProducerOpened(name, producer_id, epoch, owner):
                self.producers.opened(name, producer_id, epoch, time_us, owner)
            case fx.ProducerOwned(producer_id, epoch, owner):
                self.producers.owned(producer_id, epoch, owner, time_us)
            case fx.ProducersExpired(producer_ids):
                self.producers.expired(producer_ids)
            case fx.GroupDeleted(group):
                self.groups.deleted(group)
            case fx.KeysSeen():
                self.keys.seen(effect)
                self._void(effect.void)
            case fx.OutboxRouted():
                self.outbox.routed(effect)
            case fx.OutboxMoved(ranges):
                self.outbox.moved(ranges)
            case fx.ScheduleSet():
                self.schedules.set(effect)
            case fx.ScheduleDeleted(name):
                self.schedules.deleted(name)
            case fx.ScheduleFired():
                self.schedules.fired(effect)
            case fx.ScheduleCoalesced():
                self.schedules.coalesced(effect)
            case fx.BarrierSet() | fx.BarrierTold() | fx.BarrierFired() | fx.BarriersForgotten():
                self.barriers.apply(effect)
            case fx.MembersTied() | fx.MembersTold():
                if not self.ahead:
                    self.ties.apply(effect)
            case fx.StageOwned(stage, owner):
                self.stages.owned(stage, owner, time_us)
            case fx.StagesDropped(stages):
                self.stages.dropped(stages)
            case fx.TransactionDecided():
                self.transactions.decided(effect, time_us)
            case fx.TransactionFinished(name, epoch):
                self.transactions.finished(name, epoch)
            case fx.TransactionsForgotten(names):
                self.transactions.forgotten(names)
            case _:
                raise fx.UnknownEffect(f"effect {type(effect).__name__} stands in the log of a partition")

    def _begins(self, first: int) -> None:
        """The log begins later. What was carried forward and is finished meanwhile is forgotten now."""
        self.first = max(self.first, first)
        if not self.ahead:
            if self.kept:
                self.kept.retain(unfinished(self), self.first)
            self.shelves.drop_below(self.first, self.kept.offsets())
        gone = self.shelves.first  # the proposed state may still see removed records on the shelves
        self.voids.forget_below(gone)
        self.queues.forget_below(gone, self.kept)

    def batch_applied(self, place: Place) -> None:
        """The batch at `place` is applied completely."""
        self.seq, self.term, self.time_us = place.seq, place.term, place.time_us
        self.end = place.offset + place.count
        if self.queues.finals is not None:
            self.queues.finals.batch_applied(place.seq)
        if self.keys.due_us <= self.time_us:
            self.keys.expire(self.time_us)

    def lost(self, seqs: range) -> None:
        """The loss of these batches was accepted: what was staged in them is not there any more."""
        self.stages.lost(seqs)

    def _void(self, pairs: list[tuple[int, int]]) -> None:
        self.voids.add(pairs)
        for offset, _ in pairs:
            self.queues.passed_over(offset)

    def encode(self) -> bytes:
        """The body of a snapshot."""
        return self._encode(dump(self.shelves))

    def digest(self) -> int:
        """A number that is the same for all states that are equal, whichever parts of them stand in runs."""
        return xxh3_64_intdigest(self._encode(NO_SHELVES) + content(self.shelves))

    def _encode(self, shelves: ShelvesBody) -> bytes:
        body = self._body(shelves, self.kept.dump(), self.keys.dump(), self.voids.dump())
        body.barriers, body.ties = self.barriers.dump(), self.ties.dump()
        return msgspec.msgpack.encode(body)

    def _body(self, shelves: ShelvesBody, kept: KeptBody, keys: KeyTableBody, voids: VoidsBody) -> SnapshotBody:
        return SnapshotBody(
            VERSION, self.seq, self.term, self.first, self.end, self.time_us, {},
            self.producers.dump(), self.groups.dump(), outbox=self.outbox.dump(), queues=self.queues.dump(),
            keys=keys, voids=voids,
            outbox_last=self.outbox.last, kept=kept, schedules=self.schedules.dump(),
            shelves=shelves, stages=self.stages.dump(), transactions=self.transactions.dump(),
        )  # fmt: skip

    def copy(self) -> PartitionState:
        """A state that may get ahead of this one. Only this one changes shelves, ties and what is kept, and knows where
        staged batches stand."""
        body = msgspec.msgpack.encode(self._body(NO_SHELVES, NOTHING_KEPT, KeyTableBody(), VoidsBody()))
        state = self._of(msgspec.msgpack.decode(body, type=SnapshotBody), self.keys.copy(), self.voids.copy())
        state.shelves, state.kept, state.ties, state.ahead = self.shelves, self.kept, self.ties, True
        state.barriers = self.barriers.copy()
        state.stages = self.stages.unplaced()
        return state

    @classmethod
    def decode(cls, body: bytes, read: Read = no_runs) -> PartitionState:
        """The state of a snapshot's body, and of the runs that it names. Raises NewerFormat, Corrupt."""
        stored = decode_body(body, SnapshotBody, VERSION)
        state = cls._of(stored, KeyTable.load(stored.keys), Voids.load(stored.voids))
        state.shelves = load(stored.shelves, stored.first, state.kept.offsets(), read)
        return state

    @classmethod
    def _of(cls, stored: SnapshotBody, keys: KeyTable, voids: Voids) -> PartitionState:
        state = cls()
        state.seq, state.term, state.first = stored.seq, stored.term, stored.first
        state.end, state.time_us = stored.end, stored.time_us
        state.producers = ProducerTable.load(stored.producers)
        state.groups = GroupTable.load(stored.groups)
        state.keys, state.voids = keys, voids
        state.schedules = Timetable.load(stored.schedules)
        state.queues = QueueTable.load(stored.queues, state.voids, stored.first)
        state.outbox = Outbox.load(stored.outbox, stored.outbox_last)
        state.kept = Kept.load(stored.kept)
        state.stages = StageTable.load(stored.stages)
        state.transactions = TransactionTable.load(stored.transactions)
        state.barriers, state.ties = BarrierTable.load(stored.barriers), Ties.load(stored.ties)
        return state


def decode_body(body: bytes, type_: type[Body], version: int) -> Body:
    """A snapshot's body; its first field is the version. Raises NewerFormat, Corrupt."""
    try:
        found = msgspec.msgpack.decode(body, type=list[Any])[0]
        if found > version:
            raise NewerFormat(f"the snapshot has version {found}, this penstock reads {version}; upgrade it")
        return msgspec.msgpack.decode(body, type=type_)
    except (msgspec.MsgspecError, TypeError, IndexError) as error:
        raise Corrupt(f"the body of a snapshot cannot be read: {error}") from error
