"""The source of a stream, as Spark calls it: dicts of JSON in and out, decisions in `micro_batches`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from .micro_batches import MicroBatches
from .offsets import NEW, decode, encode
from .reading import SpanPartition, SpanReader
from .source_options import SourceOptions


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One of these lives on the driver for as long as a query runs; those on executors only read."""

    def __init__(self, url: str, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._spans = SpanReader(url, options, schema)
        self._batches = MicroBatches(options, self._spans.client)

    def initialOffset(self) -> dict[str, Any]:
        """Before the first micro-batch, which decides where it begins."""
        return encode(NEW)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what is there by now, in as many micro-batches as the limits make it, and end."""
        self._batches.pin()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit from the options. If both are given both hold, though Spark learns of one only."""
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next micro-batch; `start` when there is none to run."""
        begin = decode(start)
        end = self._batches.next(begin, limited=not isinstance(limit, ReadAllAvailable))
        return start if end is begin else encode(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The end offsets of the topics, for the query's progress."""
        newest = self._batches.newest()
        return None if newest is None else encode(newest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch."""
        return [SpanPartition(spans) for spans in self._batches.tasks(decode(start), decode(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one of them."""
        return self._spans.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark will not ask for anything before `end` again."""
        self._batches.commit(decode(end))
