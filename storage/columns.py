"""Column encodings: turn the values of one column into bytes and back.

A fixed column is a plain little-endian array. A variable column is int32 offsets from 0 (one more than values),
padding to 8 bytes, then the bytes end to end: the layout of an Arrow binary column, so Arrow reads mapped bytes
without a copy.

Contract: decoding never trusts the bytes: sizes and offsets are checked before anything is sliced. Pure; knows nothing
of batches, records or files.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, overload

import msgspec
import numpy as np

from .errors import BatchTooLarge, InvalidBatch

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

COLUMN_BYTES_MAX = 2**31 - 1
"""An int32 offset cannot point further."""

FEW = 64
"""Below this many values the struct module beats numpy's start-up cost."""

_FEW_OFFSETS = [struct.Struct(f"<{count + 1}i") for count in range(FEW + 1)]


def data_start(count: int) -> int:
    """Position of the first data byte in a variable column of `count` values."""
    return (4 * (count + 1) + 7) & ~7


_FEW_STARTS = [data_start(count) for count in range(FEW + 1)]

RUN_BYTES = 256 << 10
"""Of objects, made from a column at once."""

OBJECT_BYTES = 64
"""The overhead of an object, with the list's pointer to it."""

LARGE = 2048
"""From this many bytes a value on, slicing the column in place is cheaper than slicing a copy of it."""

REPEATED_BYTES = 16 << 10
"""Of a value that is repeated, laid out at once."""

Lengths = list[int] | np.ndarray
"""Bytes of each value: a list for FEW values, an array for more."""


class Pieces(msgspec.Struct, frozen=True, gc=False):
    """A variable column that is not one block yet: its parts in order, the values themselves among them.

    The encoder joins all parts of all columns at once, so that each value is copied once.
    """

    parts: list[Buffer]
    size: int


class EndToEnd(Sequence[bytes]):
    """Values that lie end to end in one block, without an object for each."""

    __slots__ = ("_block", "_bounds")

    def __init__(self, block: Buffer, bounds: np.ndarray) -> None:
        """`bounds`: int64, where the first value begins in the block, and where each ends."""
        self._block = block
        self._bounds = bounds

    @classmethod
    def of(cls, values: Sequence[bytes]) -> EndToEnd:
        """Copied into one block."""
        return cls(b"".join(values), np.cumsum([0, *map(len, values)]))

    def __len__(self) -> int:
        return len(self._bounds) - 1

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> EndToEnd: ...
    def __getitem__(self, index: int | slice) -> bytes | EndToEnd:
        if isinstance(index, int):
            start, end = self._bounds[:-1].item(index), self._bounds[1:].item(index)
            return bytes(memoryview(self._block)[start:end])
        first, last, step = index.indices(len(self))
        assert step == 1, "values that lie end to end have no steps"
        return EndToEnd(self._block, self._bounds[first : max(first, last) + 1])

    @property
    def lengths(self) -> np.ndarray:
        """Bytes of each value."""
        return np.diff(self._bounds)

    @property
    def block(self) -> memoryview:
        """The bytes of all values."""
        return memoryview(self._block)[self._bounds.item(0) : self._bounds.item(-1)]


def lengths(values: Sequence[bytes]) -> Lengths:
    """Bytes of each value: one pass over the values, shared by all callers. Raises InvalidBatch."""
    if isinstance(values, EndToEnd):
        return values.lengths
    try:
        if len(values) <= FEW:
            return list(map(len, values))
        return np.fromiter(map(len, values), np.int64, len(values))
    except TypeError as error:
        raise not_bytes(error) from None


def total(lengths: Lengths) -> int:
    """The sum of `lengths`."""
    return sum(lengths) if isinstance(lengths, list) else int(lengths.sum())


def pieces(values: Sequence[bytes], known: Lengths | None = None) -> Pieces:
    """A variable column of bytes-like values, in parts. Raises InvalidBatch, BatchTooLarge.

    Args:
        known: the `lengths` of the values, if the caller has them already.
    """
    offsets, data_bytes = _offsets(lengths(values) if known is None else known)
    start = data_start(len(values))
    data: Sequence[Buffer] = [values.block] if isinstance(values, EndToEnd) else values
    return Pieces([offsets, bytes(start - len(offsets)), *data], start + data_bytes)


def joined(lengths: np.ndarray, data: list[Buffer]) -> Pieces:
    """A variable column whose bytes lie together in blocks `data`. Raises BatchTooLarge."""
    offsets, data_bytes = _offsets(lengths)
    start = data_start(len(lengths))
    return Pieces([offsets, bytes(start - len(offsets)), *data], start + data_bytes)


