"""The verbs for ready batches, as steps.

Contract: a batch is checked here as far as it has to be for the connection to live: a broker cuts off a client that
sends what is no batch, or too large a frame. The rest of it the broker judges.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...storage.batch import Kind, parse
from ...storage.errors import InvalidBatch
from ...transport.messages import (
    FetchedMany,
    FetchFrom,
    FetchMany,
    OpenProducer,
    Produce,
    Produced,
    ProducerOpened,
)
from ..arguments.quantities import Duration, Size, seconds, size_bytes
from ..connection.connection import Connection
from ..connection.question import BatchesQuestion, Question
from ..connection.steps import Steps
from ..descriptions import Appended, OpenedProducer
from ..errors import InvalidArgument
from ..ranges.verbs import id_of, topic_id
from .fetched import FetchedBatches, fetched_of


class BatchVerbs:
    """The verbs of both kinds of clients, over one connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def open_producer(self, name: str, partition: int, producer: str, id_: str | None) -> Steps[OpenedProducer]:
        """Claim a name."""
        deadline = self.connection.deadline()
        topic = yield from id_of(self.connection, name, id_, deadline)
        opened = yield from self.connection.ask(
            lambda request: OpenProducer(request, topic, partition, producer),
            ProducerOpened,
            deadline=deadline,
            what=f"opening producer {producer} of topic {name}",
        )
        return OpenedProducer(opened.producer_id, opened.epoch, opened.next_sequence)

    def append_batch(self, name: str, partition: int, batch: bytes, id_: str | None) -> Steps[Appended]:
        """Append a batch; it is sent again after a lost connection, and its sequence says that it is the same."""
        connection, deadline = self.connection, self.connection.deadline()
        batch = bytes(batch)
        count = _check(batch)
        yield from connection.ready(deadline)
        refused = connection.too_large(batch, count)
        if refused is not None:
            raise refused
        topic = yield from id_of(self.connection, name, id_, deadline)
        question = Question(connection, lambda request: Produce(request, topic, partition), payload=batch)
        what = f"appending a batch to partition {partition} of topic {name}"
        produced = yield from connection.wait_for(question, Produced, deadline=deadline, what=what)
        return Appended(produced.offset, produced.term, produced.time_us)

    def fetch_batches(
        self,
        places: Iterable[tuple[str, int, int]],
        max_bytes: Size,
        partition_max_bytes: Size,
        min_bytes: Size,
        wait: Duration,
        verify: bool,
    ) -> Steps[list[FetchedBatches]]:
        """The next batches of many partitions."""
        total, least = size_bytes(max_bytes, "max_bytes"), size_bytes(min_bytes, "min_bytes")
        wanted = _places(places, size_bytes(partition_max_bytes, "partition_max_bytes"))
        wait_s = seconds(wait, "wait")
        question = FetchManyQuestion(self.connection, wanted, total, least, round(wait_s * 1000))
        deadline = self.connection.deadline() + wait_s
        answer = yield from self.connection.wait_for(
            question, FetchedMany, deadline=deadline, what=f"fetching from {len(wanted)} partitions"
        )
        found: list[FetchedBatches] = []
        payload, position = memoryview(question.batches), 0
        for place, part in zip(wanted, answer.partitions, strict=True):
            end = position + part.size_bytes
            found.append(fetched_of(place, part, payload[position:end], verified=verify))
            position = end
        return found


class FetchManyQuestion(BatchesQuestion):
    """Asks for batches of many partitions."""

    def __init__(
        self, connection: Connection, places: list[FetchFrom], max_bytes: int, min_bytes: int, wait_ms: int
    ) -> None:
        super().__init__(connection, lambda request: FetchMany(request, places, max_bytes, min_bytes, wait_ms))


def _places(places: Iterable[tuple[str, int, int]], max_bytes: int) -> list[FetchFrom]:
    try:
        return [FetchFrom(topic_id(id_), partition, offset, max_bytes) for id_, partition, offset in places]
    except InvalidArgument as error:
        raise InvalidArgument(f"places: {error.message}") from None
    except (TypeError, ValueError):
        raise InvalidArgument(f"places={places!r} are no places: each is (topic id, partition, offset)") from None


def _check(batch: bytes) -> int:
    """The records of a batch that may be sent. Raises InvalidBatch, BadChecksum, NewerFormat."""
    found = parse(batch)
    if found.batch_bytes != len(batch):
        raise InvalidBatch(f"{len(batch)} bytes were given for one batch of {found.batch_bytes}: append one per call")
    if found.kind != Kind.RECORDS:
        raise InvalidBatch(f"a batch of kind {found.kind} cannot be appended: only records")
    if not found.producer_id:
        raise InvalidBatch("a batch without a producer id would be appended twice when it is sent again: give it one")
    return found.record_count
