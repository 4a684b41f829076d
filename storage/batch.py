"""The batch: records written together, the unit of the log, the wire and the readers.

A batch is a fixed header, a directory of columns, and the columns. A producer encodes one without a place
in any log; the log's writer stamps place, time and chain into a new header and leaves the columns alone.
Normative text: FORMAT.md, sections "Batch" and "Columns"; the dtypes here are the one declaration of it.

Contract: `parse` believes nothing before the header's checksum agrees, and no length leads it out of the
buffer; `Batch.check` additionally verifies every column. All zeros never parse.
Pure: bytes in, bytes out. No files, no clock, no sockets.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from xxhash import xxh3_64_intdigest

from . import columns
from .codecs import Codec, compress, inflate
from .errors import BadChecksum, InvalidBatch, NewerFormat

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

    import pyarrow

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
CHECKSUM_STRUCT = struct.Struct("<Q")

assert HEADER.itemsize == HEADER_STRUCT.size == HEADER_BYTES
assert DIRECTORY.itemsize == DIRECTORY_STRUCT.size == 24
assert HEADER.fields is not None
assert HEADER.fields["base_offset"][1] == STAMP_POSITION

HEADER_BYTES_MAX = (HEADER_BYTES + COLUMNS_MAX * DIRECTORY_STRUCT.size + ALIGNMENT - 1) & -ALIGNMENT
CRITICAL = 1
"""Directory flag: a reader that does not know this column must stop instead of skipping it."""


class Kind(IntEnum):
    """What a batch is. 0 never parses."""

    RECORDS = 1
    STATE = 2  # effects only, no offsets
    RAFT = 3  # no-op or configuration
    STAGED = 4  # records of a transaction not yet decided: no offsets
    KEPT = 5  # stragglers carried forward under their original offsets


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


VARIABLE = frozenset({ColumnId.VALUE, ColumnId.KEY, ColumnId.HEADERS, ColumnId.DEDUP})
COMPRESSIBLE = frozenset({ColumnId.VALUE, ColumnId.KEY, ColumnId.HEADERS})
ITEM_BYTES = {
    ColumnId.KEY_HASH: 8,
    ColumnId.EVENT_TIME: 8,
    ColumnId.PRIORITY: 1,
    ColumnId.NOT_BEFORE: 8,
    ColumnId.OFFSET_DELTA: 4,
}


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


# -- writing --------------------------------------------------------------------------------------


def encode(
    values: Sequence[bytes],
    *,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[dict[str, bytes] | None] | None = None,
    event_times: Sequence[int] | None = None,
    codec: int = Codec.NONE,
    producer_id: int = 0,
    producer_epoch: int = 0,
    first_sequence: int = 0,
) -> bytearray:
    """Encode records as a batch without a place in a log.

    `keys`, `headers` and `event_times` (microseconds UTC) are as long as `values` or None; single keys and
    headers may be None. Raises InvalidBatch (no records, not bytes, lengths differ) and BatchTooLarge.
    """
    if not values:
        raise InvalidBatch("a batch needs at least one record")
    found = [(ColumnId.VALUE, codec, columns.encode_variable(values))]
    if keys is not None:
        found += _key_columns(_same_length("keys", keys, values), codec)
    if headers is not None:
        packed = list(map(_pack_headers, _same_length("headers", headers, values)))
        found.append((ColumnId.HEADERS, codec, columns.encode_variable(packed)))
    if event_times is not None:
        times = np.asarray(_same_length("event_times", event_times, values), "<i8")
        found.append((ColumnId.EVENT_TIME, Codec.NONE, times.tobytes()))
    return assemble(Kind.RECORDS, len(values), found, producer_id, producer_epoch, first_sequence)


def encode_state(effects: bytes) -> bytearray:
    """A batch of effects: a change of state without records. The encoding of effects is the engine's."""
    return assemble(Kind.STATE, 0, [(ColumnId.EFFECTS, Codec.NONE, effects)])


def encode_raft(entry: bytes = b"") -> bytearray:
    """A no-op (empty) or a change of configuration."""
    return assemble(Kind.RAFT, 0, [(ColumnId.EFFECTS, Codec.NONE, entry)] if entry else [])


