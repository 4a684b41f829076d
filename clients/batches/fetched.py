"""What a fetch of many partitions found of one of them.

Contract: batches hold together without a gap, from the one with the record asked for up to `next_offset`. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ...storage.batch import Batch, batches
from ...storage.errors import Corrupt, Error
from ...transport.messages import Failure, FetchedFrom, FetchFrom
from ..connection.question import raised
from ..reading.readable import readable, verify

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]


class FetchedBatches(msgspec.Struct, frozen=True):
    """The batches of one partition. The first may begin before the offset asked for. Made by `Client.fetch_batches`.

    `next_offset` is where to go on, `first` and `end` are the bounds of the partition. `error` says why nothing can be
    read from `next_offset` on; where it has a `next_offset` or `offset` of its own, that can be read.
    """

    batches: list[Batch]
    next_offset: int
    first: int
    end: int
    error: Error | None = None


def fetched_of(place: FetchFrom, found: FetchedFrom, payload: Buffer, *, verified: bool) -> FetchedBatches:
    """The part of one place, from the wire; its columns are to be `verified`."""
    if found.code:
        error = raised(Failure(0, found.code, found.message, found.retry, "", found.offset))
        return FetchedBatches([], place.offset, found.first, found.end, error)
    kept, error = readable(batches(payload), place.offset, found.next_offset)
    if verified:
        for number, batch in enumerate(kept):
            try:
                verify(batch, place.partition, place.topic.hex())
            except Corrupt as damage:
                kept, error = kept[:number], damage
                break
    if error is None:
        return FetchedBatches(kept, found.next_offset, found.first, found.end)
    return FetchedBatches(kept, kept[-1].end_offset if kept else place.offset, found.first, found.end, error)
