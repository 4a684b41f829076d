"""Producing: appends or stages batches of records, and claims named producers.

Contract: nothing from a client is believed before judging.py has checked it. A refused request has changed nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....storage.batch import Batch, Kind
from ....storage.errors import RecordTooLarge
from ....storage.histogram import SAMPLE, Histogram
from ....transport.messages import OpenProducer, Produce, ProducerOpened, Tie
from ...errors import InvalidRequest
from ..logs.clock import LogTime
from ..logs.topics import Topics
from ..ports import Handlers, NodeConfig, Now, Payload, Peer, Port, Randomness
from ..tables.dedup import Keys, digests
from ..tables.names import check_name
from ..transactions.staging import stage
from ..turns.replies import Gather, KeyedReply, ProduceReply
from .few import propose_few
from .judging import judge
from .proposing import open_producer, produce, stands
from .tying import tied

if TYPE_CHECKING:
    from ..guard import Guard
    from ..logs.partition import Partition
    from ..turns.roster import Roster


_STAGED = int(Kind.STAGED)


class Producing:
    """Handlers of Produce and OpenProducer."""

    def __init__(
        self,
        topics: Topics,
        port: Port,
        config: NodeConfig,
        time: LogTime,
        randomness: Randomness,
        seals: Roster[Partition, int, None],
        guard: Guard,
    ) -> None:
        self.handlers: Handlers = {Produce: self.produce, OpenProducer: self.open_producer}
        self.batches = 0
        self.records = 0
        self.bytes = 0
        self.batch_bytes = Histogram()
        self._topics = topics
        self._port = port
        self._config = config
        self._time = time
        self._randomness = randomness
        self._seals = seals
        self._guard = guard

    def produce(self, peer: Peer, message: Produce, payload: Payload, now: Now) -> None:
        """Propose one batch."""
        partition = self._topics.partition(message.topic, message.partition)
        reply = ProduceReply(self._port, peer, message.request)
        principal = self._guard.principal
        owner = None if principal is None else principal.name
        records = 0
        if message.tie is None:
            records = propose_few(partition, payload, self._config.max_frame_bytes, reply, owner)
        if not records:
            records = self._propose(partition, payload, reply, now, message.tie)
        size = len(payload)
        if not self.batches % SAMPLE:
            self.batch_bytes.note(size)
        self.batches += 1
        self.records += records
        self.bytes += size

    def _propose(self, partition: Partition, payload: Payload, reply: ProduceReply, now: Now, tie: Tie | None) -> int:
        """Propose any batch. Returns how many records it has."""
        batch = self._judged(payload, partition, now)
        found, owner = digests(batch), self._new_owner(partition, batch)
        if tie is not None:
            self._produce_members(partition, batch, reply, owner, tie)
        elif batch.kind == _STAGED:
            stage(partition, batch, reply, self._config.max_stages, self._seals.of(partition), owner)
        elif found is None:
            produce(partition, batch, reply, owner=owner)
        else:
            time_us = max(self._time.read(now), partition.log.last_time_us)
            keys = Keys(found, time_us, self._config.max_dedup_keys)
            produce(partition, batch, KeyedReply(reply, len(found), partition.committed), keys, owner)
        return batch.record_count

    def _produce_members(self, partition: Partition, batch: Batch, reply: ProduceReply, owner: str, tie: Tie) -> None:
        """Propose records that are members of a barrier. Those that stand already are as they were told then."""
        if batch.kind == _STAGED or not batch.producer_id or digests(batch) is not None:
            raise InvalidRequest(
                "members of a barrier are records of a producer, without dedup keys and not of a transaction: a record "
                "that is not appended, or twice, would never end the wait, or too early"
            )
        repeated = stands(partition, batch)
        effect = None if repeated else tied(partition, batch, tie, self._topics, self._guard)
        produce(partition, batch, reply, owner=owner, beside=effect)

    def _new_owner(self, partition: Partition, batch: Batch) -> str:
        """The user to bind the batch's producer or stage to; "" where that stays. Raises Forbidden: another's."""
        principal, producer_id = self._guard.principal, batch.producer_id
        if principal is None or not producer_id:
            return ""
        latest, staged = partition.latest, batch.kind == _STAGED
        owner = (latest.stages if staged else latest.producers).owner(producer_id)
        self._guard.check_owner(principal, owner, f"{'stage' if staged else 'producer'} {producer_id:#x}")
        return "" if owner else principal.name

    def _judged(self, payload: Payload, partition: Partition, now: Now) -> Batch:
        """The batch of a Produce, checked. One that stands already was within the limit that the topic had then."""
        most = self._config.max_frame_bytes
        try:
            return judge(payload, most, partition.settings.max_record_bytes, now)
        except RecordTooLarge:
            batch = judge(payload, most, most, now)
            if not stands(partition, batch):
                raise
            return batch

    def open_producer(self, peer: Peer, message: OpenProducer, payload: Payload, now: Now) -> None:
        """Claim a name."""
        check_name("producer", message.name)
        partition = self._topics.partition(message.topic, message.partition)
        principal, known = self._guard.principal, partition.latest.producers.by_name.get(message.name)
        if known is not None:
            resource = f"producer:{partition.topic}/{message.name}"
            self._guard.check_owner(principal, known.owner, f"producer {message.name}", resource)
        new_id = int.from_bytes(self._randomness(8), "little") or 1
        claims: list[tuple[int, int]] = []

        def opened() -> ProducerOpened:
            # As committed: what was under way when the name was claimed may have been refused since.
            producer_id, epoch = claims[0]
            sequence = partition.committed.producers.by_id[producer_id].next_sequence
            return ProducerOpened(message.request, producer_id, epoch, sequence)

        gather = Gather.answering(self._port, peer, message.request, opened)
        owner, most = "" if principal is None else principal.name, self._config.max_producers
        claims.append(open_producer(partition, message.name, new_id, most, gather.one(), owner))
        gather.ready()