def with_effects(batch: Buffer, effects: bytes) -> bytearray:
    """The same records with effects beside them: record and state change become one atomic write."""
    old = parse(batch)
    found = [(c.id, c.codec, old.stored(c), c.raw_bytes) for c in old.directory()]
    found.append((ColumnId.EFFECTS, Codec.NONE, effects, len(effects)))
    return _lay_out(old.kind, old.record_count, found, old.producer_id, old.producer_epoch, old.first_sequence)


def stamp(batch: Buffer, place: Stamp) -> bytearray:
    """New header and directory for `batch`, at its place in a log. The columns stay as they are.

    The caller writes the result followed by `batch[header_bytes:]`. The first 8 bytes are the checksum
    that the next batch names as `previous`.
    """
    (header_bytes,) = struct.unpack_from("<I", batch, 16)
    header = bytearray(memoryview(batch)[:header_bytes])
    STAMP_STRUCT.pack_into(
        header, STAMP_POSITION, place.base_offset, place.seq, place.term, place.log_id, place.append_time_us, place.previous
    )
    CHECKSUM_STRUCT.pack_into(header, 0, xxh3_64_intdigest(memoryview(header)[8:]))
    return header


def assemble(
    kind: int,
    record_count: int,
    found: Sequence[tuple[int, int, Buffer]],
    producer_id: int = 0,
    producer_epoch: int = 0,
    first_sequence: int = 0,
) -> bytearray:
    """Lay raw columns [(id, codec, raw bytes)] out as one unstamped batch, compressing those with a codec."""
    stored = [(id_, codec, compress(codec, raw) if codec else raw, len(raw)) for id_, codec, raw in found]
    return _lay_out(kind, record_count, stored, producer_id, producer_epoch, first_sequence)


def _lay_out(
    kind: int,
    record_count: int,
    stored: Sequence[tuple[int, int, Buffer, int]],
    producer_id: int,
    producer_epoch: int,
    first_sequence: int,
) -> bytearray:
    header_bytes = _aligned(HEADER_BYTES + DIRECTORY_STRUCT.size * len(stored))
    parts: list[Buffer] = [bytes(header_bytes)]
    for _, _, data, _ in stored:
        parts += (data, bytes(-len(data) % ALIGNMENT))
    batch = bytearray().join(parts)
    view = memoryview(batch)
    position = header_bytes
    for index, (id_, codec, data, raw_bytes) in enumerate(stored):
        size = len(data)
        checksum = xxh3_64_intdigest(view[position : position + size])
        entry = (id_, codec, 0, position, size, raw_bytes, checksum)
        DIRECTORY_STRUCT.pack_into(batch, HEADER_BYTES + DIRECTORY_STRUCT.size * index, *entry)
        position += _aligned(size)
    fixed = (0, MAGIC, VERSION, kind, 0, header_bytes, len(batch), record_count, len(stored))
    HEADER_STRUCT.pack_into(
        batch, 0, *fixed, 0, 0, 0, bytes(16), 0, 0, producer_id, first_sequence, producer_epoch
    )  # fmt: skip
    CHECKSUM_STRUCT.pack_into(batch, 0, xxh3_64_intdigest(view[8:header_bytes]))
    return batch


def _aligned(size: int) -> int:
    return (size + ALIGNMENT - 1) & -ALIGNMENT


def _same_length(name: str, given: Sequence[Any], values: Sequence[bytes]) -> Sequence[Any]:
    if len(given) != len(values):
        raise InvalidBatch(f"{len(given)} {name} for {len(values)} records: there must be one for each")
    return given


def _key_columns(keys: Sequence[bytes | None], codec: int) -> list[tuple[int, int, bytes]]:
    """Keys, and a bitmap only when some record has none. No keys at all need no column."""
    missing = keys.count(None) if isinstance(keys, (list, tuple)) else sum(key is None for key in keys)
    if missing == len(keys):
        return []
    if not missing:
        return [(ColumnId.KEY, codec, columns.encode_variable(keys))]  # pyright: ignore[reportArgumentType]
    filled = columns.encode_variable([key or b"" for key in keys])
    present = columns.encode_validity([key is not None for key in keys])
    return [(ColumnId.KEY, codec, filled), (ColumnId.KEY_VALIDITY, Codec.NONE, present)]


_header_encoder = msgspec.msgpack.Encoder()
_header_decoder = msgspec.msgpack.Decoder(dict[str, bytes])


