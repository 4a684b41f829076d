"""The Arrow side of a batch: views without copies, batches from Arrow arrays, and the fastest decoder.

Optional: everything else works without pyarrow, which is imported when first needed.
Contract: offsets are validated before Arrow may follow them. Pure but for that import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from . import columns
from .batch import Batch, Codec, ColumnId, Kind, assemble
from .encoding import not_before_column, priority_column
from .errors import InvalidBatch, MissingLibrary

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

    import pyarrow as pa

ARROW_COLUMNS = ("value", "key", "offset", "timestamp")
"""What an Arrow batch has unless asked for other columns."""

TO_PYLIST_IS_FAST = 26
"""First pyarrow whose BinaryArray.to_pylist beats slicing (30 against 85 ns a value; 18 took 1080)."""


@lru_cache(maxsize=1)
def is_fast() -> bool:
    """Whether pyarrow is installed, and quicker than slicing."""
    try:
        import pyarrow
    except ImportError:
        return False
    return int(pyarrow.__version__.split(".")[0]) >= TO_PYLIST_IS_FAST


def decode_runs(column: Buffer, count: int, first: int, *, checked: bool) -> Iterator[list[bytes]]:
    """As `columns.decode_runs`, through Arrow."""
    array = binary_array(column, count, checked=checked)
    step = columns.run_length(memoryview(column).nbytes - columns.data_start(count), count)
    for begin in range(first, count, step):
        yield array.slice(begin, step).to_pylist()


class Kit(NamedTuple):
    """What every batch needs of pyarrow, looked up once: a look costs as much as a column."""

    array: Callable[..., pa.Array]
    buffer: Callable[[Buffer], pa.Buffer]
    batch: Callable[..., pa.RecordBatch]
    binary: pa.DataType
    int64: pa.DataType
    time: pa.DataType


@lru_cache(maxsize=1)
def kit() -> Kit:
    """Raises MissingLibrary."""
    try:
        import pyarrow as pa
    except ModuleNotFoundError:
        raise MissingLibrary("Arrow batches need pyarrow: pip install 'penstock[arrow]'") from None
    return Kit(
        pa.Array.from_buffers, pa.py_buffer, pa.RecordBatch.from_arrays,
        pa.binary(), pa.int64(), pa.timestamp("us", "UTC"),
    )  # fmt: skip


def binary_array(
    column: Buffer, count: int, validity: Buffer | None = None, *, checked: bool = False
) -> pa.BinaryArray:
    """A variable column as an Arrow array over the same memory. Raises InvalidBatch (not when `checked` before)."""
    if not checked:
        columns.check_variable(column, count)
        if validity is not None:
            columns.decode_validity(validity, count)
    arrow = kit()
    block = arrow.buffer(column)
    present = None if validity is None else arrow.buffer(validity)
    return arrow.array(arrow.binary, count, [present, block, block.slice(columns.data_start(count))])


def record_batch(batch: Batch, names: Sequence[str], schema: pa.Schema | None = None) -> pa.RecordBatch:
    """See `Batch.arrow`; `schema` is that of the columns, made before by who needs many. Raises MissingLibrary."""
    arrow = kit()
    arrays = [_ARRAYS[name](batch, arrow) for name in names]
    return arrow.batch(arrays, list(names)) if schema is None else arrow.batch(arrays, schema=schema)


def _value(batch: Batch, _: Kit) -> pa.Array:
    column = batch.column(ColumnId.VALUE)
    if column is None:
        raise InvalidBatch(f"batch {batch.seq} holds no records")
    return binary_array(column, batch.record_count, checked=batch.checked)


def _key(batch: Batch, _: Kit) -> pa.Array:
    column = batch.column(ColumnId.KEY)
    if column is None:
        return _nulls(batch.record_count)
    return binary_array(column, batch.record_count, batch.column(ColumnId.KEY_VALIDITY), checked=batch.checked)


def _headers(batch: Batch, _: Kit) -> pa.Array:
    column = batch.column(ColumnId.HEADERS)
    if column is None:
        return _nulls(batch.record_count)
    return binary_array(column, batch.record_count, checked=batch.checked)


@lru_cache(maxsize=256)
def _nulls(count: int) -> pa.Array:
    """Arrays never change: batches of equal length share it."""
    import pyarrow as pa

    return pa.nulls(count, pa.binary())


def _offset(batch: Batch, arrow: Kit) -> pa.Array:
    return arrow.array(arrow.int64, batch.record_count, [None, arrow.buffer(batch.offsets())])


def _timestamp(batch: Batch, arrow: Kit) -> pa.Array:
    times: Buffer | np.ndarray | None = batch.event_times()
    if times is None:  # one time over and over: bytes repeat four times as fast as numpy fills
        times = batch.append_time_us.to_bytes(8, "little", signed=True) * batch.record_count
    return arrow.array(arrow.time, batch.record_count, [None, arrow.buffer(times)])


_ARRAYS: dict[str, Callable[[Batch, Kit], pa.Array]] = {
    "value": _value,
    "key": _key,
    "headers": _headers,
    "offset": _offset,
    "timestamp": _timestamp,
}


def encode_arrow(
    values: pa.Array,
    *,
    keys: pa.Array | None = None,
    priorities: Sequence[int] | None = None,
    not_before: Sequence[int] | np.ndarray | None = None,
    codec: int = Codec.NONE,
    producer_id: int = 0,
    producer_epoch: int = 0,
    first_sequence: int = 0,
) -> bytearray:
    """A batch from Arrow arrays of binary or text; copies each column once. Raises InvalidBatch on null values."""
    if not len(values):
        raise InvalidBatch("a batch needs at least one record")
    if values.null_count:
        raise InvalidBatch(f"{values.null_count} of {len(values)} values are null; a record needs a value")
    found = [(int(ColumnId.VALUE), int(codec), _variable(values))]
    if keys is not None:
        if len(keys) != len(values):
            raise InvalidBatch(f"{len(keys)} keys for {len(values)} records: there must be one for each")
        found.append((int(ColumnId.KEY), int(codec), _variable(keys.fill_null(b"") if keys.null_count else keys)))
        if keys.null_count:
            present = keys.is_valid().to_numpy(zero_copy_only=False)
            found.append((int(ColumnId.KEY_VALIDITY), int(Codec.NONE), columns.encode_validity(present)))
    if priorities is not None:
        found += priority_column(priorities)
    if not_before is not None:
        found += not_before_column(not_before)
    return assemble(Kind.RECORDS, len(values), found, producer_id, producer_epoch, first_sequence)


def _variable(array: pa.Array) -> bytes:
    import pyarrow as pa

    if not (pa.types.is_binary(array.type) or pa.types.is_string(array.type)):
        array = array.cast(pa.binary())
    _, offset_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offset_buffer, "<i4", len(array) + 1, 4 * array.offset)
    start, end = int(offsets[0]), int(offsets[-1])
    head = (offsets - start).astype("<i4", copy=False).tobytes()
    data = memoryview(data_buffer)[start:end] if data_buffer is not None else b""
    return b"".join((head, bytes(columns.data_start(len(array)) - len(head)), data))
