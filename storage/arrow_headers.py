"""Headers in Arrow: a list of structs `key` and `value` per record, null where it has none.

Idea: a batch stores the headers of a record as one msgpack map (FORMAT.md), and beside it as a list where they do not
fit one. Records mostly repeat the headers of others, so Arrow finds the distinct maps, and each is unpacked once.
Contract: `header_columns` reproduces the bytes that were unpacked. Pure, except that pyarrow is imported when needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from . import columns
from .arrow_numbers import present_in, value_offsets
from .encoding import HEADER_DECODER, pack_headers, pack_list
from .errors import InvalidBatch
from .header import ColumnId
from .header_list import HeaderList, HeaderPair, of_pairs

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
    """One list for each map. Raises InvalidBatch."""
    try:
        return listed([tuple(HEADER_DECODER.decode(one).items()) if one else () for one in packed], kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidBatch(f"headers of a record are not a map of text to bytes ({error})") from None


def listed(rows: Sequence[Sequence[HeaderPair]], kind: Any) -> pa.Array:
    """The headers of each record, made of buffers: `pa.array` would import pandas."""
    import pyarrow as pa

    bounds = np.cumsum([0, *map(len, rows)], dtype="<i4")
    names = _binary([name.encode() for one in rows for name, _ in one], pa.string())
    values = _binary([value for one in rows for _, value in one], pa.binary())
    array, count = pa.Array.from_buffers, bounds.item(-1)
    entries = array(kind.value_type, count, [None], children=[names, values])
    present = columns.encode_validity([bool(one) for one in rows])
    return array(kind, len(rows), [pa.py_buffer(present), pa.py_buffer(bounds)], children=[entries])


def _binary(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Values, of which some may be None."""
    import pyarrow as pa

    present = pa.py_buffer(columns.encode_validity([one is not None for one in values])) if None in values else None
    laid_out = columns.pieces(values if present is None else [one or b"" for one in values])
    block = pa.py_buffer(columns.join(laid_out.parts, laid_out.size))
    return pa.Array.from_buffers(kind, len(values), [present, block, block.slice(columns.data_start(len(values)))])


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


def header_columns(headers: pa.ListArray, codec: int) -> list[tuple[int, int, Raw]]:
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
    pairs = list(zip(names.to_pylist(), contents.to_pylist(), strict=True))
    ends = starts + counts[having]
    rows = [of_pairs(pairs[start:end]) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    found = [_column(ColumnId.HEADERS, codec, len(headers), having, list(map(pack_headers, rows)))]
    if HeaderList in set(map(type, rows)):
        found.append(_column(ColumnId.HEADER_LIST, codec, len(headers), having, list(map(pack_list, rows))))
    return found


def _column(id_: int, codec: int, count: int, having: np.ndarray, packed: list[Any]) -> tuple[int, int, Raw]:
    """A column of which only some records have anything."""
    lengths = np.zeros(count, np.int64)
    lengths[having] = list(map(len, packed))
    return id_, codec, columns.joined(lengths, packed)
