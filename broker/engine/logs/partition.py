"""A partition: a log with the rules of producing, groups and positions.

Idea: every question a message asks of one partition is a method here. Changes are proposed to its overlay; reads stay
below `end`, the committed end.

Contract: a method that raises, raises an error of the tree and has changed nothing. Returned offsets are committed.
Must not know peers, messages or sessions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....storage.batch import Kind, encode, of_kind, parse, with_effects
from ....storage.errors import AcceptedLoss, BatchTooLarge, Corrupt, Diverged, Error, InvalidBatch, OutOfBounds
from ...errors import Fenced, InvalidRequest, LimitReached, Unavailable
from ..tables import effects as fx
from ..tables.dedup import Keys, judge
from ..tables.entry import Entry
from ..tables.groups import GroupState
from ..tables.producers import Place
from ..tables.queues.placing import intake_of
from ..tables.stages import Staged
from ..tables.state import PartitionState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ....storage.batch import Batch
    from ....storage.log import LogWriter
    from ....storage.reader import Cursor, LogReader
    from ..ports import Payload
    from ..tables.settings import TopicSettings
    from ..tables.timetable import ScheduleBody
    from .finals import Finals
    from .history import History
    from .overlay import Overlay, Waiter

EARLIEST, LATEST = -1, -2
"""As in transport/messages.py."""


def check_time(what: str, time_us: int) -> None:
    """Raise InvalidRequest unless `find` knows what `time_us` means; `what` names the field."""
    if time_us < LATEST:
        raise InvalidRequest(f"{what} {time_us} is neither a time nor {EARLIEST} (earliest) nor {LATEST} (latest)")


class Partition:
    """One partition of one topic."""

    def __init__(
        self, topic: str, number: int, settings: TopicSettings, history: History[PartitionState], finals: Finals
    ) -> None:
        self.topic = topic
        self.number = number
        self.settings = settings
        self.overlay: Overlay[PartitionState]  # of the office: see `lead`
        self.history = history
        self.finals = finals
        self.log: LogWriter = history.log
        self._reader: LogReader | None = None
        self._told_first = self.first
        if self._told_first:
            self.log.set_first(self._told_first)
        self.damaged = self.history.damaged or bool(self.log.damage)  # something of it cannot be read

    def __repr__(self) -> str:
        return f"partition {self.number} of topic {self.topic}"

    def lead(self, overlay: Overlay[PartitionState]) -> None:
        """An office has opened, which proposes to `overlay` from now on."""
        self.overlay = overlay

    # -- what stands ------------------------------------------------------------------------------

    @property
    def reader(self) -> LogReader:
        """Opened when first asked for: most partitions of a large node are idle."""
        if self._reader is None:
            self._reader = self.log.reader()
        return self._reader

    def close(self, *, clean: bool) -> None:
        """Close the log and what reads it."""
        if clean:
            self.finals.settle(self.seq)
        if self._reader is not None:
            self._reader.close()
        self.log.close(clean)

    @property
    def first(self) -> int:
        """The first offset that can be read."""
        return self.history.committed.first

    @property
    def end(self) -> int:
        """The first offset that is not committed."""
        return self.history.committed.end

    @property
    def end_term(self) -> int:
        """The term of the record before `end`; 0 without one."""
        applied = self.committed
        if applied.end_term < 0:  # no record came since a snapshot was loaded
            applied.end_term = self.term_at(applied.end)
        return applied.end_term if applied.end > applied.first else 0

    @property
    def seq(self) -> int:
        """The last batch that is committed: no reader passes it."""
        return self.history.committed.seq

    @property
    def state(self) -> str:
        """For people: ok, poisoned or damaged."""
        if self.log.poisoned is not None:
            return "poisoned"
        damaged = self.damaged or (self._reader is not None and self._reader.met_damage)
        return "damaged" if damaged else "ok"

    def group(self, name: str) -> GroupState:
        """What is committed of a group."""
        return self.committed.groups.get(name)

    # -- its state, and what is proposed to it ------------------------------------------------------

    @property
    def committed(self) -> PartitionState:
        """What its log adds up to, as far as it is committed."""
        return self.history.committed

    @property
    def proposed(self) -> PartitionState:
        """The same as if everything that is proposed were committed."""
        return self.overlay.proposed

    @property
    def latest(self) -> PartitionState:
        """The same for one look, by a caller that proposes nothing meanwhile; see Overlay.latest."""
        return self.overlay.latest

    @property
    def state_damaged(self) -> bool:
        """Whether something that was durable cannot be read, so that effects may be missing."""
        return self.history.damaged

    @property
    def idle(self) -> bool:
        """Whether everything that was proposed is committed, or failed."""
        return self.overlay.idle

    @property
    def predicted_end(self) -> int:
        """The offset that the next record proposed will have."""
        return self.overlay.predicted_end

    @property
    def decided_end(self) -> int:
        """Behind the last queued records that effects beside them speak of; 0 without any."""
        return self.overlay.decided_end

    @property
    def unshelved(self) -> int:
        """How many batches have a priority or a delay and are not committed yet."""
        return self.overlay.unshelved

    def next_token(self) -> int:
        """A unique number; see Overlay.next_token."""
        return self.overlay.next_token()

    def check_writable(self) -> None:
        """Raise Poisoned when nothing will ever be committed again."""
        self.overlay.check_writable()

    def propose(
        self, effect: fx.AnyEffect, waiter: Waiter | None = None, *, replaces: object = None, above: int = 0
    ) -> None:
        """Propose an effect that commutes with records; see Overlay.propose."""
        self.overlay.propose(effect, waiter, replaces=replaces, above=above)

    def propose_in_order(self, effect: fx.AnyEffect, waiter: Waiter | None = None) -> None:
        """Propose an effect that keeps its place between records."""
        self.overlay.propose_in_order(effect, waiter)

    def propose_records(self, batch: Payload, entry: Entry, waiter: Waiter) -> None:
        """Propose a batch of records, which says what `entry` does."""
        self.overlay.propose_records(batch, entry, waiter)

    def propose_kept(self, batch: Batch, waiter: Waiter) -> None:
        """Propose records that are carried forward."""
        self.overlay.propose_kept(batch, waiter)

    def propose_nothing(self) -> None:
        """Propose an empty state batch: the log gets a new seq and means the same."""
        self.overlay.propose_nothing()

    def barrier(self, waiter: Waiter) -> None:
        """Tell `waiter` once everything that is proposed so far is committed."""
        self.overlay.barrier(waiter)

    # -- producing --------------------------------------------------------------------------------

    def produce(self, batch: Batch, waiter: Waiter, keys: Keys | None = None) -> None:
        """Propose a batch that is already validated. A duplicate waits for its original.

        Raises Poisoned, BatchTooLarge, InvalidBatch, SequenceGap, UnknownProducer, Fenced; with `keys`: LimitReached,
        Unavailable.
        """
        self.check_writable()
        self._check_size(batch.batch_bytes)
        producer_id, epoch, first = batch.producer_id, batch.producer_epoch, batch.first_sequence
        place = None
        proposed = self.proposed
        if producer_id in proposed.stages:
            raise InvalidBatch(
                f"producer {producer_id:x} is a stage of {self!r}: send records under an id of their own, "
                "or staged ones until the stage is published"
            )
        if producer_id:
            place = proposed.producers.judge(producer_id, epoch, first, batch.record_count)
        if place is not None:
            self._duplicate(place, first, waiter)
            return
        place = Place(first, batch.record_count)
        entry, buffer = Entry(place, producer_id, epoch, intake=intake_of(batch)), batch.buffer
        if keys is not None:
            buffer = self._beside(buffer, entry, self._judge_keys(keys))
        self.propose_records(buffer, entry, waiter)

    def stage(self, batch: Batch, waiter: Waiter, limit: int, sealed: Collection[int]) -> None:
        """Propose a validated batch that waits for its transaction. One that was staged before waits for its original.

        Raises Poisoned, BatchTooLarge, InvalidBatch, SequenceGap, UnknownProducer, Fenced, Unavailable; LimitReached
        when there are `limit` stages.
        """
        stage_id = batch.producer_id
        self.check_writable()
        self._check_size(batch.batch_bytes)
        self._check_stage(batch, sealed)
        stages = self.proposed.stages
        if not stages.judge(stage_id, batch.first_sequence, batch.record_count):
            self.barrier(waiter)
            return
        if stage_id not in stages and len(stages) >= limit:
            raise LimitReached(
                f"{self!r} has {limit} stages, which is the limit: commit or drop some, let them expire, raise "
                "max_stages, or spread them over more partitions"
            )
        place, staged = Place(batch.first_sequence, 0), Staged(batch.record_count, batch.batch_bytes)
        self.propose_records(batch.buffer, Entry(place, stage_id, staged=staged), waiter)

    def _check_stage(self, batch: Batch, sealed: Collection[int]) -> None:
        stage_id = batch.producer_id
        if not stage_id or batch.producer_epoch:
            raise InvalidBatch(
                f"staged records need an id of their own, not 0, and epoch 0, not {batch.producer_epoch}: "
                "choose a random one for each stage"
            )
        if stage_id in self.proposed.producers.by_id:
            raise InvalidBatch(f"producer {stage_id:x} sends records to {self!r}: stage under an id of its own")
        if stage_id in sealed:
            raise Fenced(f"stage {stage_id:x} of {self!r} is being committed: nothing can be added to it")
        if self.state_damaged:
            raise Unavailable(f"{self!r} is damaged and may have lost staged records: repair it first")

    def drop_stages(self, stage_ids: Iterable[int], waiter: Waiter, sealed: Collection[int]) -> None:
        """Propose to forget those stages that are there and no transaction has. Raises Poisoned."""
        self.check_writable()
        stages = self.proposed.stages
        dropped = [each for each in dict.fromkeys(stage_ids) if each in stages and each not in sealed]
        if dropped:
            self.propose_in_order(fx.StagesDropped(dropped), waiter)
        else:
            self.barrier(waiter)

    def publish(self, batch: Batch, waiter: Waiter) -> None:
        """Propose the records of a stage's next batch as ordinary ones. Raises Poisoned, BatchTooLarge."""
        self.check_writable()
        self._check_size(batch.batch_bytes)
        place = Place(batch.first_sequence, batch.record_count)
        records = of_kind(batch.buffer, Kind.RECORDS)
        self.propose_records(records, Entry(place, batch.producer_id, intake=intake_of(batch)), waiter)

    def fire(self, schedule: ScheduleBody, time_us: int, next_us: int, waiter: Waiter) -> None:
        """Propose the record of a schedule that is due. Its event time is when it was due. Raises Poisoned."""
        self.check_writable()
        batch = encode(
            [schedule.value],
            keys=[schedule.key],
            headers=[schedule.headers] if schedule.headers else None,
            event_times=[schedule.next_us],
            priorities=[schedule.priority],
        )
        entry = Entry(Place(0, 1), intake=intake_of(parse(batch)))
        batch = self._beside(batch, entry, fx.ScheduleFired(schedule.name, time_us, next_us))
        self.propose_records(batch, entry, waiter)

    def _beside(self, batch: Payload, entry: Entry, effect: fx.AnyEffect) -> Payload:
        """Put an effect beside the records of a batch: both will be in the log, or neither. Raises BatchTooLarge."""
        entry.effects = (effect,)
        both = with_effects(batch, fx.encode(entry.effects))
        self._check_size(len(both))
        return both

    def _judge_keys(self, keys: Keys) -> fx.KeysSeen:
        if self.state_damaged:
            raise Unavailable(
                f"{self!r} is damaged and may have lost dedup keys: repair it, or send without a dedup key"
            )
        settings, head = self.settings, self.proposed
        table, window_us = head.keys, round(settings.dedup_window_s * 1e6)

        def begun(offset: int) -> bool:
            return head.queues.begun(offset, head.shelves)

        effect = judge(table, keys.digests, self.predicted_end, keys.time_us, window_us, settings.dedup, begun)
        new = sum(digest not in table.by_digest for digest in effect.digests)
        if len(table.by_digest) + new > keys.limit and table.live(keys.time_us) + new > keys.limit:
            raise LimitReached(
                f"{self!r} remembers {keys.limit} dedup keys, which is the limit: shorten the topic's "
                f"dedup_window_s={settings.dedup_window_s}, raise max_dedup_keys, or spread them over more partitions"
            )
        return effect

    def _check_size(self, size: int) -> None:
        limit = self.log.options.max_batch_bytes
        if size > limit:
            raise BatchTooLarge(f"the batch has {size} bytes, a batch of this log may have {limit}: send smaller ones")

    def _duplicate(self, place: Place, first_sequence: int, waiter: Waiter) -> None:
        inner = first_sequence - place.first_sequence
        resend = Resend(waiter, inner) if inner else waiter
        if 0 < place.seq <= self.seq:
            resend.committed(place)
        else:
            self.overlay.attach(place, resend)

    def open_producer(self, name: str, new_id: int, limit: int, waiter: Waiter) -> tuple[int, int]:
        """Claim a named producer. Returns its id and its epoch; its next sequence is known once that is committed.

        Raises Poisoned; LimitReached when `limit` names are taken.
        """
        self.check_writable()
        table = self.proposed.producers
        known = table.by_name.get(name)
        if known is None and len(table.by_name) >= limit:
            raise LimitReached(f"{self!r} remembers {limit} named producers already: use one of their names")
        producer_id, epoch = (known.producer_id, known.epoch + 1) if known else (new_id, 1)
        self.propose_in_order(fx.ProducerOpened(name, producer_id, epoch), waiter)
        return producer_id, epoch

    def forget_producers(self, limit: int, expiry_us: int, time_us: int, needed: Collection[int] = ()) -> None:
        """Propose to forget unnamed producers that are over the limit or were silent for too long, but not `needed`."""
        surplus = self.committed.producers.surplus(limit, time_us - expiry_us)
        surplus = [each for each in surplus if each not in needed] if needed else surplus
        if surplus and self.log.poisoned is None:
            self.propose_in_order(fx.ProducersExpired(surplus))

    # -- groups -----------------------------------------------------------------------------------

    def check_cursor(self, offset: int) -> None:
        """Raise OutOfBounds unless a cursor may stand at `offset`, Poisoned when none can be moved."""
        self.check_writable()
        if not 0 <= offset <= self.end:
            raise OutOfBounds(f"offset {offset} of {self!r} cannot be committed: 0 to its end {self.end} can")

    def move_cursor(self, group: str, offset: int, waiter: Waiter | None = None) -> None:
        """Propose a group's cursor, which was checked."""
        self.propose(fx.CursorMoved(group, offset), waiter, replaces=("cursor", group))

    def check_owner(self, group: str, member: str, epoch: int) -> None:
        """Raise Fenced unless `member` may commit for the group under `epoch`."""
        self.proposed.groups.check(group, member, epoch)

    def set_owner(self, group: str, member: str, start: int, waiter: Waiter) -> int:
        """Propose a new owner. `start` counts while the group has neither cursor nor start. Returns the epoch.

        Raises Poisoned, Corrupt.
        """
        self.check_writable()
        known = self.proposed.groups.get(group)
        begin = known.start if known.start >= 0 else self.find(start)
        epoch = known.epoch + 1
        self.propose(fx.OwnerSet(group, member, epoch, begin), waiter)
        return epoch

    def delete_group(self, group: str, waiter: Waiter | None = None) -> None:
        """Propose to forget a group. Raises Poisoned."""
        self.check_writable()
        self.propose(fx.GroupDeleted(group), waiter)

    def set_first(self, offset: int) -> None:
        """Propose that offsets below are gone. Raises Poisoned."""
        self.check_writable()
        self.propose(fx.FirstOffset(offset))

    def applied(self) -> None:
        """More of the log is applied: where it begins later now, tell the log and the finals beside it."""
        first = self.first
        if first > self._told_first:
            self._told_first = first
            self.log.set_first(first)
            groups = [queue.group for queue in self.committed.queues.by_name.values() if queue.finals]
            self.finals.trimmed(groups, first)

    # -- positions --------------------------------------------------------------------------------

    def check_offset(self, offset: int) -> None:
        """Raise OutOfBounds unless reading may start at `offset`."""
        if not self.first <= offset <= self.end:
            error = OutOfBounds(
                f"offset {offset} of {self!r} is out of range: {self.first} to {self.end} are valid "
                f"({self.end} waits for the next record)"
            )
            error.offset = self.first if offset < self.first else self.end
            raise error

    def check_position(self, offset: int, term: int) -> None:
        """Raise Diverged or OutOfBounds unless the record before `offset` is of `term` (-1: not known)."""
        known = term > 0 and offset > self.first
        if known and (offset > self.end or self.term_at(offset) != term):
            valid = min(self.reader.end_of_term(term, self.first, self.end), offset)
            error = Diverged(
                f"position {offset} of term {term} is not in {self!r}, whose records up to that term end at "
                f"{valid}: what was read after that was lost, go on from there"
            )
            error.offset = valid
            raise error
        self.check_offset(offset)

    def term_at(self, offset: int) -> int:
        """The term of the record before `offset`; 0 when there is none, or when damage hides it."""
        if offset <= self.first:
            return 0
        try:
            return self.reader.term_at(min(offset, self.end) - 1)
        except Corrupt:
            self.damaged = True
            return 0

    def time_at(self, offset: int) -> int:
        """When the record at `offset` was appended. Raises OutOfBounds, Corrupt."""
        return self.reader.time_at(offset)

    def find(self, time_us: int) -> int:
        """The first offset whose append time is >= `time_us`; EARLIEST or LATEST for the ends."""
        if time_us == EARLIEST:
            return self.first
        if time_us == LATEST:
            return self.end
        return min(max(self.reader.offset_at(time_us), self.first), self.end)

    def cursor(self, offset: int) -> Cursor:
        """A cursor over the log from the batch that holds `offset`."""
        return self.reader.cursor(offset)

    def met(self, damage: Corrupt) -> None:
        """Say from now on that this partition is damaged, unless the loss was accepted."""
        self.damaged = self.damaged or not isinstance(damage, AcceptedLoss)

    def around(self, damage: Corrupt, position: int) -> int | None:
        """Where reading goes on after damage at `position`; None when nothing behind it can be read."""
        self.met(damage)
        beyond = damage.next_offset
        return beyond if beyond is not None and beyond > position else None


class Resend:
    """Waits for a batch on behalf of a resend that starts inside it."""

    __slots__ = ("_inner", "_waiter")

    def __init__(self, waiter: Waiter, inner: int) -> None:
        self._waiter = waiter
        self._inner = inner

    def committed(self, place: Place) -> None:
        moved = Place(
            place.first_sequence, place.count, place.offset + self._inner, place.seq, place.term, place.time_us
        )
        self._waiter.committed(moved)

    def failed(self, error: Error) -> None:
        self._waiter.failed(error)
