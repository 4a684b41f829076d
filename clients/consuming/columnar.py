"""Converts batches to the form an application asks for: lists of records, Arrow, or numpy columns.

Contract: Arrow and numpy views are zero-copy wherever the received or mapped bytes allow it, and keep them alive.
Records own their bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...storage import columns
from ...storage.arrow import ALL_ARROW_COLUMNS, ARROW_COLUMNS, record_batch
from ...storage.batch import Batch, ColumnId, Origin
from ...storage.record import Record, records
from ..arguments.checking import some_of
from ..errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow as pa

Format = Literal["records", "arrow", "numpy"]
Convert = Callable[[Batch, int, int, str], Any]
"""Makes a format of a batch from an offset on, of a partition of a topic."""


class Columns(msgspec.Struct, frozen=True, eq=False):
    """The records of one batch as numpy arrays of equal length (`bounds` has one more). Made by `Consumer.batches`.

    Value `i` is `data[bounds[i]:bounds[i + 1]]`. `timestamps` are microseconds UTC.
    """

    topic: str
    partition: int
    offsets: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    bounds: NDArray[np.int32]
    data: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.offsets)

    def values(self) -> list[bytes]:
        """The values as bytes objects."""
        bounds, data = self.bounds.tolist(), self.data
        return [data[start:end].tobytes() for start, end in pairwise(bounds)]


def as_records(batch: Batch, start: int, partition: int, topic: str) -> list[Record]:
    """A list of records."""
    return records(batch, start=start, partition=partition, topic=topic)


def as_arrow(names: tuple[str, ...], batch: Batch, start: int, partition: int, topic: str) -> pa.RecordBatch:
    """The columns of these names."""
    return record_batch(batch, names, start, Origin(topic, partition))


def as_numpy(batch: Batch, start: int, partition: int, topic: str) -> Columns:
    """Numpy views."""
    count, skip = batch.record_count, max(start - batch.base_offset, 0)
    column = batch.column(ColumnId.VALUE)
    assert column is not None, "a batch of records has values"
    if not batch.checked:
        columns.check_variable(column, count)
    bounds = columns.offsets_of(column, count)
    times = batch.event_times()
    if times is None:
        times = np.full(count, batch.append_time_us, np.int64)
    return Columns(
        topic,
        partition,
        np.arange(batch.base_offset + skip, batch.end_offset, dtype=np.int64),
        times[skip:],
        bounds[skip:],
        np.frombuffer(column, np.uint8)[columns.data_start(count) :],
    )


def converter(format_: Format, names: Sequence[str] | None = None, *, serialized: bool = False) -> Convert:
    """The converter of batches to a format; `names` of the columns are for Arrow. Raises InvalidArgument.

    `serialized`: the application wants values, not bytes.
    """
    if serialized and format_ != "records":
        raise InvalidArgument(
            f'batches("{format_}") hands out values as they are stored, and this consumer has a serializer: use one '
            'without value=, or batches("records")'
        )
    if format_ == "arrow":
        names = ARROW_COLUMNS if names is None else names
        some_of("columns", names, ALL_ARROW_COLUMNS)
        return partial(as_arrow, tuple(names))
    if names is not None:
        raise InvalidArgument(f'columns= are those of batches("arrow"); {format_} come as they are')
    return as_records if format_ == "records" else as_numpy
