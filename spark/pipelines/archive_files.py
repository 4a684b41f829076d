"""Writes Arrow batches into Parquet files, one per partition and hour: the executors' part of an archive.

Idea: a task gets records in the order of their offsets and may meet many hours; it keeps a bounded number of files
open, collects row groups worth reading, and closes the least recently written file when it needs another. Its files
are reported as rows to the driver, which decides which become part of the archive. A failed task leaves files that do
not.
Contract: a file is on disk (fsync) before its row is returned. No loop over records.
"""

from __future__ import annotations

import os
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..syncing import sync_directory, sync_file
from .archive_layout import HOUR_US, DataFile

OPEN_FILES = 16
GROUP_ROWS = 1 << 17
GROUP_BYTES = 16 << 20
HOURS = (-17_259_888, 70_389_527)  # what a calendar has: the years 1 to 9999

TIME = pa.timestamp("us", "UTC")
HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIME),
        ("timestampType", pa.int32()),
    ]
)
"""Columns of a file. The topic, the date and the hour are in its path, and the topic also in the file."""

WITH_TOPIC = SCHEMA.append(pa.field("topic", pa.string()))

WRITTEN = pa.schema(
    [("staged", pa.string()), ("topic", pa.string())]
    + [
        (name, pa.int64())
        for name in ("partition", "hour", "first", "last", "records", "size_bytes", "from_us", "to_us")
    ]
)
"""Rows that go back to the driver: `DataFile`."""


class FileKey(NamedTuple):
    """The topic, partition and hour of a file."""

    topic: str
    partition: int
    hour: int


class ArchiveFiles:
    """The files that one task writes below `staging`."""

    def __init__(self, staging: str, schema: pa.Schema, compression: str) -> None:
        self._staging = staging
        self._schema = schema
        self._compression = compression
        self._open: OrderedDict[FileKey, _File] = OrderedDict()

    def add(self, batch: pa.RecordBatch) -> Iterator[DataFile]:
        """Write a batch. Yields files that had to be closed."""
        for place, piece in pieces(batch):
            if place not in self._open and len(self._open) == OPEN_FILES:
                yield self._open.popitem(last=False)[1].close()
            file = self._open.get(place) or _File(self._staging, place, self._schema, self._compression)
            self._open[place] = file
            self._open.move_to_end(place)
            file.add(piece)

    def close(self) -> Iterator[DataFile]:
        """Close all files, and have them survive a power cut."""
        while self._open:
            yield self._open.popitem(last=False)[1].close()
        sync_directory(self._staging)


class _File:
    """One file being written: records of one place, in the order of their offsets."""

    def __init__(self, staging: str, place: FileKey, schema: pa.Schema, compression: str) -> None:
        self._place = place
        self._staged = f"{uuid.uuid4().hex}.inprogress"
        self._path = os.path.join(staging, self._staged)
        self._schema = schema
        self._writer = pq.ParquetWriter(self._path, schema, compression=compression)
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = self._records = 0
        self._first = self._last = -1
        self._from_us = self._to_us = 0

    def add(self, piece: pa.RecordBatch) -> None:
        """Take records; write them once they are worth a row group."""
        self._note(piece)
        self._waiting.append(piece)
        self._waiting_rows += piece.num_rows
        self._waiting_bytes += piece.nbytes
        if self._waiting_rows >= GROUP_ROWS or self._waiting_bytes >= GROUP_BYTES:
            self._flush()

    def _note(self, piece: pa.RecordBatch) -> None:
        times = piece["timestamp"].cast(pa.int64()).to_numpy()
        earliest, latest = int(times.min()), int(times.max())
        if not self._records:
            self._first = piece["offset"][0].as_py()
            self._from_us, self._to_us = earliest, latest
        self._last = piece["offset"][-1].as_py()
        self._from_us, self._to_us = min(self._from_us, earliest), max(self._to_us, latest)
        self._records += piece.num_rows

    def _flush(self) -> None:
        columns = pa.Table.from_batches(self._waiting).select(self._schema.names)
        self._writer.write_table(columns.cast(self._schema))
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0

    def close(self) -> DataFile:
        """Write out the rest and sync."""
        if self._waiting:
            self._flush()
        self._writer.close()
        sync_file(self._path)
        size_bytes = os.path.getsize(self._path)
        return DataFile(
            self._staged, *self._place, self._first, self._last, self._records, size_bytes, self._from_us, self._to_us
        )


def pieces(batch: pa.RecordBatch) -> Iterator[tuple[FileKey, pa.RecordBatch]]:
    """A batch by place, each in its order."""
    if not batch.num_rows:
        return
    topics = batch["topic"].dictionary_encode()
    hours = np.floor_divide(batch["timestamp"].cast(pa.int64()).to_numpy(), HOUR_US).clip(*HOURS)
    sorts = (hours, batch["partition"].to_numpy(), topics.indices.to_numpy())
    if not all(_is_constant(column) for column in sorts):
        order = np.lexsort(sorts)  # stable: within a place the order stays
        batch = batch.take(pa.array(order))
        sorts = tuple(column[order] for column in sorts)
    for start, end in _stretches(sorts):
        hour, partition, topic = (int(column[start]) for column in sorts)
        yield FileKey(topics.dictionary[topic].as_py(), partition, hour), batch.slice(start, end - start)


def _is_constant(column: np.ndarray) -> bool:
    return bool((column == column[0]).all())


def _stretches(columns: tuple[np.ndarray, ...]) -> Iterator[tuple[int, int]]:
    """Starts and ends of the stretches in which all columns keep their values."""
    changes = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    bounds = [0, *(np.flatnonzero(changes) + 1).tolist(), len(columns[0])]
    yield from pairwise(bounds)


def as_batch(files: list[DataFile]) -> pa.RecordBatch:
    """Files as rows for the driver."""
    columns = [[getattr(file, name) for file in files] for name in WRITTEN.names]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, WRITTEN, strict=True)], schema=WRITTEN
    )


def write(
    batches: Iterator[pa.RecordBatch], staging: str, *, with_topic: bool, compression: str
) -> Iterator[pa.RecordBatch]:
    """Write all of a task's records below `staging`. Yields what it wrote, as `WRITTEN`."""
    files = ArchiveFiles(staging, WITH_TOPIC if with_topic else SCHEMA, compression)
    for batch in batches:
        if closed := list(files.add(batch)):
            yield as_batch(closed)
    if closed := list(files.close()):
        yield as_batch(closed)
