"""Batches as Arrow: views without copies, and the fastest decoder. Batches from Arrow are arrow_encoding.py.

Optional: everything else works without pyarrow, which is imported when first needed.
Contract: offsets are validated before Arrow may follow them. Pure but for that import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec
import numpy as np

from . import columns
from .arrow_headers import header_type, listed, unpacked
from .errors import InvalidArgument, InvalidBatch, MissingLibrary, way_to_install
from .header import ColumnId
from .header_list import pairs_of

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

    import pyarrow as pa

ARROW_COLUMNS = ("value", "key", "offset", "timestamp", "headers")
"""Default columns of an Arrow batch: everything stored with the records themselves."""

STORED = frozenset({"value", "key", "timestamp", "headers"})
"""Columns computed from stored ones; wrong when the stored ones were left out."""

TO_PYLIST_IS_FAST = 26
"""First pyarrow whose BinaryArray.to_pylist beats slicing (30 against 85 ns a value; 18 took 1080)."""


class Origin(msgspec.Struct, frozen=True, gc=False):
    """The source of a batch, and the columns asked for; empty if all were."""

    topic: str
    partition: int
    columns: tuple[str, ...] = ()


class RecordColumns(Protocol):
    """The columns of a batch that Arrow takes."""

    seq: int
    base_offset: int
    record_count: int
    append_time_us: int
    checked: bool

    def has(self, id_: int) -> bool: ...

    def column(self, id_: int) -> Buffer | None: ...

    def headers(self) -> list[dict[str, bytes]] | None: ...

    def first_at(self, offset: int) -> int: ...

    def offsets(self) -> np.ndarray: ...

    def event_times(self) -> np.ndarray | None: ...


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
    """The parts of pyarrow that every batch needs, looked up once: a look-up costs as much as a column."""

    array: Callable[..., pa.Array]
    buffer: Callable[[Buffer], pa.Buffer]
    batch: Callable[..., pa.RecordBatch]
    binary: pa.DataType
    int64: pa.DataType
    time: pa.DataType
    headers: pa.DataType
    int32: pa.DataType


@lru_cache(maxsize=1)
def kit() -> Kit:
    """Raises MissingLibrary."""
    try:
        import pyarrow as pa
    except ModuleNotFoundError:
        raise MissingLibrary(f"Arrow batches need pyarrow: {way_to_install('arrow')}") from None
    return Kit(
        pa.Array.from_buffers, pa.py_buffer, pa.RecordBatch.from_arrays,
        pa.binary(), pa.int64(), pa.timestamp("us", "UTC"), header_type(), pa.int32(),
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


def column_names(given: Sequence[str], origin: Origin | None) -> tuple[str, ...]:
    """The columns of these names of batches that come from there. Raises InvalidArgument."""
    for name in given:
        if name not in _ARRAYS:
            known = ", ".join(_ARRAYS if origin is not None else ARROW_COLUMNS)
            raise InvalidArgument(f"{name!r} is no column in Arrow: there are {known}")
        if origin is None and name in ("topic", "partition"):
            raise InvalidArgument(
                f"these batches say no {name}: a log has none, and ranges and consumers of topics tell it"
            )
        if origin is not None and origin.columns and name in STORED and name not in origin.columns:
            raise InvalidArgument(f"column {name!r} was left out of the range: name it in columns= there, too")
    if not given:
        raise InvalidArgument("no columns, no records: name some, or none at all for the usual ones")
    return tuple(given)


def record_batch(
    batch: RecordColumns, names: tuple[str, ...], start: int = 0, origin: Origin | None = None
) -> pa.RecordBatch:
    """The records from offset `start` on; `names` are of `column_names`. Raises MissingLibrary, InvalidBatch."""
    arrow = kit()
    found = arrow.batch([_ARRAYS[name](batch, arrow, origin) for name in names], names)
    return found.slice(batch.first_at(start)) if start > batch.base_offset else found


def _value(batch: RecordColumns, *_: object) -> pa.Array:
    column = batch.column(ColumnId.VALUE)
    if column is None:
        raise InvalidBatch(f"batch {batch.seq} holds no records")
    return binary_array(column, batch.record_count, batch.column(ColumnId.VALUE_VALIDITY), checked=batch.checked)


def _key(batch: RecordColumns, arrow: Kit, _: object) -> pa.Array:
    column = batch.column(ColumnId.KEY)
    if column is None:
        return _null_keys(batch.record_count)
    return binary_array(column, batch.record_count, batch.column(ColumnId.KEY_VALIDITY), checked=batch.checked)


def _headers(batch: RecordColumns, arrow: Kit, _: object) -> pa.Array:
    column = batch.column(ColumnId.HEADERS)
    if column is None:
        return _null_headers(batch.record_count)
    if batch.has(ColumnId.HEADER_LIST):
        return listed([pairs_of(one) for one in batch.headers() or []], arrow.headers)
    return unpacked(binary_array(column, batch.record_count, checked=batch.checked), arrow.headers)


@lru_cache(maxsize=256)
def _null_keys(count: int) -> pa.Array:
    """Arrays never change: batches of equal length share it."""
    return _nulls(kit().binary, count)


@lru_cache(maxsize=256)
def _null_headers(count: int) -> pa.Array:
    return _nulls(kit().headers, count)


def _nulls(kind: pa.DataType, count: int) -> pa.Array:
    """Over memory that batches of other lengths share."""
    return _null_run(kind, (count - 1).bit_length()).slice(0, count)


@lru_cache(maxsize=64)
def _null_run(kind: pa.DataType, bits: int) -> pa.Array:
    import pyarrow as pa

    return pa.nulls(1 << bits, kind)


def _offset(batch: RecordColumns, arrow: Kit, _: object) -> pa.Array:
    return arrow.array(arrow.int64, batch.record_count, [None, arrow.buffer(batch.offsets())])


def _timestamp(batch: RecordColumns, arrow: Kit, _: object) -> pa.Array:
    times: Buffer | np.ndarray | None = batch.event_times()
    if times is None:  # one time over and over: bytes repeat four times as fast as numpy fills
        times = batch.append_time_us.to_bytes(8, "little", signed=True) * batch.record_count
    return arrow.array(arrow.time, batch.record_count, [None, arrow.buffer(times)])


def _topic(batch: RecordColumns, arrow: Kit, origin: Origin | None) -> pa.Array:
    assert origin is not None, "names were checked"
    import pyarrow as pa

    name = origin.topic.encode()
    bounds = arrow.buffer(np.array([0, len(name)], "<i4"))
    names = arrow.array(pa.string(), 1, [None, bounds, arrow.buffer(name)])
    first = arrow.array(arrow.int32, batch.record_count, [None, arrow.buffer(bytes(4 * batch.record_count))])
    return pa.DictionaryArray.from_arrays(first, names)


def _partition(batch: RecordColumns, arrow: Kit, origin: Origin | None) -> pa.Array:
    assert origin is not None, "names were checked"
    numbers = origin.partition.to_bytes(4, "little") * batch.record_count
    return arrow.array(arrow.int32, batch.record_count, [None, arrow.buffer(numbers)])


_ARRAYS: dict[str, Callable[[RecordColumns, Kit, Origin | None], pa.Array]] = {
    "value": _value,
    "key": _key,
    "offset": _offset,
    "timestamp": _timestamp,
    "headers": _headers,
    "topic": _topic,
    "partition": _partition,
}

ALL_ARROW_COLUMNS = tuple(_ARRAYS)
"""All columns that an Arrow batch may have."""
