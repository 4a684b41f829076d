"""Numbers from Arrow to numpy and back, without importing pandas.

Idea: pyarrow's own conversions (`pa.array`, `pa.scalar`, `to_numpy`) import pandas wherever it is installed: half a
second and some 40 MB per process. This module uses the buffers of an array instead.
Contract: numbers are shared, not copied, and read-only where Arrow has them; flags are copied. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa


def array_of(numbers: np.ndarray, kind: pa.DataType) -> Any:
    """Numbers as an Arrow array of a type of their width, over the same memory. They must be contiguous."""
    import pyarrow as pa

    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def numbers_of(array: pa.Array) -> np.ndarray:
    """Integers or times of an array without nulls, as signed integers of their width."""
    assert not array.null_count, "what stands where nothing is has no meaning"
    width = array.type.bit_width // 8
    if not len(array):
        return np.empty(0, f"<i{width}")
    return np.frombuffer(array.buffers()[1], f"<i{width}", len(array), array.offset * width)


def filled(array: Any, number: int) -> Any:
    """An array of int64 with a number in place of its nulls."""
    return array.fill_null(array_of(np.array([number]), array.type)[0]) if array.null_count else array


def present_in(array: pa.Array) -> np.ndarray:
    """Which elements are not null, bool, shape (len(array),)."""
    bits = array.buffers()[0]
    if bits is None:
        return np.full(len(array), array.null_count == 0)
    first = array.offset
    found = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little", count=first + len(array))
    return found[first:].view(bool)


def value_offsets(array: pa.Array) -> np.ndarray:
    """The offsets of an array of binary, lists or text, one more than it has values; they need not begin at 0."""
    return np.frombuffer(array.buffers()[1], "<i4", len(array) + 1, 4 * array.offset)
