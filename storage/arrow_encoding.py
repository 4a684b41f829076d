"""Encodes batches from Arrow arrays: columns become columns, without an object for each record.

Headers are the exception (arrow_headers.py): they are packed one by one for records that have any, and cost nothing for
the others.

Contract: byte for byte what `encoding.encode` makes of the same records; headers that no record has take no column.
Arrays are not copied before the batch is laid out, except parts that must be changed. Pure but for the import of
pyarrow, which happens when it is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import columns
from .arrow_headers import header_columns
from .arrow_numbers import present_in, value_offsets
from .batch import Codec, ColumnId, Kind, assemble
from .encoding import not_before_column, priority_column
from .errors import InvalidBatch

if TYPE_CHECKING:
    import pyarrow as pa

    from .encoding import Raw


def encode_arrow(
    values: pa.Array,
    *,
    keys: pa.Array | None = None,
    headers: pa.ListArray | None = None,
    event_times: Sequence[int] | np.ndarray | None = None,
    priorities: Sequence[int] | None = None,
    not_before: Sequence[int] | np.ndarray | None = None,
    codec: int = Codec.NONE,
    producer_id: int = 0,
    producer_epoch: int = 0,
    first_sequence: int = 0,
    kind: int = Kind.RECORDS,
) -> bytearray:
    """A batch from Arrow arrays of binary or text; copies each column once. Raises InvalidBatch.

    Args:
        headers: lists of structs `key` (text) and `value` (binary), as `arrow_headers.as_headers` gives them.
        event_times: microseconds UTC, one for each record.
    """
    count = len(values)
    if not count:
        raise InvalidBatch("a batch needs at least one record")
    found = _with_validity(as_binary(values, "value"), ColumnId.VALUE, ColumnId.VALUE_VALIDITY, codec)
    if keys is not None and keys.null_count < _same_length("keys", keys, count):
        found += _with_validity(as_binary(keys, "key"), ColumnId.KEY, ColumnId.KEY_VALIDITY, codec)
    if headers is not None and _same_length("headers", headers, count):
        found += header_columns(headers, codec)
    if event_times is not None and _same_length("event times", event_times, count):
        found.append((ColumnId.EVENT_TIME, Codec.NONE, np.asarray(event_times, "<i8").tobytes()))
    if priorities is not None:
        found += priority_column(priorities)
    if not_before is not None:
        found += not_before_column(not_before)
    return assemble(kind, count, found, producer_id, producer_epoch, first_sequence)


def as_binary(array: Any, name: str) -> pa.Array:
    """An array of bytes or text as `encode_arrow` takes it: of binary. Raises InvalidBatch, which says its `name`."""
    import pyarrow as pa

    try:
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if pa.types.is_binary(array.type):
            return array
        if pa.types.is_null(array.type) or _is_bytes(pa.types, array.type):
            return array.cast(pa.binary())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidBatch(f"column {name!r} of type {array.type} cannot become binary: {error}") from None
    raise InvalidBatch(f"column {name!r} has type {array.type}; binary or text belongs there")


def _is_bytes(types: Any, kind: Any) -> bool:
    tests = (types.is_string, types.is_large_string, types.is_large_binary, types.is_fixed_size_binary)
    views = (types.is_binary_view, types.is_string_view)
    return any(test(kind) for test in (*tests, *views))


def _same_length(name: str, given: Any, count: int) -> int:
    if len(given) != count:
        raise InvalidBatch(f"{len(given)} {name} for {count} records: there must be one for each")
    return count


def _variable(array: pa.Array) -> columns.Pieces:
    """Offsets and bytes as they lie; offsets of a slice are moved to begin at 0."""
    bounds, data = value_offsets(array), array.buffers()[2]
    start, end = bounds.item(0), bounds.item(-1)
    offsets = (bounds - start if start else bounds).tobytes()
    block = memoryview(data)[start:end] if data is not None else b""
    head = columns.data_start(len(array))
    return columns.Pieces([offsets, bytes(head - len(offsets)), block], head + end - start)


def _empty() -> Any:
    """An empty Arrow buffer. pyarrow would import pandas to make one of b""."""
    import pyarrow as pa

    return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(bytes(8)), pa.py_buffer(b"")])[0]


def _with_validity(array: pa.Array, id_: int, validity: int, codec: int) -> list[tuple[int, int, Raw]]:
    """Keys or values, and a bitmap where some are null."""
    if not array.null_count:
        return [(id_, codec, _variable(array))]
    present = columns.encode_validity(present_in(array))
    return [(id_, codec, _variable(array.fill_null(_empty()))), (validity, Codec.NONE, present)]
