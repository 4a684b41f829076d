"""Rows: batches of one partition as Arrow record batches of the declared schema.

Idea: Spark takes Arrow batches of tens of thousands of rows fastest. A large batch is sliced without copying its
values; small ones are gathered and copied once. Columns with the same value in every row are made once.
Contract: rows come in the order of offsets, none outside the span. The batch's own columns point into its memory for
as long as Spark holds them. Records without headers have null, as with Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..storage.arrow import binary_array
from ..storage.arrow_headers import listed, unpacked
from ..storage.arrow_numbers import array_of
from ..storage.batch import Batch, ColumnId
from ..storage.errors import InvalidBatch
from ..storage.header_list import HeaderPair, pairs_of

LEAST_ROWS = 1 << 14
MOST_ROWS = 1 << 16
"""Of an Arrow batch: less costs Spark more for each, more keeps its caches cold."""

MOST_BYTES = 16 << 20
"""Of an Arrow batch, about, as Spark gets it; one row always comes."""

EVENT_TIME = 0
APPEND_TIME = 1
"""Values of `timestampType`: whether the producer or the broker gave the time."""

_INT32 = pa.int32()
_INT64 = pa.int64()
_BINARY = pa.binary()
_TIMES = pa.timestamp("us", "UTC")


HEADERS = "headers"

Constant = Callable[[int], pa.Array]


class RowSlice(NamedTuple):
    """The `rows` records of one batch from number `first` on."""

    batch: Batch
    first: int
    rows: int


Maker = Callable[[list[RowSlice]], pa.Array]


class Rows:
    """See the module. One partition's batches go in, Arrow batches come out."""

    def __init__(self, schema: pa.Schema, names: Sequence[str], topic: str, partition: int) -> None:
        """`names`: of the columns of `schema`, as `schema.check` gave them."""
        self._schema = schema
        constants = {"topic": partial(_texts, topic), "partition": partial(_numbers, partition)}
        self._constants: list[Constant | None] = [constants.get(name) for name in names]
        self._makers = [_MAKERS.get(name) for name in names]
        if HEADERS in names:
            self._makers[names.index(HEADERS)] = partial(_headers, schema.field(HEADERS).type)
        self._gathered: list[RowSlice] = []
        self._rows = self._bytes = 0

    def add(self, batch: Batch, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        """Take the records of a batch from offset `begin` on and below `end`; what is ready comes out."""
        first = max(begin - batch.base_offset, 0)
        count = min(end - batch.base_offset, batch.record_count) - first
        if count <= 0:
            return
        part_bytes = _raw_bytes(batch) * count // batch.record_count
        if count >= LEAST_ROWS or part_bytes >= MOST_BYTES:
            yield from self.rest()
            yield from self._slices(RowSlice(batch, first, count), part_bytes)
            return
        self._gathered.append(RowSlice(batch, first, count))
        self._rows += count
        self._bytes += part_bytes
        if self._rows >= LEAST_ROWS or self._bytes >= MOST_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """The gathered rows that have not come out yet."""
        parts, self._gathered, self._rows, self._bytes = self._gathered, [], 0, 0
        if parts:
            yield self._made(self._columns(parts), sum(part.rows for part in parts))

    def _slices(self, part: RowSlice, part_bytes: int) -> Iterator[pa.RecordBatch]:
        """One large batch in pieces of about the same length, of columns that are made once."""
        columns = self._columns([part])
        pieces = min(max(-(-part.rows // MOST_ROWS), -(-part_bytes // MOST_BYTES)), part.rows)
        bounds = [part.rows * number // pieces for number in range(pieces + 1)]
        for low, high in pairwise(bounds):
            piece = [column if column is None else column.slice(low, high - low) for column in columns]
            yield self._made(piece, high - low)

    def _columns(self, parts: list[RowSlice]) -> list[pa.Array | None]:
        """The columns that differ from row to row; None for the others."""
        return [None if make is None else make(parts) for make in self._makers]

    def _made(self, columns: list[pa.Array | None], rows: int) -> pa.RecordBatch:
        for place, constant in enumerate(self._constants):
            if constant is not None:
                columns[place] = constant(rows)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _raw_bytes(batch: Batch) -> int:
    """Bytes of its columns once they are inflated: what is stored of them may be a thousandth."""
    return sum(column.raw_bytes for column in batch.directory())


def _values(parts: list[RowSlice]) -> pa.Array:
    return _gather(parts, ColumnId.VALUE, ColumnId.VALUE_VALIDITY)


def _headers(kind: pa.DataType, parts: list[RowSlice]) -> pa.Array:
    if not any(part.batch.has(ColumnId.HEADER_LIST) for part in parts):
        return unpacked(_gather(parts, ColumnId.HEADERS), kind)
    rows: list[Sequence[HeaderPair]] = []
    for batch, first, count in parts:
        found = batch.headers()
        rows += [()] * count if found is None else map(pairs_of, found[first : first + count])
    return listed(rows, kind)


def _keys(parts: list[RowSlice]) -> pa.Array:
    return _gather(parts, ColumnId.KEY, ColumnId.KEY_VALIDITY)


def _gather(parts: list[RowSlice], id_: int, validity: int | None = None) -> pa.Array:
    """One variable column of all parts; copied only where there is more than one."""
    found = [_binary(part, id_, validity) for part in parts]
    return found[0] if len(found) == 1 else pa.concat_arrays(found)


def _binary(part: RowSlice, id_: int, validity: int | None) -> pa.Array:
    batch, first, count = part
    column = batch.column(id_)
    if column is None:
        if id_ == ColumnId.VALUE:
            raise InvalidBatch(f"batch {batch.seq} holds no values")
        return _nulls(count)
    present = None if validity is None else batch.column(validity)
    whole = binary_array(column, batch.record_count, present, checked=batch.checked)
    return whole if count == batch.record_count else whole.slice(first, count)


@lru_cache(maxsize=64)
def _nulls(count: int) -> pa.Array:
    return pa.nulls(count, _BINARY)


def _offsets(parts: list[RowSlice]) -> pa.Array:
    runs = [np.arange(b.base_offset + first, b.base_offset + first + count) for b, first, count in _joined(parts)]
    return array_of(runs[0] if len(runs) == 1 else np.concatenate(runs), _INT64)


def _joined(parts: list[RowSlice]) -> list[RowSlice]:
    """Parts that follow each other without a gap, as one: batches of state between records take no offsets."""
    found = [parts[0]]
    for part in parts[1:]:
        last = found[-1]
        if part.batch.base_offset + part.first == last.batch.base_offset + last.first + last.rows:
            found[-1] = last._replace(rows=last.rows + part.rows)
        else:
            found.append(part)
    return found


def _timestamps(parts: list[RowSlice]) -> pa.Array:
    given = [part.batch.event_times() for part in parts]
    if any(times is not None for times in given):
        found = [_part_times(part, times) for part, times in zip(parts, given, strict=True)]
        times = found[0] if len(found) == 1 else np.concatenate(found)
    else:
        times = np.repeat([part.batch.append_time_us for part in parts], [part.rows for part in parts])
    return array_of(times, _TIMES)


def _part_times(part: RowSlice, times: np.ndarray | None) -> np.ndarray:
    if times is None:
        return np.full(part.rows, part.batch.append_time_us, np.int64)
    return times[part.first : part.first + part.rows]


def _time_types(parts: list[RowSlice]) -> pa.Array:
    kinds = [APPEND_TIME if part.batch.event_times() is None else EVENT_TIME for part in parts]
    if len(set(kinds)) == 1:
        return _numbers(kinds[0], sum(part.rows for part in parts))
    return array_of(np.repeat(np.array(kinds, np.int32), [part.rows for part in parts]), _INT32)


_MAKERS: dict[str, Maker] = {
    "key": _keys,
    "value": _values,
    "offset": _offsets,
    "timestamp": _timestamps,
    "timestampType": _time_types,
}


def _numbers(number: int, rows: int) -> pa.Array:
    """The same number over and over."""
    return (
        _number_run(number).slice(0, rows) if rows <= MOST_ROWS else array_of(np.full(rows, number, np.int32), _INT32)
    )


@lru_cache(maxsize=64)
def _number_run(number: int) -> pa.Array:
    return array_of(np.full(MOST_ROWS, number, np.int32), _INT32)


def _texts(text: str, rows: int) -> pa.Array:
    """The same text over and over, in at most MOST_ROWS rows."""
    return _text_run(text).slice(0, rows)


@lru_cache(maxsize=16)
def _text_run(text: str) -> pa.Array:
    encoded = text.encode()
    bounds = np.arange(MOST_ROWS + 1, dtype=np.int32) * np.int32(len(encoded))
    return pa.StringArray.from_buffers(MOST_ROWS, pa.py_buffer(bounds), pa.py_buffer(encoded * MOST_ROWS))