def repeated(value: bytes, count: int) -> Pieces:
    """A variable column of one value, `count` times. Raises BatchTooLarge.

    In parts of some of it: one part as long as the column would be memory that is touched once, and costs more than
    the copy.
    """
    many = max(min(REPEATED_BYTES // max(len(value), 1), count), 1)
    data: list[Buffer] = [value * many] * (count // many)
    return joined(np.full(count, len(value), np.int64), [*data, value * (count % many)])


def shared(column: Buffer, count: int) -> bytes | None:
    """The value of a variable column in which all are the same, found without a look at each; None where they differ.

    The column's offsets were checked.
    """
    offsets = offsets_of(column, count)
    width = offsets.item(1) - offsets.item(0)
    if offsets.item(-1) - offsets.item(0) != width * count or (np.diff(offsets) != width).any():
        return None
    start = data_start(count) + offsets.item(0)
    data = memoryview(column)[start : start + width * count]
    return bytes(data[:width]) if data[width:] == data[: len(data) - width] else None


def part(column: Buffer, count: int, first: int, many: int) -> Pieces:
    """`many` values that follow each other, from number `first` on, of a variable column whose offsets were checked."""
    bounds = offsets_of(column, count)[first : first + many + 1]
    low, high = bounds.item(0), bounds.item(-1)
    offsets, start = (bounds - bounds[0]).tobytes(), data_start(many)
    data = memoryview(column)[data_start(count) :][low:high]
    return Pieces([offsets, bytes(start - len(offsets)), data], start + high - low)


def join(parts: list[Buffer], size: int) -> bytearray:
    """All parts as one block, which must come out `size` long. Raises InvalidBatch."""
    try:
        block = bytearray().join(parts)
    except TypeError as error:
        raise not_bytes(error) from None
    if len(block) != size:
        raise not_single_bytes()
    return block


def not_bytes(error: TypeError) -> InvalidBatch:
    """The error for values or keys that are no bytes."""
    return InvalidBatch(f"values and keys of records must be bytes ({error}); text needs .encode()")


def not_single_bytes() -> InvalidBatch:
    """The error for records whose length is not that of their bytes."""
    return InvalidBatch("a memoryview in the records is not of single bytes; cast it with .cast('B')")


def _offsets(lengths: Lengths) -> tuple[bytes, int]:
    """The encoded offsets, and how many bytes the values have. Raises BatchTooLarge."""
    data_bytes = total(lengths)
    if data_bytes > COLUMN_BYTES_MAX:
        raise BatchTooLarge(f"a column of {data_bytes} bytes is over {COLUMN_BYTES_MAX}; send fewer records per batch")
    if isinstance(lengths, list):
        return struct.pack(f"<{len(lengths) + 1}i", *accumulate(lengths, initial=0)), data_bytes
    offsets = np.zeros(len(lengths) + 1, "<i4")
    np.cumsum(lengths, out=offsets[1:])
    return offsets.tobytes(), data_bytes


def offsets_of(column: Buffer, count: int) -> np.ndarray:
    """The `count + 1` offsets of a variable column as an int32 view. Raises InvalidBatch if it is too short."""
    _data_bytes(column, count)
    return np.frombuffer(column, "<i4", count + 1)


def check_variable(column: Buffer, count: int) -> None:
    """Validate offsets: they start at 0, never fall, and end at the data's end.

    Unchecked offsets would let a reader address foreign memory. Raises InvalidBatch.
    """
    if count <= FEW:
        _check_few(column, count)
    else:
        _check_many(column, count)


def _check_few(column: Buffer, count: int) -> tuple[int, ...]:
    size = memoryview(column).nbytes
    data_bytes = size - _FEW_STARTS[count]
    if data_bytes < 0:
        raise _too_short(size, count)
    offsets = _FEW_OFFSETS[count].unpack_from(column)
    if offsets[0] != 0 or offsets[-1] != data_bytes:
        raise _bad_ends(offsets[0], offsets[-1], data_bytes)
    if count > 1 and sorted(offsets) != list(offsets):
        raise InvalidBatch("column offsets fall")
    return offsets


def _check_many(column: Buffer, count: int) -> np.ndarray:
    data_bytes = _data_bytes(column, count)
    offsets = np.frombuffer(column, "<i4", count + 1)
    first, last = offsets.item(0), offsets.item(-1)
    if first != 0 or last != data_bytes:
        raise _bad_ends(first, last, data_bytes)
    if np.count_nonzero(offsets[1:] < offsets[:-1]):  # half the time of any()
        raise InvalidBatch("column offsets fall")
    return offsets


def _data_bytes(column: Buffer, count: int) -> int:
    """How many bytes a variable column has behind its offsets. Raises InvalidBatch if it is too short for these."""
    size = memoryview(column).nbytes
    data_bytes = size - data_start(count)
    if data_bytes < 0:
        raise _too_short(size, count)
    return data_bytes


def _too_short(size: int, count: int) -> InvalidBatch:
    return InvalidBatch(f"a column of {size} bytes cannot hold the offsets of {count} values")


def _bad_ends(first: int, last: int, data_bytes: int) -> InvalidBatch:
    return InvalidBatch(f"column offsets run from {first} to {last}, not from 0 to {data_bytes}")


def decode_variable(column: Buffer, count: int) -> list[bytes]:
    """The values of a variable column as bytes objects. Raises InvalidBatch."""
    view = memoryview(column)[data_start(count) :]
    if count > FEW:
        return cut(view, _check_many(column, count).tolist())
    offsets = _check_few(column, count)
    return [bytes(view)] if count == 1 else cut(view, offsets)


def decode_runs(column: Buffer, count: int, first: int) -> Iterator[list[bytes]]:
    """As `decode_variable` from value `first` on, a run (see `run_length`) at a time. Raises InvalidBatch."""
    if count <= FEW and memoryview(column).nbytes <= RUN_BYTES:  # nothing to divide: no time for more
        return iter((decode_variable(column, count)[first:],))
    return _divided(column, count, first)


def _divided(column: Buffer, count: int, first: int) -> Iterator[list[bytes]]:
    bounds = _check_few(column, count) if count <= FEW else _check_many(column, count).tolist()
    view = memoryview(column)[data_start(count) :]
    step = run_length(len(view), count)
    return (cut(view, bounds[begin : begin + step + 1]) for begin in range(first, count, step))


def run_length(data_bytes: int, count: int) -> int:
    """How many values to make at once: objects that are used while they are in the processor's cache."""
    return max(RUN_BYTES * count // (data_bytes + OBJECT_BYTES * count), 1)


def cut(view: memoryview, bounds: Sequence[int]) -> list[bytes]:
    """The values between each two bounds."""
    start, end, count = bounds[0], bounds[-1], len(bounds) - 1
    if count <= 1 or end - start > LARGE * count:
        return [bytes(view[begin:end]) for begin, end in pairwise(bounds)]
    width = bounds[1] - start
    if count > FEW and width * count == end - start and list(bounds) == list(range(start, end + 1, width or 1)):
        return list(_uniform(width, count).unpack(view[start:end]))
    data = bytes(view[start:end])
    if start:
        bounds = [bound - start for bound in bounds]
    return [data[begin:end] for begin, end in pairwise(bounds)]


@lru_cache(maxsize=64)
def _uniform(width: int, count: int) -> struct.Struct:
    """One C call for a batch of records that all have the same length."""
    return struct.Struct(f"{width}s" * count)


def decode_fixed(column: Buffer, count: int, dtype: str) -> np.ndarray:
    """A fixed column as a numpy view of `dtype`, shape (count,). Raises InvalidBatch on a wrong size."""
    size, wanted = memoryview(column).nbytes, count * np.dtype(dtype).itemsize
    if size != wanted:
        raise InvalidBatch(f"a column of {count} {dtype} values has {size} bytes instead of {wanted}")
    return np.frombuffer(column, dtype)


def check_ascending(offsets: np.ndarray) -> None:
    """Validate the offsets of kept records: from 0 up, each above the one before. Raises InvalidBatch."""
    if offsets[0] < 0 or np.count_nonzero(offsets[1:] <= offsets[:-1]):
        raise InvalidBatch("the offsets of kept records do not ascend")


def encode_validity(present: Sequence[bool] | np.ndarray) -> bytes:
    """One bit per value, least significant first: Arrow's validity bitmap."""
    return np.packbits(np.fromiter(present, bool, len(present)), bitorder="little").tobytes()


def decode_validity(column: Buffer, count: int) -> np.ndarray:
    """The bitmap as a bool array of shape (count,). Raises InvalidBatch on a wrong size."""
    size = memoryview(column).nbytes
    if size != (count + 7) // 8:
        raise InvalidBatch(f"a validity bitmap of {count} values has {size} bytes instead of {(count + 7) // 8}")
    return np.unpackbits(np.frombuffer(column, np.uint8), count=count, bitorder="little").view(bool)
