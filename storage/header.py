"""The header of a batch and its directory: the one declaration of these bytes.

FORMAT.md, sections "Batch" and "Columns", describes them in words; a test compares the two.

Contract: ids and positions never change their meaning; a new layout gets a new VERSION.
Pure: numbers and bytes. Knows nothing of how columns are encoded.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from xxhash import xxh3_64_intdigest

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

MAGIC = 0x314B4E50  # "PNK1" in the file
VERSION = 1
ALIGNMENT = 64
COLUMNS_MAX = 64

HEADER = np.dtype(
    [
        ("header_checksum", "<u8"),  # xxh3_64 of everything from `magic` to the end of the directory
        ("magic", "<u4"),
        ("version", "u1"),
        ("kind", "u1"),
        ("flags", "<u2"),
        ("header_bytes", "<u4"),  # fixed header + directory, padded to ALIGNMENT
        ("batch_bytes", "<u4"),  # all of it, padded to ALIGNMENT
        ("record_count", "<u4"),
        ("column_count", "<u4"),
        ("base_offset", "<i8"),
        ("seq", "<i8"),
        ("term", "<i8"),
        ("log_id", "V16"),
        ("append_time_us", "<i8"),
        ("previous", "<u8"),  # header_checksum of the batch before, 0 before the first
        ("producer_id", "<u8"),
        ("first_sequence", "<i8"),
        ("producer_epoch", "<u4"),
        ("reserved", "V20"),
    ]
)
HEADER_STRUCT = struct.Struct("<QIBBHIIIIqqq16sqQQqI20x")
HEADER_BYTES = 128

DIRECTORY = np.dtype(
    [
        ("id", "<u2"),
        ("codec", "u1"),
        ("flags", "u1"),
        ("position", "<u4"),  # from the start of the batch, a multiple of ALIGNMENT
        ("stored_bytes", "<u4"),
        ("raw_bytes", "<u4"),
        ("checksum", "<u8"),  # xxh3_64 of the stored bytes
    ]
)
DIRECTORY_STRUCT = struct.Struct("<HBBIIIQ")

# What the writer of a log fills in: base_offset to previous, in one run of the header.
STAMP_STRUCT = struct.Struct("<qqq16sqQ")
STAMP_POSITION = 32

# What the producer of a batch fills in.
PRODUCER_STRUCT = struct.Struct("<QqI")
PRODUCER_POSITION = 88
KIND_POSITION = 13
RESERVED_POSITION = 108
CHECKSUM_STRUCT = struct.Struct("<Q")
_LENGTH_STRUCT = struct.Struct("<I")
_LENGTH_POSITION = 16

assert HEADER.itemsize == HEADER_STRUCT.size == HEADER_BYTES
assert DIRECTORY.itemsize == DIRECTORY_STRUCT.size == 24
assert HEADER.fields is not None
assert HEADER.fields["base_offset"][1] == STAMP_POSITION
assert HEADER.fields["producer_id"][1] == PRODUCER_POSITION
assert HEADER.fields["kind"][1] == KIND_POSITION
assert HEADER.fields["header_bytes"][1] == _LENGTH_POSITION
assert HEADER.fields["reserved"][1] == RESERVED_POSITION

HEADER_BYTES_MAX = (HEADER_BYTES + COLUMNS_MAX * DIRECTORY_STRUCT.size + ALIGNMENT - 1) & -ALIGNMENT
CRITICAL = 1
"""Directory flag: a reader that does not know this column must stop instead of skipping it."""


class Kind(IntEnum):
    """The kind of a batch. 0 never parses."""

    RECORDS = 1
    STATE = 2  # effects only, no offsets
    RAFT = 3  # no-op or configuration
    STAGED = 4  # records of a transaction not yet decided: no offsets
    KEPT = 5  # records under the offsets they have already: they take none


class ColumnId(IntEnum):
    """Ids never change their meaning; unknown ones are skipped unless CRITICAL."""

    VALUE = 1
    KEY = 2
    KEY_HASH = 3
    HEADERS = 4
    EVENT_TIME = 5
    PRIORITY = 6
    NOT_BEFORE = 7
    DEDUP = 8
    OFFSET_DELTA = 9
    EFFECTS = 10
    KEY_VALIDITY = 11
    VALUE_VALIDITY = 12
    OFFSET = 13
    APPEND_TIME = 14
    HEADER_LIST = 15


COMPRESSIBLE = frozenset({ColumnId.VALUE, ColumnId.KEY, ColumnId.HEADERS, ColumnId.HEADER_LIST})
VARIABLE = COMPRESSIBLE | {ColumnId.DEDUP}
ITEM_BYTES = {
    ColumnId.KEY_HASH: 8,
    ColumnId.EVENT_TIME: 8,
    ColumnId.PRIORITY: 1,
    ColumnId.NOT_BEFORE: 8,
    ColumnId.OFFSET_DELTA: 4,
    ColumnId.OFFSET: 8,
    ColumnId.APPEND_TIME: 8,
}
EVENT_TIMES = -62_135_596_800_000_000, 253_402_300_799_000_000
"""The first and the last event time, in microseconds: years 1 to 9999, of which readers can make datetimes."""


class Stamp(msgspec.Struct, frozen=True, gc=False):
    """The place of a batch in a log. `previous` is the header checksum of the batch before it."""

    seq: int
    base_offset: int
    term: int
    log_id: bytes
    append_time_us: int
    previous: int


class Column(msgspec.Struct, frozen=True, gc=False):
    """One entry of the directory."""

    id: int
    codec: int
    flags: int
    position: int
    stored_bytes: int
    raw_bytes: int
    checksum: int


def stamp(batch: Buffer, place: Stamp) -> bytearray:
    """New header and directory for `batch`, at its place in a log. The columns stay as they are.

    The caller writes the result followed by `batch[header_bytes:]`. The first 8 bytes are the checksum
    that the next batch names as `previous`.
    """
    (header_bytes,) = _LENGTH_STRUCT.unpack_from(batch, _LENGTH_POSITION)
    return stamped(batch, header_bytes, place)[0]


def stamped(batch: Buffer, header_bytes: int, place: Stamp) -> tuple[bytearray, int]:
    """As `stamp`, for a batch whose header was read already; with the checksum of the new one."""
    header = bytearray(batch[:header_bytes])
    STAMP_STRUCT.pack_into(
        header, STAMP_POSITION, place.base_offset, place.seq, place.term, place.log_id, place.append_time_us,
        place.previous,
    )  # fmt: skip
    checksum = xxh3_64_intdigest(memoryview(header)[8:])
    CHECKSUM_STRUCT.pack_into(header, 0, checksum)
    return header, checksum


def of_kind(batch: Buffer, kind: Kind) -> bytearray:
    """A copy of `batch` as one of another kind, whose columns it fits."""
    copied = bytearray(batch)
    copied[KIND_POSITION] = kind
    return _sealed(copied)


def of_producer(batch: Buffer, producer_id: int, epoch: int, first_sequence: int) -> bytearray:
    """A copy of `batch` as one of another producer, or at another place in its sequence."""
    copied = bytearray(batch)
    PRODUCER_STRUCT.pack_into(copied, PRODUCER_POSITION, producer_id, first_sequence, epoch)
    return _sealed(copied)


def producer_of(batch: Buffer) -> int:
    """The id that a batch names as its producer's; 0 without one, and of what is too short for a batch."""
    if len(batch) < HEADER_BYTES:
        return 0
    return PRODUCER_STRUCT.unpack_from(batch, PRODUCER_POSITION)[0]


def _sealed(copied: bytearray) -> bytearray:
    (header_bytes,) = _LENGTH_STRUCT.unpack_from(copied, _LENGTH_POSITION)
    CHECKSUM_STRUCT.pack_into(copied, 0, xxh3_64_intdigest(memoryview(copied)[8:header_bytes]))
    return copied


def aligned(size: int) -> int:
    """`size` rounded up to ALIGNMENT."""
    return (size + ALIGNMENT - 1) & -ALIGNMENT
