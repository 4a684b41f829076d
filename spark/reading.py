"""A task: reads spans of partitions, mostly one, and hands them to Spark as Arrow batches.

Idea: Spark passes a task everything it needs; it uses nothing of the driver's. Each process keeps one client for all
of its tasks. Where the broker's files can be mapped, Spark's values stay in the mapping.
Contract: returns exactly the records of the spans, in order; lost ones are handled as the query's options say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ..broker.errors import UnknownTopic
from ..clients import Client
from ..clients.connection.delivery import Delivery
from ..storage.batch import Batch
from ..storage.errors import Corrupt, Diverged, Error, OutOfBounds
from .connection import client_of
from .filters import EVER
from .losses import settle
from .offsets import Position
from .planning import PlannedSpan, clipped
from .rows import Rows
from .schema import check, needed
from .source_options import SourceOptions

DELIVERIES: dict[str, Delivery] = {"auto": "auto", "true": "mapped", "false": "control"}


@dataclass
class SpanPartition(InputPartition):
    """Spans as Spark hands them to a task."""

    spans: Sequence[PlannedSpan]


class SpanReader:
    """Reads spans into rows of a schema. Travels to executors: holds values only."""

    def __init__(self, url: str, options: SourceOptions, schema: StructType) -> None:
        """Raises InvalidColumns."""
        self.url = url
        self.moments = EVER  # whose records are wanted
        self._options = options
        self._schema = schema
        self._names = check((field.name, field.dataType.simpleString()) for field in schema.fields)

    def client(self) -> Client:
        """This process's client."""
        return client_of(self.url, self._options.timeout_s)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """All spans of a task. Where there was nothing to plan Spark hands over a partition that is none of ours."""
        if isinstance(partition, SpanPartition):
            for span in partition.spans:
                yield from self._read(span)

    def _read(self, span: PlannedSpan) -> Iterator[pa.RecordBatch]:
        moments = self.moments
        rows = Rows(to_arrow_schema(self._schema, timezone="UTC"), self._names, *span.place)
        for batch, begin in self._batches(span):
            if moments.may_hold(batch):
                yield from map(moments.chosen, rows.add(batch, begin, span.end))
        yield from map(moments.chosen, rows.rest())

    def _batches(self, span: PlannedSpan) -> Iterator[tuple[Batch, int]]:
        """The batches that overlap the span, and the first offset that is wanted of each; gaps are settled."""
        last: Batch | None = None
        while span.rows > 0:
            try:
                for last in self._range(span):
                    yield last, span.begin.offset
                return
            except (OutOfBounds, Diverged, Corrupt, UnknownTopic) as error:
                if last is not None and last.end_offset > span.begin.offset:
                    span = span._replace(begin=Position(last.end_offset, last.term))
                losses: list[str] = []
                span = self._behind(span, error, losses)
                settle(losses, self._options.fail_on_data_loss)

    def _range(self, span: PlannedSpan) -> Iterator[Batch]:
        return self.client().range(
            *span.place,
            span.begin.offset,
            span.end,
            term=None if span.begin.term < 0 else span.begin.term,
            columns=needed(self._names),
            delivery=DELIVERIES[self._options.mapped],
            id=span.id,
        )

    def _behind(self, span: PlannedSpan, error: Error, losses: list[str]) -> PlannedSpan:
        """The part of a span that can be read after an error, which is added to `losses`."""
        begin = span.begin.offset
        if isinstance(error, OutOfBounds):
            found = self.client().ends([span.place.topic])[span.place.topic]
            left = clipped(span, found.partitions[span.place.partition], losses)
            if left == span:
                raise error
            return left
        losses.append(f"records {begin} to {span.end - 1} of {span.place} cannot all be read: {error.message}")
        if isinstance(error, Diverged):  # the query read what was lost afterwards; there are others in its place
            return span._replace(begin=Position(min(max(error.offset, 0), begin)))
        known = error.next_offset if isinstance(error, Corrupt) else None
        return span._replace(begin=Position(known if known is not None and known > begin else span.end))
