"""A record as applications see it, and how a batch becomes a list of them.

Contract: records own their bytes; nothing points into a segment or a frame. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import repeat
from types import MappingProxyType

import msgspec

from .batch import Batch

NO_HEADERS: Mapping[str, bytes] = MappingProxyType({})


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record.

    `timestamp` is in microseconds UTC: the producer's event time where it gave one, the append time otherwise.
    `offset` counts from 0 within `partition` of `topic` ("" for an embedded log).
    """

    value: bytes
    key: bytes | None
    headers: Mapping[str, bytes]
    offset: int
    timestamp: int
    partition: int = 0
    topic: str = ""

    @property
    def time(self) -> datetime:
        """`timestamp` as an aware datetime."""
        return datetime.fromtimestamp(self.timestamp / 1e6, UTC)


def records(batch: Batch, *, start: int = 0, partition: int = 0, topic: str = "") -> list[Record]:
    """The records of `batch` from offset `start` on. Raises InvalidBatch."""
    keys = headers = times = None
    if batch.column_count > 1:  # a single column can only be the values
        keys, headers, times = batch.keys(), batch.headers(), batch.event_times()
    found = list(
        map(
            Record,
            batch.values(),
            repeat(None) if keys is None else keys,
            repeat(NO_HEADERS) if headers is None else headers,
            range(batch.base_offset, batch.end_offset),
            repeat(batch.append_time_us) if times is None else times.tolist(),
            repeat(partition),
            repeat(topic),
        )
    )
    skip = start - batch.base_offset
    return found[skip:] if skip > 0 else found
