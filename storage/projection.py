"""Batches with only the columns that the reader asked for.

Idea: a reader of keys need not be sent values. The remaining columns are copied as stored, compressed or not, with
their checksums; the header names the same place and gets a new checksum.

Contract: verifies no column, so that damage does not get a fresh checksum: the reader finds it. The result is for
readers and never goes into a log, whose chain it would break. Pure: batches in, bytes out.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest

from .batch import Batch
from .header import (
    ALIGNMENT,
    CHECKSUM_STRUCT,
    DIRECTORY_STRUCT,
    HEADER,
    HEADER_BYTES,
    Column,
    ColumnId,
    Kind,
    aligned,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

assert HEADER.fields is not None
_SIZES = struct.Struct("<II")  # header_bytes, batch_bytes
_SIZES_POSITION = HEADER.fields["header_bytes"][1]
_COUNT = struct.Struct("<I")
_COUNT_POSITION = HEADER.fields["column_count"][1]

_BESIDE = {
    ColumnId.VALUE: ColumnId.VALUE_VALIDITY,
    ColumnId.KEY: ColumnId.KEY_VALIDITY,
    ColumnId.HEADERS: ColumnId.HEADER_LIST,
}


def with_validity(ids: Collection[int]) -> frozenset[int]:
    """Add the columns that say what the given columns cannot: which values are none, and headers that fit no map."""
    return frozenset(ids) | {beside for of, beside in _BESIDE.items() if of in ids}


def project(found: Iterable[Batch], ids: Collection[int]) -> bytes:
    """The records batches among `found`, back to back, with no columns but those of `ids` and their validities.

    Raises InvalidBatch for a directory that leads out of its batch.
    """
    wanted = with_validity(ids)
    parts: list[Buffer] = []
    for batch in found:
        if batch.kind == Kind.RECORDS:
            parts += _parts(batch, wanted)
    return b"".join(parts)


def _parts(batch: Batch, wanted: frozenset[int]) -> list[Buffer]:
    """One batch, in pieces that are still to be joined."""
    kept = [column for column in batch.directory() if column.id in wanted]
    if len(kept) == batch.column_count:
        return [batch.buffer]
    header_bytes = position = aligned(HEADER_BYTES + DIRECTORY_STRUCT.size * len(kept))
    header = bytearray(header_bytes)
    header[:HEADER_BYTES] = batch.buffer[:HEADER_BYTES]
    parts: list[Buffer] = [header]
    for place, column in enumerate(kept):
        _enter(header, place, column, position)
        padding = -column.stored_bytes % ALIGNMENT
        parts += (batch.stored(column), bytes(padding))
        position += column.stored_bytes + padding
    _SIZES.pack_into(header, _SIZES_POSITION, header_bytes, position)
    _COUNT.pack_into(header, _COUNT_POSITION, len(kept))
    CHECKSUM_STRUCT.pack_into(header, 0, xxh3_64_intdigest(memoryview(header)[CHECKSUM_STRUCT.size :]))
    return parts


def _enter(header: bytearray, place: int, column: Column, position: int) -> None:
    """Say in the directory where a column lies now."""
    entry = (column.id, column.codec, column.flags, position, column.stored_bytes, column.raw_bytes, column.checksum)
    DIRECTORY_STRUCT.pack_into(header, HEADER_BYTES + DIRECTORY_STRUCT.size * place, *entry)
