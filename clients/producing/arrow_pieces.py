"""Divides Arrow data into pieces: tables, record batches, arrays, or a stream of record batches.

Idea: rows for several partitions are ordered by partition with one sort and one take per block, and each partition's
run of rows is then cut without a copy. Where keys repeat, each distinct one is hashed once.

Contract: as bulk.py. Rows become no Python objects, except keys that choose a partition, and headers. An unusable
column is refused before anything of its block is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ...broker.errors import UnknownPartition
from ...storage.arrow_encoding import as_binary, encode_arrow
from ...storage.arrow_headers import as_headers
from ...storage.arrow_numbers import array_of, filled, numbers_of, present_in, value_offsets
from ...storage.errors import InvalidBatch
from ...storage.header_list import of_pairs
from ...transport.partitioner import grouped
from ...transport.producer_session import TARGET_BYTES
from ..arguments.quantities import event_time
from ..errors import InvalidArgument
from .pieces import (
    HEADERS_BYTES_MAX,
    OVERHEAD_BYTES,
    Piece,
    Shape,
    check_headers,
    check_key,
    check_record,
    packed_bytes,
)
from .queued import uniform_columns

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

    import pyarrow as pa

BLOCK_BYTES_MAX = 64 << 20
"""Of rows that are sorted by partition at once, about: each partition's part of a block is a batch worth sending."""

BLOCK_ROWS_MAX = 1 << 18

SAMPLE = 256
"""Keys that tell whether keys repeat: then each different one of a block is looked at once, not each."""

EXTRAS = ("key", "headers", "timestamp", "partition")
"""Columns beside `value` that a table may have."""

PLACES = ("offset", "topic")
"""Columns that say where rows were read: left out, because they get new places."""

PANDAS_INDEX = "__index_level_"
"""How columns begin that pandas makes of the index of a frame, for example of one that was filtered."""


def arrow_pieces(given: Any, keys: Any, shape: Shape, partition: int | None) -> Iterator[Piece]:
    """Cut a table, record batch, array or chunked array with its `keys`, if it has no column of them."""
    for rows in _batches(_table(given, keys)):
        yield from _cut(_checked(rows, shape, partition), shape, partition)


def stream_pieces(stream: Iterable[Any], keys: Any, shape: Shape, partition: int | None) -> Iterator[Piece]:
    """Cut record batches (or tables) as they come; small ones are put together."""
    if keys is not None:
        raise InvalidArgument("record batches that come one by one bring their keys along: give each a column `key`")
    for table in _gathered(stream, _block_bytes(shape, partition)):
        yield from arrow_pieces(table, None, shape, partition)


# -- rows -----------------------------------------------------------------------------------------------


def _table(given: Any, keys: Any) -> pa.Table:
    """A table of the columns to send. Raises InvalidArgument."""
    import pyarrow as pa

    if isinstance(given, pa.RecordBatch):
        given = pa.Table.from_batches([given])
    elif not isinstance(given, pa.Table):  # a frame of another library, or one column
        given = pa.table(given if hasattr(given, "columns") else {"value": given})
    if "value" not in given.column_names:
        raise InvalidArgument(f'a table to send needs a column "value"; this one has {given.column_names}')
    known = ("value", *EXTRAS, *PLACES)
    unknown = [name for name in given.column_names if name not in known and not name.startswith(PANDAS_INDEX)]
    if unknown:
        raise InvalidArgument(
            f"a table to send has columns {', '.join(map(repr, unknown))}, which no record has: name them value, "
            f"{', '.join(EXTRAS)}, or leave them out ({' and '.join(PLACES)} are passed over)"
        )
    given = given.select(["value", *(name for name in EXTRAS if name in given.column_names)])
    if keys is None:
        return given
    if not isinstance(keys, (pa.Array, pa.ChunkedArray)):
        keys = pa.array(keys, pa.binary())
    if len(keys) != len(given):
        raise InvalidArgument(f"{len(keys)} keys for {len(given)} records: give one (or null) for each")
    return given.drop_columns(["key"] if "key" in given.column_names else []).append_column("key", keys)


