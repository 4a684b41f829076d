"""The producers of a partition, so that resends are deduplicated.

Idea: a producer numbers its records. The partition keeps the next sequence it expects of each producer and the
positions of the latest batches, so every batch is one of: next, duplicate, gap, fenced, unknown.

Contract: `judge` decides and changes nothing; `record`, `opened`, `expired` apply logged effects and decide nothing,
so replay gives the same table. Bounded: the caller asks `surplus` and logs the expiry. Memory: RECENT positions per
producer, nothing per record. Pure.
"""

from __future__ import annotations

from msgspec import Struct

from ...errors import Fenced, SequenceGap, UnknownProducer

RECENT = 64
"""Places remembered per producer: a producer may have so many batches of one partition in flight."""


class Place(Struct, array_like=True, gc=False):
    """The place of a producer's batch. `seq` is 0 until the batch is appended; until then the rest is unknown too."""

    first_sequence: int
    count: int
    offset: int = 0
    seq: int = 0
    term: int = 0
    time_us: int = 0


class ProducerState(Struct, array_like=True):
    """One producer of one partition."""

    producer_id: int
    epoch: int
    next_sequence: int
    last_us: int  # append time of its last batch or opening
    name: str = ""  # "" for an unnamed one: the only ones that expire
    recent: list[Place] = []
    owner: str = ""  # the user that alone goes on with it; "" for none, which any may


class ProducerTable:
    """All producers of one partition."""

    def __init__(self) -> None:
        self.by_id: dict[int, ProducerState] = {}
        self.by_name: dict[str, ProducerState] = {}

    def judge(self, producer_id: int, epoch: int, first_sequence: int, count: int) -> Place | None:
        """None when the batch is the next one; when it is a duplicate, the place of the batch that holds its records.

        Raises SequenceGap, UnknownProducer or Fenced.
        """
        producer = self.by_id.get(producer_id)
        if producer is None:
            if first_sequence:
                raise UnknownProducer(
                    f"producer {producer_id:#x} is unknown here and starts at sequence {first_sequence}: "
                    "start a new producer at 0"
                )
            return None
        if epoch != producer.epoch:
            return self._judge_epoch(producer, epoch, first_sequence)
        if first_sequence == producer.next_sequence:
            return None
        if first_sequence > producer.next_sequence:
            raise SequenceGap(
                f"producer {producer_id:#x} sent sequence {first_sequence}, expected {producer.next_sequence}: "
                "records in between were never received"
            )
        return self._original(producer, first_sequence, count)

    def expects(self, producer_id: int) -> int:
        """The sequence that is next of a producer; 0 for one that is not known."""
        known = self.by_id.get(producer_id)
        return 0 if known is None else known.next_sequence

    def called(self, producer_id: int) -> str:
        """What people call a producer: its name, else its id in hexadecimal."""
        known = self.by_id.get(producer_id)
        return known.name if known is not None and known.name else f"{producer_id:x}"

    def _judge_epoch(self, producer: ProducerState, epoch: int, first_sequence: int) -> None:
        if epoch < producer.epoch:
            raise Fenced(
                f"producer {producer.name or hex(producer.producer_id)} was opened again: "
                f"epoch {epoch} is over, {producer.epoch} is current"
            )
        raise UnknownProducer(
            f"producer {producer.producer_id:#x} has epoch {producer.epoch} here, not {epoch} "
            f"(sequence {first_sequence}): open it first"
        )

    def _original(self, producer: ProducerState, first_sequence: int, count: int) -> Place:
        for place in reversed(producer.recent):
            if place.first_sequence <= first_sequence:
                if first_sequence + count <= place.first_sequence + place.count:
                    return place
                break
        raise SequenceGap(
            f"producer {producer.producer_id:#x} resent sequence {first_sequence} with {count} records, which is not a "
            f"batch of the last {RECENT}; expected {producer.next_sequence}"
        )

    def record(self, producer_id: int, epoch: int, place: Place, time_us: int) -> None:
        """A batch of a producer was appended."""
        producer = self.by_id.get(producer_id)
        if producer is None:
            producer = ProducerState(producer_id, epoch, 0, 0)
            self.by_id[producer_id] = producer
        producer.next_sequence = place.first_sequence + place.count
        producer.last_us = time_us
        recent = producer.recent
        recent.append(place)
        if len(recent) > RECENT:
            del recent[0]

    def opened(self, name: str, producer_id: int, epoch: int, time_us: int, owner: str = "") -> None:
        """A named producer was claimed: it goes on where the one before stopped, under a new epoch."""
        producer = self.by_name.get(name)
        if producer is None:
            producer = ProducerState(producer_id, epoch, 0, time_us, name)
            self.by_id[producer_id] = self.by_name[name] = producer
        producer.epoch, producer.last_us, producer.owner = epoch, time_us, owner

    def owned(self, producer_id: int, epoch: int, owner: str, time_us: int) -> None:
        """A producer has an owner, perhaps before its first batch. What another user sent under its id says nothing."""
        producer = self.by_id.get(producer_id)
        if producer is None or producer.owner not in ("", owner):
            producer = self.by_id[producer_id] = ProducerState(producer_id, epoch, 0, time_us)
        producer.owner = owner

    def owner(self, producer_id: int) -> str:
        """The owner of a producer; "" for one without, or that is not known."""
        producer = self.by_id.get(producer_id)
        return "" if producer is None else producer.owner

    def expired(self, producer_ids: list[int]) -> None:
        """Forget these producers."""
        for producer_id in producer_ids:
            producer = self.by_id.pop(producer_id, None)
            if producer is not None and producer.name:
                del self.by_name[producer.name]

    def surplus(self, limit: int, silent_since_us: int) -> list[int]:
        """Unnamed producers to forget: silent since before a time, and the longest silent ones over `limit`."""
        over = len(self.by_id) - limit
        unnamed = [p for p in self.by_id.values() if not p.name]
        unnamed.sort(key=lambda p: p.last_us)
        old = sum(p.last_us < silent_since_us for p in unnamed)
        return [p.producer_id for p in unnamed[: max(over, old, 0)]]

    def dump(self) -> list[ProducerState]:
        """Dump for a snapshot, in a fixed order."""
        return sorted(self.by_id.values(), key=lambda p: p.producer_id)

    @classmethod
    def load(cls, producers: list[ProducerState]) -> ProducerTable:
        """Restore from a snapshot."""
        table = cls()
        for producer in producers:
            table.by_id[producer.producer_id] = producer
            if producer.name:
                table.by_name[producer.name] = producer
        return table
