"""A record as applications see it, and decoding a batch into a list of them.

Contract: records own their bytes; nothing points into a segment or a frame. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import repeat
from typing import TYPE_CHECKING, Generic

import msgspec
import numpy as np

from .batch import Batch, Kind, Value
from .header_list import FixedHeaders, HeaderPair, pairs_of

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    V = TypeVar("V", default=Value)
else:
    from typing import TypeVar

    V = TypeVar("V")
"""What values are to an application: bytes or None, unless its consumer deserializes them."""

_KEPT = int(Kind.KEPT)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(time_us: int) -> datetime:
    """A time in microseconds UTC as an aware datetime, to the microsecond: of a float that is not so in all years."""
    return _EPOCH + timedelta(microseconds=time_us)


class _NoHeaders(FixedHeaders):
    """An empty dict that all records without headers share, so it stays empty. A copy of it, in another process too, is
    that one again."""

    __slots__ = ()

    def __reduce__(self) -> str:
        return "NO_HEADERS"


NO_HEADERS: Mapping[str, bytes] = _NoHeaders()


class Record(msgspec.Struct, Generic[V], frozen=True, gc=False):
    """One record: `value` with an optional `key`, and `headers`. The value is None where a producer sent a null, and
    what a serializer made of the bytes where a consumer has one.

    `timestamp` is in microseconds UTC: the producer's event time where it gave one, the append time otherwise.
    `offset` counts from 0 within `partition` of `topic` ("" for an embedded log).
    """

    value: V
    key: bytes | None
    headers: Mapping[str, bytes]
    offset: int
    timestamp: int
    partition: int = 0
    topic: str = ""

    @property
    def header_list(self) -> list[HeaderPair]:
        """The headers as (name, value) in their order, also those of one name, and nulls (None). `headers` has the last
        value of each name, and none whose last value is null."""
        return list(pairs_of(self.headers))

    @property
    def time(self) -> datetime:
        """`timestamp` as an aware datetime."""
        return moment(self.timestamp)


def records(batch: Batch, *, start: int = 0, partition: int = 0, topic: str = "") -> list[Record]:
    """The records of `batch` from offset `start` on. Raises InvalidBatch."""
    first, values = batch.first_at(start) if start > batch.base_offset else 0, batch.values()
    beside = NOTHING if batch.column_count == 1 else _beside(batch)
    return _made(batch, values[first:] if first else values, first, beside, partition, topic)


def record_runs(batch: Batch, start: int, partition: int = 0) -> Iterator[list[Record]]:
    """As `records`, a list of some at a time: what is used at once is still in the processor's cache."""
    first, beside = batch.first_at(start), NOTHING if batch.column_count == 1 else _beside(batch)
    for values in batch.value_runs(first):
        yield _made(batch, values, first, beside, partition)
        first += len(values)


Beside = tuple[Sequence[bytes | None] | None, Sequence[Mapping[str, bytes]] | None, np.ndarray | None]
"""Keys, headers and event times of a whole batch; None where it has no such column."""

NOTHING: Beside = (None, None, None)
"""Of a batch with one column, which can only be the values."""


def _beside(batch: Batch) -> Beside:
    return batch.keys(), batch.headers(), batch.event_times()


def _made(
    batch: Batch, values: list[Value], first: int, beside: Beside, partition: int = 0, topic: str = ""
) -> list[Record]:
    """Records of the batch, as many as there are values, from the one numbered `first` on."""
    keys, headers, times = beside
    end, base = first + len(values), batch.base_offset
    return list(
        map(
            Record,
            values,
            repeat(None) if keys is None else keys[first:end],
            repeat(NO_HEADERS) if headers is None else headers[first:end],
            range(base + first, base + end) if batch.kind != _KEPT else batch.offsets()[first:end].tolist(),
            repeat(batch.append_time_us) if times is None else times[first:end].tolist(),
            repeat(partition),
            repeat(topic),
        )
    )
