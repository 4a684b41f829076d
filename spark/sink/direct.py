"""At least once: rows are sent while the task runs, and can be read from then on.

A task that Spark repeats sends its rows again, and rows of a failed write stay. In return the broker writes nothing
twice, and rows can be read before the write is over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from ..connection import client_of
from .columns import Layout
from .messages import Written
from .options import SinkOptions
from .rows import SinkRows


class DirectWriter(DataSourceArrowWriter):
    """The writer of a batch write."""

    def __init__(self, options: SinkOptions, layout: Layout) -> None:
        self._options = options
        self._layout = layout

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of one task."""
        return send(self._options, self._layout, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing: the rows can be read already."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing: what was sent stays."""


class DirectStreamWriter(DataSourceStreamArrowWriter):
    """The writer of a streaming query."""

    def __init__(self, options: SinkOptions, layout: Layout) -> None:
        self._options = options
        self._layout = layout

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of one task."""
        return send(self._options, self._layout, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: the rows can be read already."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing: what was sent stays."""


def send(options: SinkOptions, layout: Layout, batches: Iterator[pa.RecordBatch]) -> Written:
    """Send all rows, and return when each is committed."""
    client = client_of(options.url, options.timeout_s)
    with ExitStack() as producers:
        rows = SinkRows(layout, lambda topic: producers.enter_context(client.producer(topic, codec=options.codec)))
        for batch in batches:
            rows.add(batch)
        rows.send()
    return Written(rows.count)
