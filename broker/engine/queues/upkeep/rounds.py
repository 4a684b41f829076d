"""A round: moves some entries of one outbox.

Idea: it chooses and logs a destination for each entry, appends the copies there under a producer of its own with entry
numbers as sequences, then logs that they arrived. After a crash the round begins again, and the sequences of that
producer at the targets say which copies arrived already.

Contract: tells its mover once when it is over, and which entries cannot be moved for now. Each step follows the commit
of the one before. Must not know when rounds begin.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from xxhash import xxh3_64_intdigest

from .....storage.batch import encode
from .....storage.errors import BatchTooLarge, Error, InvalidBatch
from .....storage.header_list import with_more
from .....transport.partitioner import PARTITIONERS
from ....errors import Unavailable, UnknownTopic
from ...tables import effects as fx
from ...tables.entry import Entry
from ...tables.producers import Place
from ...turns.replies import Gather
from ..choosing.picking import Pick, Picker
from ..requests.dead_letters import ranges

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .....storage.batch import Batch
    from ...logs.log_registry import LogRegistry
    from ...logs.partition import Partition
    from ...logs.topics import Topic
    from ...tables.producers import ProducerState
    from ...tables.queues.outbox import OutboxEntry

PORTION_BYTES = 1 << 20
"""Limit of one round; at least one entry."""


OWN = ":broker"
"""The owner of the producers of copies: no user has this name, so none sends under their ids."""


class OutboxRecord(NamedTuple):
    """The columns copied of a record."""

    value: bytes | None
    key: bytes | None
    headers: dict[str, bytes]
    event_time: int


def producer_of(log_id: bytes) -> int:
    """The producer id of the copies that come from a log."""
    return xxh3_64_intdigest(log_id + b"dead") or 1


class Rounds(Protocol):
    """The mover, as its rounds need it."""

    registry: LogRegistry
    picker: Picker

    def over(self, source: Partition, moved: Iterable[str] = ()) -> None:
        """A round is over; entries for these topics were moved."""
        ...

    def rest(self, source: Partition, target: str, error: Error) -> None:
        """Entries for a topic cannot be moved for now."""
        ...


class Round:
    """Entries of one partition that are on their way."""

    def __init__(self, mover: Rounds, source: Partition, entries: list[OutboxEntry]) -> None:
        self._mover = mover
        self._source = source
        self._entries = entries
        self._records: dict[int, OutboxRecord] = {}
        self._there: list[OutboxEntry] = []
        self._waiting = 0

    def begin(self) -> None:
        """Read the records to copy."""
        offsets = sorted({entry.offset for entry in self._entries})
        self._mover.picker.pick(Pick(self._source, offsets, PORTION_BYTES, self._read))

    def _read(self, pick: Pick) -> None:
        """Go on with the first entries whose records were read, so that none passes another."""
        if pick.missing is not None:
            self._stay(pick.missing)
            return
        for batch in pick.batches:
            self._records |= records_of(batch)
        seen = set(pick.offsets[: pick.next].tolist())
        entries = self._entries
        count = next((at for at, entry in enumerate(entries) if entry.offset not in seen), len(entries))
        self._entries = entries[: max(count, 1)]
        if count:
            self._route()
        else:
            self.begin()

    # -- destinations -------------------------------------------------------------------------------

    def _route(self) -> None:
        """Decide where those go of which it is not decided, and log that first."""
        topics = self._mover.registry.topics
        routes: dict[tuple[bytes, int], list[int]] = {}
        for target in sorted({entry.target for entry in self._entries if entry.topic not in topics.by_id}):
            topic = topics.by_name.get(target)
            if topic is None:
                self._put_off(target, UnknownTopic(f"the dead topic {target} does not exist: create it"))
                continue
            for entry in self._entries:
                if entry.target == target and entry.topic not in topics.by_id:
                    place = (topic.id, self._partition(entry, topic))
                    routes.setdefault(place, []).append(entry.number)
        gather = Gather(self._routed, self._stay)
        for (topic_id, number), numbers in routes.items():
            self._source.propose(fx.OutboxRouted(topic_id, number, ranges(numbers)), gather.one())
        gather.ready()

    def _partition(self, entry: OutboxEntry, topic: Topic) -> int:
        record = self._records.get(entry.offset)
        key = entry.offset.to_bytes(8, "little") if record is None or record.key is None else record.key
        return PARTITIONERS[topic.settings.partitioner].of(key, len(topic.partitions))

    def _routed(self) -> None:
        standing = self._source.committed.outbox.entries
        self._entries = [standing[entry.number] for entry in self._entries if entry.number in standing]
        self._append()

    # -- appending ----------------------------------------------------------------------------------

    def _append(self) -> None:
        """Append the copies that have not arrived yet."""
        places: dict[tuple[bytes, int], list[OutboxEntry]] = {}
        for entry in self._entries:
            places.setdefault((entry.topic, entry.partition), []).append(entry)
        self._waiting = 1
        for (topic_id, number), entries in places.items():
            try:
                self._append_to(self._mover.registry.topics.get(topic_id).partition(number), entries)
            except Error as error:
                self._mover.rest(self._source, entries[0].target, error)
        self.settled()

    def _append_to(self, target: Partition, entries: list[OutboxEntry]) -> None:
        """Raise the error that keeps a partition from taking copies."""
        producer_id = producer_of(self._source.log.log_id)
        target.check_writable()
        if target.state_damaged:
            raise Unavailable(f"{target!r} is damaged, so which copies it has is not certain: run penstock log repair")
        owned = target.latest.producers.owner(producer_id) == OWN
        if producer_id in target.latest.stages.by_id:
            if not owned:
                target.propose_in_order(fx.ProducerOwned(producer_id, 0, OWN))  # so nothing is added to the stage
            raise Unavailable(f"{target!r} has a stage under the id of these copies: they wait until it is gone")
        standing = _next(target.committed.producers.by_id.get(producer_id))
        self._there += [entry for entry in entries if entry.number < standing]
        fresh = [entry for entry in entries if entry.number >= standing]
        if fresh:
            first = fresh[-1].number + 1 - len(fresh)  # so that the last record has the number of its entry
            batch = self._batch(fresh, producer_id, first, target.log.options.max_batch_bytes)
            self._waiting += 1
            place = Place(first, len(fresh))
            waiter = Gather(lambda: self._committed(fresh), lambda error: self._refused(fresh, error))
            before = None if owned else fx.ProducerOwned(producer_id, 0, OWN)
            target.propose_records(batch, Entry(place, producer_id), waiter, before)

    def _batch(self, entries: list[OutboxEntry], producer_id: int, first: int, most: int) -> bytes | bytearray:
        copies = [copy_of(entry, self._records.get(entry.offset), self._source) for entry in entries]
        batch = encode(
            [copy.value for copy in copies],
            keys=[copy.key for copy in copies],
            headers=[copy.headers for copy in copies],
            event_times=[copy.event_time for copy in copies],
            producer_id=producer_id,
            first_sequence=first,
        )
        if len(batch) > most:
            raise BatchTooLarge(f"copies of dead records take {len(batch)} bytes, a batch may have {most}")
        return batch

    def _committed(self, entries: list[OutboxEntry]) -> None:
        """Note copies that arrived."""
        self._there += entries
        self.settled()

    def _refused(self, entries: list[OutboxEntry], error: Error) -> None:
        """Note copies that did not arrive."""
        self._mover.rest(self._source, entries[0].target, error)
        self.settled()

    # -- done ---------------------------------------------------------------------------------------

    def settled(self) -> None:
        """One target has answered; after the last one, log which copies arrived."""
        self._waiting -= 1
        if self._waiting:
            return
        self._entries = sorted(self._there, key=attrgetter("number"))
        gather = Gather(self._moved, self._stay)
        if self._entries and self._mover.registry.holds(self._source):
            numbers = [entry.number for entry in self._entries]
            self._source.propose(fx.OutboxMoved(ranges(numbers)), gather.one())
        gather.ready()

    def _moved(self) -> None:
        self._mover.over(self._source, {entry.target for entry in self._entries})

    def _stay(self, error: Error) -> None:
        """The partition itself cannot log the destinations."""
        for target in {entry.target for entry in self._entries}:
            self._mover.rest(self._source, target, error)
        self._mover.over(self._source)

    def _put_off(self, target: str, error: Error) -> None:
        self._mover.rest(self._source, target, error)
        self._entries = [entry for entry in self._entries if entry.target != target]


def records_of(batch: Batch) -> dict[int, OutboxRecord]:
    """The records of a batch by offset, without those whose headers cannot be read."""
    values, count = batch.values(), batch.record_count
    keys = batch.keys() or [None] * count
    times = batch.event_times()
    event_times = [batch.append_time_us] * count if times is None else times.tolist()
    rows = zip(batch.offsets().tolist(), values, keys, batch.headers_of_each(), event_times, strict=True)
    return {
        offset: OutboxRecord(value, key, headers, time_us)
        for offset, value, key, headers, time_us in rows
        if not isinstance(headers, InvalidBatch)
    }


def copy_of(entry: OutboxEntry, record: OutboxRecord | None, source: Partition) -> OutboxRecord:
    """The record with what became of it in its headers. One that damage made unreadable has nothing but those."""
    about: dict[str, bytes] = {
        "penstock-dead-reason": entry.reason.encode(),
        "penstock-dead-group": entry.group.encode(),
        "penstock-dead-topic": source.topic.encode(),
        "penstock-dead-partition": b"%d" % source.number,
        "penstock-dead-offset": b"%d" % entry.offset,
        "penstock-dead-attempts": b"%d" % entry.attempt,
        "penstock-dead-time": b"%d" % entry.time_us,
    }
    if record is None:
        return OutboxRecord(b"", None, {**about, "penstock-dead-unreadable": b"1"}, entry.time_us)
    return record._replace(headers=with_more(record.headers, about))


def _next(producer: ProducerState | None) -> int:
    """The number of the first entry without a copy. What a user sent under the id of copies counts as none."""
    return 0 if producer is None or producer.owner not in ("", OWN) else producer.next_sequence
