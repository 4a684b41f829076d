"""The Arrow side of a batch: views without copies, batches from Arrow arrays, and the fastest decoder.

Optional: everything else works without pyarrow, which is imported when first needed.
Contract: offsets are validated before Arrow may follow them. Pure but for that import.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from . import columns
from .batch import Batch, Codec, ColumnId, Kind, assemble
from .errors import InvalidBatch, MissingLibrary

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

    import pyarrow as pa

TO_PYLIST_IS_FAST = 26
"""First pyarrow whose BinaryArray.to_pylist beats slicing (30 against 85 ns a value; 18 took 1080)."""


@lru_cache(maxsize=1)
def fast_decoder() -> Callable[[Buffer, int], list[bytes]] | None:
    """`to_pylist` where pyarrow is installed and quick at it, else None."""
    try:
        import pyarrow
    except ImportError:
        return None
    if int(pyarrow.__version__.split(".")[0]) < TO_PYLIST_IS_FAST:
        return None
    return lambda column, count: binary_array(column, count).to_pylist()


def binary_array(
    column: Buffer, count: int, validity: Buffer | None = None, *, checked: bool = False
) -> pa.BinaryArray:
    """A variable column as an Arrow array over the same memory. Raises InvalidBatch (not when `checked` before)."""
    import pyarrow as pa

    if not checked:
        columns.check_variable(column, count)
        if validity is not None:
            columns.decode_validity(validity, count)
    view = memoryview(column)
    present = None if validity is None else pa.py_buffer(validity)
    data = pa.py_buffer(view[columns.data_start(count) :])
    return pa.BinaryArray.from_buffers(pa.binary(), count, [present, pa.py_buffer(view), data])


def record_batch(batch: Batch, names: Sequence[str], schema: pa.Schema | None = None) -> pa.RecordBatch:
    """See `Batch.arrow`; `schema` is that of the columns, made before by who needs many. Raises MissingLibrary."""
    try:
        import pyarrow as pa
    except ModuleNotFoundError:
        raise MissingLibrary("Arrow batches need pyarrow: pip install 'penstock[arrow]'") from None
    arrays = [_ARRAYS[name](batch) for name in names]
    if schema is not None:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def _value(batch: Batch) -> pa.Array:
    column = batch.column(ColumnId.VALUE)
    if column is None:
        raise InvalidBatch(f"batch {batch.seq} holds no records")
    return binary_array(column, batch.record_count, checked=batch.checked)


def _nullable(id_: int, validity_id: int | None) -> Callable[[Batch], pa.Array]:
    def array(batch: Batch) -> pa.Array:
        column = batch.column(id_)
        if column is None:
            return _nulls(batch.record_count)
        validity = None if validity_id is None else batch.column(validity_id)
        return binary_array(column, batch.record_count, validity, checked=batch.checked)

    return array


@lru_cache(maxsize=256)
def _nulls(count: int) -> pa.Array:
    """Arrays never change: batches of equal length share it."""
    import pyarrow as pa

    return pa.nulls(count, pa.binary())


def _offset(batch: Batch) -> pa.Array:
    import pyarrow as pa

    offsets = np.arange(batch.base_offset, batch.base_offset + batch.record_count, dtype=np.int64)
    return pa.Array.from_buffers(pa.int64(), batch.record_count, [None, pa.py_buffer(offsets)])


def _timestamp(batch: Batch) -> pa.Array:
    import pyarrow as pa

    times: Buffer | np.ndarray | None = batch.event_times()
    if times is None:  # one time over and over: bytes repeat four times as fast as numpy fills
        times = batch.append_time_us.to_bytes(8, "little", signed=True) * batch.record_count
    return pa.Array.from_buffers(pa.timestamp("us", "UTC"), batch.record_count, [None, pa.py_buffer(times)])


_ARRAYS: dict[str, Callable[[Batch], pa.Array]] = {
    "value": _value,
    "key": _nullable(ColumnId.KEY, ColumnId.KEY_VALIDITY),
    "headers": _nullable(ColumnId.HEADERS, None),
    "offset": _offset,
    "timestamp": _timestamp,
}


def encode_arrow(
    values: pa.Array,
    *,
    keys: pa.Array | None = None,
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