def _pack_headers(headers: dict[str, bytes] | None) -> bytes:
    if not headers:
        return b""
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, bytes):
            raise InvalidBatch(f"header {name!r} must be a str with a bytes value, not {type(value).__name__}")
    return _header_encoder.encode(headers)


# -- reading --------------------------------------------------------------------------------------


class Batch(msgspec.Struct, gc=False, eq=False):
    """One parsed batch over the bytes it was read from; columns are decoded when asked for.

    `buffer` is exactly this batch. It stays valid as long as the memory behind it does: a view of a mapped
    segment is good until the reader is closed. Decoding raises InvalidBatch, BadChecksum is raised by `check`.
    """

    buffer: memoryview
    header_checksum: int
    kind: int
    flags: int
    header_bytes: int
    batch_bytes: int
    record_count: int
    column_count: int
    base_offset: int
    seq: int
    term: int
    log_id: bytes
    append_time_us: int
    previous: int
    producer_id: int
    first_sequence: int
    producer_epoch: int

    @property
    def end_offset(self) -> int:
        """The offset after the last record."""
        return self.base_offset + self.record_count

    def directory(self) -> list[Column]:
        """All columns, in stored order."""
        table = self.buffer[HEADER_BYTES : HEADER_BYTES + DIRECTORY_STRUCT.size * self.column_count]
        return [Column(*entry) for entry in DIRECTORY_STRUCT.iter_unpack(table)]

    def stored(self, column: Column) -> memoryview:
        """The bytes of one column as stored. Raises InvalidBatch if it lies outside the batch."""
        end = column.position + column.stored_bytes
        if column.position < self.header_bytes or end > self.batch_bytes:
            raise InvalidBatch(f"column {column.id} at {column.position} to {end} lies outside its batch")
        return self.buffer[column.position : end]

    def column(self, id_: int) -> Buffer | None:
        """The raw (inflated) bytes of a column, None when the batch has none."""
        for column in self.directory():
            if column.id == id_:
                stored = self.stored(column)
                return inflate(column.codec, stored, column.raw_bytes) if column.codec else stored
        return None

    def check(self) -> None:
        """Verify all columns: place, checksum, and for uncompressed ones their offsets and sizes.

        Raises BadChecksum or InvalidBatch. A broker calls it on what it is given; a reader above the mark.
        """
        directory = self.directory()
        seen = {column.id for column in directory}
        if len(seen) != len(directory):
            raise InvalidBatch("a column stands in the directory twice")
        for column in directory:
            self._check_column(column)
        has_records = self.kind in (Kind.RECORDS, Kind.STAGED, Kind.KEPT)
        if has_records != (ColumnId.VALUE in seen) or has_records != (self.record_count > 0):
            raise InvalidBatch(f"a batch of kind {self.kind} with {self.record_count} records does not fit its columns")

    def _check_column(self, column: Column) -> None:
        stored = self.stored(column)
        if xxh3_64_intdigest(stored) != column.checksum:
            raise BadChecksum(f"column {column.id} of batch {self.seq} does not match its checksum")
        if column.codec:
            if column.id not in COMPRESSIBLE or column.codec not in Codec._value2member_map_:
                raise InvalidBatch(f"column {column.id} cannot have codec {column.codec}")
        elif column.raw_bytes != column.stored_bytes:
            raise InvalidBatch(f"column {column.id} is not compressed but has two sizes")
        elif column.id in VARIABLE:
            columns.check_variable(stored, self.record_count)
        elif column.id in ITEM_BYTES:
            columns.decode_fixed(stored, self.record_count, f"V{ITEM_BYTES[ColumnId(column.id)]}")
        elif column.id in (ColumnId.KEY_VALIDITY, ColumnId.VALUE_VALIDITY):
            columns.decode_validity(stored, self.record_count)
        elif column.id not in ColumnId._value2member_map_ and column.flags & CRITICAL:
            raise NewerFormat(f"batch {self.seq} needs column {column.id}, which this version does not know; upgrade penstock")

    def values(self) -> list[bytes]:
        """The records' values, in order."""
        column = self.column(ColumnId.VALUE)
        if column is None:
            return []
        return _decode(column, self.record_count)

    def keys(self) -> list[bytes | None] | None:
        """The records' keys, None where a record has none; None when no record has one."""
        column = self.column(ColumnId.KEY)
        if column is None:
            return None
        keys: list[bytes | None] = list(_decode(column, self.record_count))
        validity = self.column(ColumnId.KEY_VALIDITY)
        if validity is not None:
            for index in np.flatnonzero(~columns.decode_validity(validity, self.record_count)).tolist():
                keys[index] = None
        return keys

    def headers(self) -> list[dict[str, bytes]] | None:
        """The records' headers, None when no record has any. Raises InvalidBatch."""
        column = self.column(ColumnId.HEADERS)
        if column is None:
            return None
        try:
            return [_header_decoder.decode(packed) if packed else {} for packed in columns.decode_variable(column, self.record_count)]
        except msgspec.MsgspecError as error:
            raise InvalidBatch(f"headers of batch {self.seq} are not a map of text to bytes ({error})") from None

    def event_times(self) -> np.ndarray | None:
        """The producer's times, int64 microseconds UTC, shape (record_count,), or None."""
        column = self.column(ColumnId.EVENT_TIME)
        return None if column is None else columns.decode_fixed(column, self.record_count, "<i8")

    def value_lengths(self) -> np.ndarray:
        """Bytes per record, int32, shape (record_count,)."""
        column = self.column(ColumnId.VALUE)
        return np.zeros(0, np.int32) if column is None else np.diff(columns.offsets_of(column, self.record_count))

    def effects(self) -> bytes | None:
        """The encoded effects, or None."""
        column = self.column(ColumnId.EFFECTS)
        return None if column is None else bytes(column)

    def arrow(self, names: Sequence[str] = ("value", "key", "offset", "timestamp")) -> pyarrow.RecordBatch:
        """The records as an Arrow batch of the named columns, without a copy where the bytes allow it.

        value: binary, key: binary (null without one), offset: int64, timestamp: timestamp[us, UTC],
        headers: binary (msgpack). Needs pyarrow. The buffers keep `buffer` alive.
        """
        from .arrow import record_batch

        return record_batch(self, names)


