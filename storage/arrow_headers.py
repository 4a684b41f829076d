"""Headers in Arrow: a list of structs `key` and `value` per record, null where it has none.

Idea: a batch stores the headers of a record as one msgpack map (FORMAT.md). Records mostly repeat the headers of
others, so Arrow finds the distinct maps, and each is unpacked once.
Contract: `header_column` reproduces the bytes that `unpacked` was given. Of two headers with one name in a record the
later one wins; a null value becomes an empty one. Pure, except that pyarrow is imported when needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from . import columns
from .arrow_numbers import present_in, value_offsets
from .encoding import HEADER_DECODER, pack_headers
from .errors import InvalidBatch
from .header import ColumnId

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from .encoding import Raw


def header_type() -> pa.DataType:
    """The type of a column of headers."""
    import pyarrow as pa

    return pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


# -- from batches -----------------------------------------------------------------------------------------


def unpacked(packed: pa.Array, kind: pa.DataType) -> pa.Array:
    """Packed headers as lists of type `kind`: `header_type`, with whatever names of fields. Raises InvalidBatch."""
    import pyarrow as pa

    if packed.null_count == len(packed):
        return pa.nulls(len(packed), kind)
    encoded: Any = packed.dictionary_encode()
    return _lists(encoded.dictionary.to_pylist(), kind).take(encoded.indices)


def _lists(packed: list[bytes], kind: Any) -> pa.Array:
    """One list for each map, made of buffers: `pa.array` would import pandas."""
    import pyarrow as pa

    try:
        maps = [HEADER_DECODER.decode(one) if one else {} for one in packed]
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidBatch(f"headers of a record are not a map of text to bytes ({error})") from None
    bounds = np.cumsum([0, *map(len, maps)], dtype="<i4")
    names = _binary([name.encode() for one in maps for name in one], pa.string())
    values = _binary([value for one in maps for value in one.values()], pa.binary())
    array, count = pa.Array.from_buffers, bounds.item(-1)
    entries = array(kind.value_type, count, [None], children=[names, values])
    present = columns.encode_validity([bool(one) for one in maps])
    return array(kind, len(maps), [pa.py_buffer(present), pa.py_buffer(bounds)], children=[entries])


def _binary(values: list[bytes], kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    laid_out = columns.pieces(values)
    block = pa.py_buffer(columns.join(laid_out.parts, laid_out.size))
    return pa.Array.from_buffers(kind, len(values), [None, block, block.slice(columns.data_start(len(values)))])


# -- to batches -------------------------------------------------------------------------------------------


def as_headers(array: Any) -> pa.ListArray:
    """An array of headers as `encode_arrow` takes it: lists of structs of `key` and `value`. Raises InvalidBatch."""
    import pyarrow as pa

    wanted = header_type()
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), wanted)
    entry = array.type.value_type if pa.types.is_list(array.type) or pa.types.is_large_list(array.type) else None
    if entry is None or not pa.types.is_struct(entry) or {field.name for field in entry} != {"key", "value"}:
        raise InvalidBatch(f"column 'headers' has type {array.type}; {wanted} belongs there")
    try:
        return array if array.type.equals(wanted) else array.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidBatch(f"column 'headers' of type {array.type} cannot become {wanted}: {error}") from None


def header_column(headers: pa.ListArray, codec: int) -> list[tuple[int, int, Raw]]:
    """Packed headers; nothing when no record has any. Raises InvalidBatch on a header without a name."""
    bounds = value_offsets(headers)
    counts = np.diff(bounds)
    if headers.null_count:
        counts[~present_in(headers)] = 0
    having = np.flatnonzero(counts)
    if not len(having):
        return []
    first, last = bounds.item(0), bounds.item(-1)
    entries: Any = headers.values.slice(first, last - first)
    names, contents = entries.field("key"), entries.field("value")
    if entries.null_count or names.null_count:
        raise InvalidBatch("a header without a name; each needs one")
    starts = bounds[having] - first
    values = [one or b"" for one in contents.to_pylist()]
    packed = _packed(names.to_pylist(), values, starts, starts + counts[having])
    lengths = np.zeros(len(headers), np.int64)
    lengths[having] = list(map(len, packed))
    return [(ColumnId.HEADERS, codec, columns.joined(lengths, packed))]


def _packed(names: Sequence[str], contents: Sequence[bytes], starts: np.ndarray, ends: np.ndarray) -> list[Any]:
    """The headers of each record that has any."""
    return [
        pack_headers(dict(zip(names[start:end], contents[start:end], strict=True)))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
