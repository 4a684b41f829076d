"""Batches as Arrow: views without copies, and the fastest decoder. Batches from Arrow are arrow_encoding.py.

Optional: everything else works without pyarrow, which is imported when first needed.
Contract: offsets are validated before Arrow may follow them. Pure but for that import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from . import columns
from .batch import Batch, ColumnId
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
