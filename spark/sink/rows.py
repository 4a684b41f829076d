"""Splits a task's rows by topic and gathers them until they are worth sending.

Idea: Spark cuts rows into batches of its own size, penstock wants some hundred KiB for each partition: rows gather by
topic until there is enough for all of its partitions. With a topic column a stable sort by topic and one `take` bring
the rows of each topic together.
Contract: rows of one topic keep their order. No loop over rows. Bounded: rows gathered over all topics stay below
GATHERED_BYTES_MAX and one batch of Spark's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import pyarrow as pa

from ...storage.arrow_numbers import array_of, numbers_of
from ...storage.errors import InvalidBatch
from ...transport.producer_session import TARGET_BYTES
from .columns import Layout

GATHERED_BYTES_MAX = 32 << 20
"""Gathered over all topics before all of it is sent."""


class Sender(Protocol):
    """A producer of one topic."""

    @property
    def partitions(self) -> int: ...

    def send_many_nowait(self, values: pa.Table, /) -> int: ...


class Gathered:
    """The rows gathered for one topic."""

    def __init__(self, sender: Sender) -> None:
        self.sender = sender
        self.batches: list[pa.RecordBatch] = []
        self.size = 0

    @property
    def is_worth_sending(self) -> bool:
        return self.size >= TARGET_BYTES * self.sender.partitions


class SinkRows:
    """All rows of one task on their way to producers, which `sender_of` makes by topic."""

    def __init__(self, layout: Layout, sender_of: Callable[[str], Sender]) -> None:
        self.count = 0
        self._layout = layout
        self._sender_of = sender_of
        self._by_topic: dict[str, Gathered] = {}
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take one batch of Spark's. Raises InvalidBatch for rows that cannot be records, and what sending raises."""
        for topic, part in by_topic(batch, self._layout):
            waiting = self._by_topic.get(topic)
            if waiting is None:
                waiting = self._by_topic[topic] = Gathered(self._sender_of(topic))
            waiting.batches.append(part)
            waiting.size += part.nbytes
            self._bytes += part.nbytes
            if waiting.is_worth_sending:
                self._send(waiting)
        self.count += batch.num_rows
        if self._bytes > GATHERED_BYTES_MAX:
            self.send()

    def send(self) -> None:
        """Hand over whatever is gathered."""
        for waiting in self._by_topic.values():
            if waiting.batches:
                self._send(waiting)

    def _send(self, waiting: Gathered) -> None:
        batches, waiting.batches = waiting.batches, []
        self._bytes -= waiting.size
        waiting.size = 0
        waiting.sender.send_many_nowait(pa.Table.from_batches(batches))


def by_topic(batch: pa.RecordBatch, layout: Layout) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each topic, as columns of records. Raises InvalidBatch for a row without a topic."""
    if not batch.num_rows:
        return
    records = pa.RecordBatch.from_arrays([batch.column(at) for at in layout.places], list(layout.names))
    if layout.topic_at < 0:
        yield layout.topic, records
        return
    topics = batch.column(layout.topic_at)
    if topics.null_count:
        raise InvalidBatch(
            f"{topics.null_count} of {len(topics)} rows have null as their topic, and a record needs one: filter such "
            'rows out, or give the option "topic"'
        )
    found = topics.dictionary_encode()
    names: list[str] = found.dictionary.to_pylist()
    if len(names) == 1:
        yield names[0], records
        return
    codes = numbers_of(found.indices)
    order = np.argsort(codes, kind="stable")
    records = records.take(array_of(order, pa.int64()))
    ends = np.bincount(codes).cumsum().tolist()
    for name, start, end in zip(names, [0, *ends], ends, strict=False):
        yield name, records.slice(start, end - start)