def _decode(column: Buffer, count: int) -> list[bytes]:
    if count > columns.FEW:
        from .arrow import fast_decoder

        decoder = fast_decoder()
        if decoder is not None:
            return decoder(column, count)
    return columns.decode_variable(column, count)


def parse(buffer: Buffer, position: int = 0) -> Batch:
    """Parse the batch at `position`, checking header, checksum and bounds, not the columns.

    Raises InvalidBatch when no batch stands there, BadChecksum when its header is damaged, NewerFormat when
    it was written by a later version.
    """
    view = memoryview(buffer)
    available = len(view) - position
    if available < HEADER_BYTES:
        raise InvalidBatch(f"{available} bytes at {position} are too few for a batch header")
    (checksum, magic, version, kind, flags, header_bytes, batch_bytes, *rest) = HEADER_STRUCT.unpack_from(view, position)
    if magic != MAGIC:
        raise InvalidBatch(f"no batch at {position}")
    column_count = rest[1]
    least = HEADER_BYTES + DIRECTORY_STRUCT.size * column_count
    if column_count > COLUMNS_MAX or header_bytes != _aligned(least):
        raise InvalidBatch(f"the header at {position} says {header_bytes} bytes for {column_count} columns")
    if not header_bytes <= batch_bytes <= available or batch_bytes % ALIGNMENT:
        raise InvalidBatch(f"the header at {position} says {batch_bytes} bytes, {available} are there")
    if xxh3_64_intdigest(view[position + 8 : position + header_bytes]) != checksum:
        raise BadChecksum(f"the header at {position} does not match its checksum", position=position)
    if version != VERSION:
        raise NewerFormat(f"the batch at {position} has format version {version}, this penstock reads {VERSION}; upgrade it")
    return Batch(view[position : position + batch_bytes], checksum, kind, flags, header_bytes, batch_bytes, *rest)


def batches(buffer: Buffer) -> Iterator[Batch]:
    """Every batch of a buffer of whole batches. Raises as `parse` does."""
    position, end = 0, len(memoryview(buffer))
    while position < end:
        batch = parse(buffer, position)
        yield batch
        position += batch.batch_bytes


kinds_with_records = frozenset({Kind.RECORDS})
"""Kinds a stream reader hands out; it skips the other known ones and stops at unknown ones."""

