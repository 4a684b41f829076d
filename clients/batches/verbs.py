"""The verbs for ready batches, as steps.

Contract: a batch is checked here as far as it has to be for the connection to live: a broker cuts off a client that
sends what is no batch, or too large a frame. The rest of it the broker judges.
"""

from __future__ import annotations

from ...storage.batch import Kind, parse
from ...storage.errors import InvalidBatch
from ...transport.messages import OpenProducer, Produce, Produced, ProducerOpened
from ..connection.connection import Connection, Question
from ..connection.steps import Steps
from ..descriptions import Appended, OpenedProducer
from ..ranges.verbs import id_of


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