def _batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Rows whose columns are one array each. Many small chunks are joined, which costs less than many small batches."""
    chunks = max(column.num_chunks for column in table.columns)
    if chunks > 1 and table.nbytes < TARGET_BYTES * chunks:
        table = table.combine_chunks()
    return (rows for rows in table.to_batches(max_chunksize=BLOCK_ROWS_MAX) if rows.num_rows)


def _gathered(stream: Iterable[Any], wanted: int) -> Iterator[pa.Table]:
    """Tables of at least half of the wanted bytes, except for the last."""
    import pyarrow as pa

    waiting: list[pa.Table] = []
    size = 0
    for given in stream:
        waiting.append(_table(given, None))
        size += waiting[-1].nbytes
        if 2 * size >= wanted:
            yield waiting[0] if len(waiting) == 1 else pa.concat_tables(waiting).combine_chunks()
            waiting, size = [], 0
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def _checked(rows: pa.RecordBatch, shape: Shape, partition: int | None) -> pa.RecordBatch:
    """Cast columns to the types of batches. Raises InvalidBatch, RecordTooLarge, UnknownPartition."""
    import pyarrow as pa

    found: dict[str, Any] = {"value": as_binary(rows.column("value"), "value")}
    names = rows.schema.names
    if "key" in names and (keys := as_binary(rows.column("key"), "key")).null_count < rows.num_rows:
        found["key"] = keys
    if "headers" in names and (headers := as_headers(rows.column("headers"))).null_count < rows.num_rows:
        found["headers"] = headers
    if "timestamp" in names and (times := _times(rows.column("timestamp"), shape)) is not None:
        found["timestamp"] = times
    if "partition" in names and partition is None:
        found["partition"] = _partitions(rows.column("partition"), shape)
    for name, check in (("value", check_record), ("key", check_key)):
        if name in found and found[name].nbytes > shape.max_record_bytes:
            check(_largest(value_offsets(found[name])), shape)
    if "headers" in found:
        _check_headers(found["headers"], shape)
    return pa.RecordBatch.from_arrays(list(found.values()), list(found))


def _largest(offsets: np.ndarray) -> int:
    return int(np.diff(offsets).max(initial=0))


def _check_headers(headers: Any, shape: Shape) -> None:
    """Raise RecordTooLarge for a row with too large headers. Rows near the limit are packed to find out."""
    most = min(shape.max_record_bytes, HEADERS_BYTES_MAX)
    for row in np.flatnonzero(2 * np.diff(sum(_header_ends(headers))) > most).tolist():
        entries = headers[row].as_py() or ()
        check_headers(packed_bytes(of_pairs([(entry["key"], entry["value"]) for entry in entries])), shape)


def _header_ends(headers: Any) -> list[np.ndarray]:
    """Bytes of names, of values and beside them, up to each row, from anywhere on."""
    runs = value_offsets(headers)
    bytes_of = [value_offsets(headers.values.field(name))[runs] for name in ("key", "value")]
    return [OVERHEAD_BYTES * runs.astype(np.int64), *bytes_of]


def _times(column: Any, shape: Shape) -> Any:
    """Event times as int64; a missing one is the moment of sending, as where only some records of a batch have one."""
    import pyarrow as pa

    if column.null_count == len(column):
        return None
    if not (pa.types.is_integer(column.type) or pa.types.is_timestamp(column.type)):
        raise InvalidBatch(
            f"column 'timestamp' has type {column.type}; timestamps or whole microseconds UTC belong there"
        )
    try:
        if not pa.types.is_integer(column.type):
            nanoseconds = column.type.unit == "ns"  # are cut off; what is coarser may be too far away
            column = column.cast(pa.timestamp("us", "UTC"), safe=not nanoseconds)
            times = column.cast(pa.int64())
        else:
            times = column.cast(pa.int64())
            given = numbers_of(times.drop_null())
            event_time(int(given.min()))
            event_time(int(given.max()))
    except pa.ArrowInvalid as error:
        raise InvalidBatch(f"column 'timestamp' has one that is not in 64 bits of microseconds: {error}") from None
    return filled(times, shape.now_us)


def _partitions(column: Any, shape: Shape) -> Any:
    """Partition numbers; null goes by its key. Raises UnknownPartition."""
    import pyarrow as pa

    if not (pa.types.is_integer(column.type) or pa.types.is_null(column.type)):
        raise InvalidBatch(f"column 'partition' has type {column.type}; numbers of partitions (int32) belong there")
    column = column.cast(pa.int64(), safe=False)  # what is over 63 bits gets negative
    numbers, given = filled(column, -1), numbers_of(column.drop_null())
    if len(given) and not 0 <= (worst := int(given.min() if given.min() < 0 else given.max())) < shape.partitions:
        raise UnknownPartition(
            f"topic {shape.topic} has no partition {worst}: it has {shape.partitions}, numbered from 0"
        )
    return numbers


# -- cutting --------------------------------------------------------------------------------------------


def _block_bytes(shape: Shape, partition: int | None) -> int:
    return TARGET_BYTES if partition is not None else min(TARGET_BYTES * shape.partitions, BLOCK_BYTES_MAX)


def _cut(rows: pa.RecordBatch, shape: Shape, partition: int | None) -> Iterator[Piece]:
    names = rows.schema.names
    if partition is not None or not {"key", "partition"} & set(names):
        yield from _pieces(rows, shape, partition)
        return
    for block, _ in _even(rows, _block_bytes(shape, None)):
        yield from _by_partition(block, shape)


def _by_partition(rows: pa.RecordBatch, shape: Shape) -> Iterator[Piece]:
    """Rows by partition; rows for any partition come last."""
    import pyarrow as pa

    anywhere = shape.partitions
    order, groups = grouped(_numbers(rows, shape), anywhere + 1)
    if len(groups) > 1:
        rows = rows.take(array_of(order, pa.int64()))
    for number, start, end in groups:
        yield from _pieces(rows.slice(start, end - start), shape, None if number == anywhere else number)


def _numbers(rows: pa.RecordBatch, shape: Shape) -> np.ndarray:
    """The partition of each row, int64; shape.partitions stands for any."""
    names, anywhere = rows.schema.names, shape.partitions
    numbers = numbers_of(rows.column("partition")) if "partition" in names else None
    if numbers is not None and (numbers >= 0).all():
        return numbers
    by_key = _by_key(rows.column("key"), shape) if "key" in names else np.full(rows.num_rows, anywhere)
    return by_key if numbers is None else np.where(numbers < 0, by_key, numbers)


def _by_key(keys: pa.Array, shape: Shape) -> np.ndarray:
    if shape.partitions == 1:
        return np.zeros(len(keys), np.int64)
    if not keys.null_count:
        return _hashed(keys, shape)
    found = np.full(len(keys), shape.partitions)
    found[present_in(keys)] = _hashed(keys.drop_null(), shape)
    return found


def _hashed(keys: pa.Array, shape: Shape) -> np.ndarray:
    sample = keys.slice(0, SAMPLE)
    if 16 * len(sample.unique()) > 15 * len(sample):
        return shape.partitioner.of_each(keys.to_pylist(), shape.partitions)
    different = keys.dictionary_encode()
    return shape.partitioner.of_each(different.dictionary.to_pylist(), shape.partitions)[numbers_of(different.indices)]


def _even(rows: pa.RecordBatch, wanted: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Runs of rows of equal bytes, about `wanted` or less each and of one row at least, with their bytes."""
    ends = _ends(rows)
    total = ends.item(-1)
    parts = -(-total // wanted)
    marks = total * np.arange(1, parts) // parts
    cuts = np.unique(np.searchsorted(ends, marks) + 1).tolist()
    start = size = 0
    for end in [*cuts, rows.num_rows] if parts > 1 else [rows.num_rows]:
        if start < end:
            yield rows.slice(start, end - start), ends.item(end - 1) - size
            start, size = end, ends.item(end - 1)


def _ends(rows: pa.RecordBatch) -> np.ndarray:
    """Bytes of everything up to and with each row, int64."""
    found = [rows.column(name) for name in ("value", "key") if name in rows.schema.names]
    bounds = [value_offsets(column) for column in found]
    if "headers" in rows.schema.names:
        bounds += _header_ends(rows.column("headers"))
    ends = OVERHEAD_BYTES * np.arange(1, rows.num_rows + 1)
    for offsets in bounds:
        ends += offsets[1:]
        ends -= offsets.item(0)
    return ends


def _pieces(rows: pa.RecordBatch, shape: Shape, partition: int | None) -> Iterator[Piece]:
    for part, size in _even(rows, TARGET_BYTES):
        yield _piece(part, size, shape, partition)


def _piece(rows: pa.RecordBatch, size: int, shape: Shape, partition: int | None) -> Piece:
    found = dict(zip(rows.schema.names, rows.columns, strict=True))
    values, keys, times = found["value"], found.get("key"), found.get("timestamp")

    def make(producer_id: int, epoch: int, sequence: int) -> Buffer:
        return encode_arrow(
            values,
            keys=keys,
            headers=found.get("headers"),
            event_times=None if times is None else numbers_of(times),
            codec=shape.codec,
            kind=shape.kind,
            producer_id=producer_id,
            producer_epoch=epoch,
            first_sequence=sequence,
            **uniform_columns(shape.queued, len(values)),
        )

    return Piece(partition, rows.num_rows, size, make)
