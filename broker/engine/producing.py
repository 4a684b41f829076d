"""Producing: what a batch of records must be to be taken, or to be staged, and the claim of a named producer.

Contract: nothing of a client is believed before it is checked: header, every column, the size of every
record, and that it claims nothing only a broker may write (kinds, effects). What is refused changed nothing.
"""

from __future__ import annotations

from ...storage.batch import Batch, ColumnId, Kind, parse
from ...storage.errors import BatchTooLarge, InvalidBatch, RecordTooLarge
from ...transport.messages import OpenProducer, Produce, ProducerOpened
from .clock import LogTime
from .dedup import Keys, digests
from .names import check_name
from .ports import Handlers, NodeConfig, Now, Payload, Peer, Port, Randomness
from .replies import Gather, KeyedReply, ProduceReply
from .topics import Topics

ALLOWED = frozenset({
    ColumnId.VALUE, ColumnId.KEY, ColumnId.KEY_HASH, ColumnId.HEADERS, ColumnId.EVENT_TIME,
    ColumnId.KEY_VALIDITY, ColumnId.VALUE_VALIDITY, ColumnId.PRIORITY, ColumnId.NOT_BEFORE, ColumnId.DEDUP,
})  # fmt: skip
"""Columns a producer may send. The others are the broker's, or wait for what they will mean."""

KINDS = frozenset({Kind.RECORDS, Kind.STAGED})
"""Kinds a producer may send."""

SIZED: dict[int, str] = {ColumnId.VALUE: "a value", ColumnId.KEY: "a key", ColumnId.HEADERS: "headers"}
"""What `max_record_bytes` limits, each by itself."""


DELAY_MAX_S = 10 * 366 * 86400
"""How far ahead a record may be put off: beyond that somebody mistook the unit of a time."""


class Producing:
    """Handlers of Produce and OpenProducer."""

    def __init__(self, topics: Topics, port: Port, config: NodeConfig, time: LogTime, randomness: Randomness) -> None:
        self.handlers: Handlers = {Produce: self.produce, OpenProducer: self.open_producer}
        self.batches = 0
        self.records = 0
        self.bytes = 0
        self._topics = topics
        self._port = port
        self._config = config
        self._time = time
        self._randomness = randomness

    def produce(self, peer: Peer, message: Produce, payload: Payload, now: Now) -> None:
        """Propose one batch."""
        partition = self._topics.partition(message.topic, message.partition)
        batch = self._accept(payload, partition.settings.max_record_bytes)
        _check_delays(batch, now)
        reply = ProduceReply(self._port, peer, message.request)
        found = digests(batch)
        if batch.kind == Kind.STAGED:
            partition.stage(batch, reply, self._config.max_stages)
        elif found is None:
            partition.produce(batch, reply)
        else:
            time_us = max(self._time.read(now), partition.log.last_time_us)
            keys = Keys(found, time_us, self._config.max_dedup_keys)
            partition.produce(batch, KeyedReply(reply, len(found), partition.ledger.applied), keys)
        self.batches += 1
        self.records += batch.record_count
        self.bytes += batch.batch_bytes

    def open_producer(self, peer: Peer, message: OpenProducer, payload: Payload, now: Now) -> None:
        """Claim a name."""
        check_name("producer", message.name)
        partition = self._topics.partition(message.topic, message.partition)
        new_id = int.from_bytes(self._randomness(8), "little") or 1
        claims: list[tuple[int, int]] = []

        def opened() -> ProducerOpened:
            # As committed: what was under way when the name was claimed may have been refused since.
            producer_id, epoch = claims[0]
            sequence = partition.ledger.applied.producers.by_id[producer_id].next_sequence
            return ProducerOpened(message.request, producer_id, epoch, sequence)

        gather = Gather.answering(self._port, peer, message.request, opened)
        claims.append(partition.open_producer(message.name, new_id, self._config.max_producers, gather.one()))
        gather.ready()

    def _accept(self, payload: Payload, max_record_bytes: int) -> Batch:
        size = len(payload)
        if size > self._config.max_frame_bytes:
            raise BatchTooLarge(
                f"the batch has {size} bytes, the limit is {self._config.max_frame_bytes}: send it in smaller ones"
            )
        batch = parse(payload)
        if batch.batch_bytes != size:
            raise InvalidBatch(
                f"{size} bytes were sent for one batch of {batch.batch_bytes}: send one batch per request"
            )
        if batch.kind not in KINDS or batch.flags:
            raise InvalidBatch(
                f"a batch of kind {batch.kind} with flags {batch.flags} cannot be produced: only records"
            )
        if batch.first_sequence < 0:
            raise InvalidBatch(f"the first sequence {batch.first_sequence} is below 0")
        batch.check()
        self._check_columns(batch, max_record_bytes)
        return batch

    def _check_columns(self, batch: Batch, max_record_bytes: int) -> None:
        most = self._config.max_frame_bytes
        for column in batch.directory():
            if column.id not in ALLOWED:
                raise InvalidBatch(f"column {column.id} cannot be produced")
            if column.id == ColumnId.DEDUP and batch.kind == Kind.STAGED:
                raise InvalidBatch("staged records cannot have dedup keys: a transaction is committed once anyway")
            if column.raw_bytes > most:
                raise BatchTooLarge(
                    f"column {column.id} has {column.raw_bytes} bytes when inflated, "
                    f"the limit is {most}: send smaller batches"
                )
            if column.id not in SIZED or column.raw_bytes <= max_record_bytes:
                continue  # no single entry can be over the limit
            largest = int(batch.lengths(column.id).max())
            if largest > max_record_bytes:
                raise RecordTooLarge(
                    f"a record with {SIZED[column.id]} of {largest} bytes is over the topic's "
                    f"max_record_bytes={max_record_bytes}: raise the setting or split the record"
                )


def _check_delays(batch: Batch, now: Now) -> None:
    """Refuse times that nobody means. Raises InvalidBatch."""
    times = batch.not_before()
    if times is None:
        return
    earliest, latest = int(times.min()), int(times.max())
    if earliest < 0:
        raise InvalidBatch(f"not_before={earliest} is negative: give microseconds since 1970 UTC, or 0 for at once")
    if latest > now.wall_us + DELAY_MAX_S * 1_000_000:
        raise InvalidBatch(
            f"not_before={latest} is more than 10 years after the broker's time {now.wall_us}: "
            "give microseconds since 1970 UTC, or a shorter delay"
        )
