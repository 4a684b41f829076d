"""The index of a segment: one row per batch, a hint that saves scanning.

Idea: a row is believed only after the batch it points to agrees, so a missing, stale or damaged index costs a scan and
nothing else. Searching is bisection over rows read one at a time.

Contract: rows are in order of seq, without gaps, and a row is written only once the bytes of its batch are planned.
Rows from scanning a segment and rows of a file (`IndexRows`) are searched by the same functions. Pure but for the file
it is handed to read. Must not know: which batches are committed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from . import layout
from .batch import HEADER_BYTES_MAX, Batch, ColumnId, Kind
from .layout import INDEX_ROW_BYTES, INDEX_ROW_STRUCT, IndexRow

if TYPE_CHECKING:
    from .files import File

_RUN_ROWS = 64
_ROW_FOR_BYTES = 4096
"""So many rows are read at once, or one for so many bytes that are wanted."""

_KIND_AT = layout.INDEX_ROW.fields["kind"][1]  # pyright: ignore[reportOptionalSubscript]

STAGED_ROWS = 1024
"""Rows read at once to skip staged batches."""

_STAGED = bytes([Kind.STAGED])

PASSED_BYTES = 16 << 10
"""A staged batch up to this size is read with the others around it rather than left out of a read."""


class IndexRows(Sequence[IndexRow]):
    """The first `count` rows of an index file. A row that is not there is all zeros."""

    def __init__(self, file: File, count: int) -> None:
        self._file = file
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> IndexRow:  # pyright: ignore[reportIncompatibleMethodOverride]
        data = self._file.pread(INDEX_ROW_BYTES, layout.INDEX_HEADER_BYTES + index * INDEX_ROW_BYTES)
        if len(data) < INDEX_ROW_BYTES:
            return IndexRow(*[0] * len(IndexRow._fields))
        return IndexRow(*INDEX_ROW_STRUCT.unpack(data))


def run_bytes(file: File, first: int, count: int, position: int, most: int, *, cached: bool, whole: bool) -> int:
    """Bytes of as many whole batches from row `first` on as fit into `most`; 0 when the rows do not help.

    With `cached`, rows that are not in memory do not help. Unless `whole`, of a large staged batch there is no more
    than the header, and then it is the last one.
    """
    wanted = min(count, max(_RUN_ROWS, most // _ROW_FOR_BYTES))
    read = file.pread_cached if cached else file.pread
    data = read(wanted * INDEX_ROW_BYTES, layout.INDEX_HEADER_BYTES + first * INDEX_ROW_BYTES) or b""
    if wanted == 1:  # following a log record by record: numpy would cost more than the read
        row = INDEX_ROW_STRUCT.unpack(data) if len(data) == INDEX_ROW_BYTES else None
        if row is None or row[1] != position:
            return 0
        return row[7] if whole or row[8] != Kind.STAGED else min(row[7], HEADER_BYTES_MAX)
    rows = np.frombuffer(data, layout.INDEX_ROW, len(data) // INDEX_ROW_BYTES)
    if len(rows) == 0 or rows["position"][0] != position:
        return 0
    ends = rows["position"] + rows["batch_bytes"].astype(np.int64) - position
    if not whole and Kind.STAGED in data[_KIND_AT::INDEX_ROW_BYTES]:
        large = np.flatnonzero((rows["kind"] == Kind.STAGED) & (rows["batch_bytes"] > PASSED_BYTES))
        if len(large):
            ends = ends[: large[0] + 1]
            ends[-1] += HEADER_BYTES_MAX - int(rows["batch_bytes"][large[0]])
    fits = int(np.searchsorted(ends, most, side="right"))
    return max(int(ends[max(fits - 1, 0)]), 0)


def staged_run(file: File, first: int, count: int, *, cached: bool = False) -> tuple[int, IndexRow] | None:
    """How many staged batches follow each other from row `first` on, at most `count`, and the row of the last one."""
    read = file.pread_cached if cached else file.pread
    size = min(count, STAGED_ROWS) * INDEX_ROW_BYTES
    data = read(size, layout.INDEX_HEADER_BYTES + first * INDEX_ROW_BYTES) or b""
    kinds = bytes(data[_KIND_AT::INDEX_ROW_BYTES])
    many = len(kinds) - len(kinds.lstrip(_STAGED))
    if not many:
        return None
    return many, IndexRow(*INDEX_ROW_STRUCT.unpack_from(data, (many - 1) * INDEX_ROW_BYTES))


def last_at_or_before(rows: Sequence[IndexRow], offset: int) -> int:
    """Index of the last row that starts at or before `offset`; -1 when all start after it."""
    return bisect_right(rows, offset, key=lambda row: row.base_offset) - 1


def first_at_or_after(rows: Sequence[IndexRow], offset: int) -> int:
    """Index of the first row that starts at or after `offset`; the number of rows when none does."""
    return bisect_left(rows, offset, key=lambda row: row.base_offset)


def first_not_before(rows: Sequence[IndexRow], time_us: int) -> int:
    """Index of the first row appended at `time_us` or later; the number of rows when there is none."""
    return bisect_left(rows, time_us, key=lambda row: row.append_time_us)


def row_of(batch: Batch, position: int) -> IndexRow:
    """The row of a batch that stands at `position`."""
    row = IndexRow(
        batch.base_offset, position, batch.append_time_us, batch.term, 0, batch.header_checksum,
        batch.record_count, batch.batch_bytes, batch.kind,
    )  # fmt: skip
    return row._replace(**extras(batch))


def needs_columns(batch: Batch) -> bool:
    """Whether the row of a batch says more than its header does (see `extras`)."""
    return any(column.id in (ColumnId.PRIORITY, ColumnId.NOT_BEFORE) for column in batch.directory())


def extras(batch: Batch) -> dict[str, int]:
    """The optional columns of a row: the range of priorities and the latest not-before."""
    found: dict[str, int] = {}
    priorities, delays = batch.column(ColumnId.PRIORITY), batch.column(ColumnId.NOT_BEFORE)
    if priorities is not None and len(priorities):
        levels = np.frombuffer(priorities, np.uint8)
        found.update(priority_min=int(levels.min()), priority_max=int(levels.max()))
    if delays is not None and len(delays):
        found["not_before_max"] = int(np.frombuffer(delays, "<i8").max())
    return found
