"""The bytes of an entry of the order log: which batches of which logs one flush appended, small ones included.

Idea: an entry is one RAFT batch of an ordinary log. A flush names each batch by log id, seq and header checksum. Small
batches also stand inside the entry, so a replica that lost them appends them again from there; large ones are only
named, so that their records are written once.

Contract: `decode_flush` believes no number before it has checked it: every inlined batch lies inside the entry. The
layout is ORDER.md, section 2. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...storage.errors import InvalidBatch

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

INLINE_BYTES = 16 << 10
"""The largest batch that also stands inside its entry."""

INLINE_TOGETHER = 256 << 10
"""The most bytes of batches inside one entry."""

ROW = np.dtype(
    [
        ("log_id", "V16"),
        ("seq", "<i8"),
        ("header_checksum", "<u8"),
        ("batch_bytes", "<u4"),
        ("position", "<u4"),  # of the batch inside the flush; 0: it is only named
    ]
)
FLUSH = np.dtype([("rows", "<u4"), ("flags", "<u4"), ("time_us", "<i8")])
ENTRY = np.dtype([("type", "u1"), ("reserved", "V7")])

_ROW = struct.Struct("<16sqQII")
_FLUSH = struct.Struct("<IIq")
_ENTRY = struct.Struct("<B7x")
_ALIGNMENT = 8
_DIGEST = 1

assert (ROW.itemsize, FLUSH.itemsize, ENTRY.itemsize) == (_ROW.size, _FLUSH.size, _ENTRY.size)


class EntryType(IntEnum):
    """The type of an entry. The values are those of `EntryKind` of the Raft core."""

    FLUSH = 0  # without a flush: the no-op of a new leader
    CHANGE = 1  # of the configuration


class NamedBatch(NamedTuple):
    """One batch of a flush. `position` is its place inside the flush, 0 when it is only named."""

    log_id: bytes
    seq: int
    checksum: int
    size: int
    position: int = 0


class Flush(NamedTuple):
    """The batches that one flush appended, in their order, with the time of the leader.

    `digest`: after this entry, replicas compare what they have applied.
    """

    time_us: int
    batches: Sequence[NamedBatch]
    data: Buffer
    digest: bool = False

    def inlined(self, batch: NamedBatch) -> memoryview | None:
        """The bytes of a batch that stands inside the entry; None for one that is only named."""
        return memoryview(self.data)[batch.position : batch.position + batch.size] if batch.position else None


class StampedBatch(NamedTuple):
    """A batch as it stands in its log."""

    log_id: bytes
    seq: int
    checksum: int
    size: int
    buffers: Sequence[Buffer]


def encode_flush(time_us: int, batches: Sequence[StampedBatch], *, digest: bool = False) -> bytes:
    """A flush as the data of an entry; what is small is copied into it."""
    position = _FLUSH.size + _ROW.size * len(batches)
    pieces: list[Buffer] = [_FLUSH.pack(len(batches), _DIGEST if digest else 0, time_us)]
    bodies: list[Buffer] = []
    left = INLINE_TOGETHER
    for log_id, seq, checksum, size, buffers in batches:
        if size > INLINE_BYTES or size > left:
            pieces.append(_ROW.pack(log_id, seq, checksum, size, 0))
            continue
        pieces.append(_ROW.pack(log_id, seq, checksum, size, position))
        padding = -size % _ALIGNMENT
        bodies += [*buffers, bytes(padding)]
        position += size + padding
        left -= size
    return b"".join([*pieces, *bodies])


def decode_flush(data: Buffer) -> Flush:
    """The flush that is the data of an entry of type FLUSH. Raises InvalidBatch."""
    size = len(data)
    if size < _FLUSH.size:
        raise InvalidBatch(f"{size} bytes are too few for a flush")
    rows, flags, time_us = _FLUSH.unpack_from(data)
    end = _FLUSH.size + _ROW.size * rows
    if end > size:
        raise InvalidBatch(f"a flush of {rows} batches does not fit into {size} bytes")
    batches = [NamedBatch(*row) for row in _ROW.iter_unpack(memoryview(data)[_FLUSH.size : end])]
    for batch in batches:
        if batch.position and not end <= batch.position <= size - batch.size:
            raise InvalidBatch(f"batch {batch.seq} of log {batch.log_id.hex()} lies outside its entry")
    return Flush(time_us, batches, data, bool(flags & _DIGEST))


def asks_digests(type_: int, data: Buffer) -> bool:
    """Whether replicas compare what they have applied after this entry."""
    return type_ == EntryType.FLUSH and len(data) >= _FLUSH.size and bool(_FLUSH.unpack_from(data)[1] & _DIGEST)


def encode_entry(type_: int, data: Buffer) -> bytes:
    """What stands in the RAFT batch of an entry; nothing for a no-op."""
    return b"" if type_ == EntryType.FLUSH and not len(data) else b"".join([_ENTRY.pack(type_), data])


def decode_entry(stored: Buffer | None) -> tuple[int, memoryview]:
    """Type and data of an entry from its RAFT batch. Raises InvalidBatch."""
    if stored is None or not len(stored):
        return EntryType.FLUSH, memoryview(b"")
    if len(stored) < _ENTRY.size:
        raise InvalidBatch(f"{len(stored)} bytes are too few for an entry of the order log")
    return _ENTRY.unpack_from(stored)[0], memoryview(stored)[_ENTRY.size :]


def batches_of(type_: int, data: Buffer) -> Iterator[tuple[Flush, NamedBatch]]:
    """Every batch that an entry names, in order; none for no-ops and configurations. Raises InvalidBatch."""
    if type_ == EntryType.FLUSH and len(data):
        flush = decode_flush(data)
        for batch in flush.batches:
            yield flush, batch
