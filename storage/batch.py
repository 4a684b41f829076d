"""The batch: records written together, the unit of the log, the wire and the readers.

A batch is a fixed header, a directory of columns, and the columns. A producer encodes one without a place
in any log; the log's writer stamps place, time and chain into a new header and leaves the columns alone.
Normative text: FORMAT.md, sections "Batch" and "Columns"; the dtypes here are the one declaration of it.

Contract: `parse` believes nothing before the header's checksum agrees, and no length leads it out of the
buffer; `Batch.check` additionally verifies every column. All zeros never parse.
Pure: bytes in, bytes out. No files, no clock, no sockets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np
from xxhash import xxh3_64_intdigest

from . import arrow, columns
from .arrow import Origin
from .codecs import Codec, inflate
from .encoding import HEADER_DECODER, LIST_DECODER, assemble, encode, encode_raft, encode_state, lay_out
from .errors import BadChecksum, InvalidBatch, NewerFormat
from .few import few_ends, few_values, recognise_few
from .header import (
    ALIGNMENT,
    COLUMNS_MAX,
    COMPRESSIBLE,
    CRITICAL,
    DIRECTORY,
    DIRECTORY_STRUCT,
    HEADER,
    HEADER_BYTES,
    HEADER_BYTES_MAX,
    HEADER_STRUCT,
    ITEM_BYTES,
    MAGIC,
    VARIABLE,
    VERSION,
    Column,
    ColumnId,
    Kind,
    Stamp,
    aligned,
    of_kind,
    stamp,
)  # fmt: skip
from .header_list import HeaderList

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

    import pyarrow

__all__ = [
    "ALIGNMENT", "DIRECTORY", "HEADER", "HEADER_BYTES", "HEADER_BYTES_MAX", "MAGIC", "VERSION",
    "Batch", "Codec", "Column", "ColumnId", "Kind", "Origin", "Stamp",
    "assemble", "batches", "encode", "encode_raft", "encode_state", "joined", "of_kind", "parse", "parse_few", "stamp",
    "with_effects",
]  # fmt: skip

Item = TypeVar("Item")
MaybeNone = Any
"""For None that callers need not expect: only records of producers that send nulls have it."""

Value = bytes | MaybeNone
"""The value of a record."""

_KINDS_WITH_RECORDS = frozenset({Kind.RECORDS, Kind.STAGED, Kind.KEPT})
_VALUE, _RECORDS, _KEPT, _NO_LOG = int(ColumnId.VALUE), int(Kind.RECORDS), int(Kind.KEPT), bytes(16)
_NO_NULLS = np.empty(0, np.int64)
_HEADER_BYTES_OF = [aligned(HEADER_BYTES + DIRECTORY_STRUCT.size * count) for count in range(COLUMNS_MAX + 1)]

KINDS_OF_STREAMS = frozenset({Kind.RECORDS})
"""Kinds a stream reader hands out; it skips the other known ones and stops at unknown ones."""


class Batch(msgspec.Struct, gc=False, eq=False):
    """One parsed batch over the bytes it was read from; columns are decoded when asked for. Made by `Client.range`.

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
    known: list[Column] | None = None  # the directory, once read
    ends: Sequence[int] | None = None  # of the values, once `check` has verified a column of a few
    checked: bool = False  # `check` saw the offsets of every column; inflated ones it does not see
    origin: Origin | None = None  # told by a range that hands it out

    @property
    def end_offset(self) -> int:
        """The offset after the last record of a batch that gave its records their offsets."""
        return self.base_offset + self.record_count

    def offsets(self) -> np.ndarray:
        """The records' offsets, int64, ascending, shape (record_count,). Raises InvalidBatch."""
        if self.kind != _KEPT:
            return np.arange(self.base_offset, self.end_offset, dtype=np.int64)
        found = self._fixed(ColumnId.OFFSET, "<i8")
        if found is None:
            raise InvalidBatch(f"batch {self.seq} keeps records without their offsets")
        return found

    def first_at(self, offset: int) -> int:
        """Number of the first record at `offset` or above."""
        if self.kind != _KEPT:
            return max(offset - self.base_offset, 0)
        return int(np.searchsorted(self.offsets(), offset))

    def directory(self) -> list[Column]:
        """All columns, in stored order."""
        if self.known is not None:
            return self.known
        table = self.buffer[HEADER_BYTES : HEADER_BYTES + DIRECTORY_STRUCT.size * self.column_count]
        self.known = [Column(*entry) for entry in DIRECTORY_STRUCT.iter_unpack(table)]
        return self.known

    def stored(self, column: Column) -> memoryview:
        """The bytes of one `column` as stored. Raises InvalidBatch if it lies outside the batch."""
        end = column.position + column.stored_bytes
        if column.position < self.header_bytes or end > self.batch_bytes:
            raise InvalidBatch(f"column {column.id} at {column.position} to {end} lies outside its batch")
        return self.buffer[column.position : end]

    def has(self, id_: int) -> bool:
        """Whether it has the column `id_`."""
        return any(column.id == id_ for column in self.directory())

    def column(self, id_: int) -> Buffer | None:
        """The raw (inflated) bytes of column `id_`, None when the batch has none."""
        for column in self.directory():
            if column.id == id_:
                stored = self.stored(column)
                return inflate(column.codec, stored, column.raw_bytes) if column.codec else stored
        return None

    def check(self) -> None:
        """Verify all columns: place, checksum, and for uncompressed ones their offsets and sizes.

        Raises BadChecksum or InvalidBatch. A broker calls it on what it is given; a reader above the mark.
        """
        if self.column_count == 1 and self.kind == _RECORDS:
            self.ends = few_ends(self.buffer, self.record_count)
            if self.ends is not None:
                self.checked = True
                return
        directory, has_value, compressed = self.directory(), False, False
        if len(directory) > 1:
            _check_once(directory)
        for column in directory:
            self._check_column(column)
            has_value = has_value or column.id == _VALUE
            compressed = compressed or column.codec != 0
        has_records = self.kind in _KINDS_WITH_RECORDS
        if has_records != has_value or has_records != (self.record_count > 0):
            raise InvalidBatch(f"a batch of kind {self.kind} with {self.record_count} records does not fit its columns")
        if self.kind == _KEPT:
            columns.check_ascending(self.offsets())
        self.checked = not compressed

    def check_columns(self, ids: Collection[int] | None = None) -> None:
        """Verify the columns that are there, or those of `ids`: for a batch of which others were left out.

        Raises BadChecksum or InvalidBatch, and does not mind what else a batch of its kind has.
        """
        directory = self.directory()
        _check_once(directory)
        found = directory if ids is None else [column for column in directory if column.id in ids]
        for column in found:
            self._check_column(column)
        self.checked = len(found) == len(directory) and not any(column.codec for column in found)

    def check_effects(self) -> None:
        """Verify the effects alone. Raises BadChecksum, InvalidBatch."""
        for column in self.directory():
            if column.id == ColumnId.EFFECTS:
                self._check_column(column)

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
            raise NewerFormat(f"batch {self.seq} needs column {column.id}, unknown to this version; upgrade penstock")

    def values(self) -> list[Value]:
        """The records' values, in order; None for a null."""
        if self.ends is not None:
            return few_values(self.buffer, self.ends)
        found: list[Value] = self._whole(ColumnId.VALUE) or []
        for index in self.nulls().tolist():
            found[index] = None
        return found

    def value_runs(self, first: int) -> Iterator[list[Value]]:
        """The values from the record numbered `first` of this batch on, a list of some at a time."""
        column, count = self.column(ColumnId.VALUE), self.record_count
        if column is None:
            return iter(())
        if count > columns.FEW and arrow.is_fast():
            found = arrow.decode_runs(column, count, first, checked=self.checked)
        else:
            found = columns.decode_runs(column, count, first)
        nulls = self.nulls()
        return _with_nulls(found, nulls, first) if len(nulls) else found

    def nulls(self) -> np.ndarray:
        """The numbers of the records with a null in place of a value, ascending."""
        validity = None if self.column_count == 1 else self.column(ColumnId.VALUE_VALIDITY)
        if validity is None:
            return _NO_NULLS
        return np.flatnonzero(~columns.decode_validity(validity, self.record_count))

    def _whole(self, id_: int) -> list[bytes] | None:
        """All of one variable column; None when the batch has none."""
        column, count = self.column(id_), self.record_count
        if column is None:
            return None
        if count > columns.FEW and arrow.is_fast():
            return joined(arrow.decode_runs(column, count, 0, checked=self.checked))
        return columns.decode_variable(column, count)

    def keys(self) -> list[bytes | None] | None:
        """The records' keys, None where a record has none; None when no record has one."""
        found = self._whole(ColumnId.KEY)
        if found is None:
            return None
        keys: list[bytes | None] = [*found]
        validity = self.column(ColumnId.KEY_VALIDITY)
        if validity is not None:
            for index in np.flatnonzero(~columns.decode_validity(validity, self.record_count)).tolist():
                keys[index] = None
        return keys

    def headers(self) -> list[dict[str, bytes]] | None:
        """The records' headers, None when no record has any. Raises InvalidBatch."""
        packed = self._packed(ColumnId.HEADERS)
        try:
            found = None if packed is None else [HEADER_DECODER.decode(one) if one else {} for one in packed]
            return found if found is None or not self.has(ColumnId.HEADER_LIST) else self._with_lists(found)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidBatch(f"headers of batch {self.seq} are not a map of text to bytes ({error})") from None

    def _with_lists(self, maps: list[dict[str, bytes]]) -> list[dict[str, bytes]]:
        """The headers of each record, of which some do not fit a map."""
        lists = self._packed(ColumnId.HEADER_LIST) or []
        return [
            HeaderList(LIST_DECODER.decode(packed)) if packed else found
            for found, packed in zip(maps, lists, strict=True)
        ]

    def headers_of_each(self) -> list[dict[str, bytes] | InvalidBatch]:
        """The records' headers, and in place of those that are none what is wrong with them. Raises InvalidBatch."""
        found: list[dict[str, bytes] | InvalidBatch] = []
        nothing = [b""] * self.record_count
        maps, lists = (self._packed(id_) or nothing for id_ in (ColumnId.HEADERS, ColumnId.HEADER_LIST))
        for number, (packed, listed) in enumerate(zip(maps, lists, strict=True)):
            try:
                headers = HEADER_DECODER.decode(packed) if packed else {}
                found.append(HeaderList(LIST_DECODER.decode(listed)) if listed else headers)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                of = f"headers of record {number} of batch {self.seq}"
                found.append(InvalidBatch(f"{of} are not a map of text to bytes ({error})"))
        return found

    def _packed(self, id_: int) -> list[bytes] | None:
        column = self.column(id_)
        return None if column is None else columns.decode_variable(column, self.record_count)

    def event_times(self) -> np.ndarray | None:
        """The producer's times, int64 microseconds UTC, shape (record_count,), or None."""
        return self._fixed(ColumnId.EVENT_TIME, "<i8")

    def append_times(self) -> np.ndarray:
        """When each record was appended, int64 microseconds UTC, shape (record_count,).

        A KEPT batch without the column gives its own append time for all of them.
        """
        found = self._fixed(ColumnId.APPEND_TIME, "<i8") if self.kind == _KEPT else None
        return np.full(self.record_count, self.append_time_us, "<i8") if found is None else found

    def priorities(self) -> np.ndarray | None:
        """The records' priorities, uint8, shape (record_count,); None when all are 0."""
        return self._fixed(ColumnId.PRIORITY, "u1")

    def not_before(self) -> np.ndarray | None:
        """When each record may be worked on, int64 microseconds UTC, 0 = at once; None when all may be at once."""
        return self._fixed(ColumnId.NOT_BEFORE, "<i8")

    def dedup(self) -> list[bytes] | None:
        """The records' deduplication keys, empty where a record has none; None when no record has one."""
        return self._whole(ColumnId.DEDUP)

    def _fixed(self, id_: int, dtype: str) -> np.ndarray | None:
        """A fixed column; None when the batch has none."""
        column = self.column(id_)
        return None if column is None else columns.decode_fixed(column, self.record_count, dtype)

    def lengths(self, id_: int = ColumnId.VALUE) -> np.ndarray:
        """Bytes per record in variable column `id_`, int32, shape (record_count,); empty without the column."""
        column = self.column(id_)
        return np.zeros(0, np.int32) if column is None else np.diff(columns.offsets_of(column, self.record_count))

    def effects(self) -> bytes | None:
        """The encoded effects, or None."""
        column = self.column(ColumnId.EFFECTS)
        return None if column is None else bytes(column)

    def arrow(self, columns: Sequence[str] | None = None) -> pyarrow.RecordBatch:
        """The records as an Arrow batch of these `columns`, without a copy where the bytes allow it.

        value: binary, key: binary (null without one; so is the value), offset: int64, timestamp: timestamp[us, UTC],
        headers: list<struct<key: string, value: binary>> (null without any, in their order); batches of a range have
        topic: dictionary<int32, string> and partition: int32 as well. None: those the range was asked
        for, else the first five. Needs pyarrow. The buffers keep `buffer` alive. Raises ValueError for
        columns that are not there, or that the range left out.
        """
        if columns is None:
            columns = self.origin.columns if self.origin is not None and self.origin.columns else arrow.ARROW_COLUMNS
        return arrow.record_batch(self, arrow.column_names(columns, self.origin), origin=self.origin)


def _with_nulls(runs: Iterator[list[Value]], nulls: np.ndarray, first: int) -> Iterator[list[Value]]:
    """The same runs, from the record numbered `first` on, with None for each of `nulls`."""
    for run in runs:
        low, high = np.searchsorted(nulls, (first, first + len(run))).tolist()
        for index in nulls[low:high].tolist():
            run[index - first] = None
        first += len(run)
        yield run


def _check_once(directory: list[Column]) -> None:
    """Raise InvalidBatch when two columns have the same id."""
    if len({column.id for column in directory}) != len(directory):
        raise InvalidBatch("a column stands in the directory twice")


def joined(runs: Iterator[list[Item]]) -> list[Item]:
    """All runs as one list."""
    found = next(runs, [])
    for run in runs:
        found += run
    return found


def parse(buffer: Buffer, position: int = 0, *, available: int | None = None) -> Batch:
    """Parse the batch at `position`, checking header, checksum and bounds, not the columns.

    Args:
        available: how many bytes there are from `position` on, when `buffer` holds fewer of them: for callers
            that only identify the batch. Its columns may then be cut off; HEADER_BYTES_MAX bytes are always enough.

    Raises InvalidBatch when no batch stands there, BadChecksum when its header is damaged, NewerFormat when
    it was written by a later version.
    """
    view = memoryview(buffer)
    held = len(view) - position
    if held < HEADER_BYTES:
        raise InvalidBatch(f"{held} bytes at {position} are too few for a batch header")
    if available is None:
        available = held
    fields = HEADER_STRUCT.unpack_from(view, position)
    checksum, magic, version, _, _, header_bytes, batch_bytes, _, column_count = fields[:9]
    if magic != MAGIC:
        raise InvalidBatch(f"no batch at {position}")
    if column_count > COLUMNS_MAX or header_bytes != _HEADER_BYTES_OF[column_count]:
        raise InvalidBatch(f"the header at {position} says {header_bytes} bytes for {column_count} columns")
    if not header_bytes <= batch_bytes <= available or batch_bytes % ALIGNMENT:
        raise InvalidBatch(f"the header at {position} says {batch_bytes} bytes, {available} are there")
    if xxh3_64_intdigest(view[position + 8 : position + header_bytes]) != checksum:
        raise BadChecksum(f"the header at {position} does not match its checksum", position=position)
    if version != VERSION:
        raise NewerFormat(f"the batch at {position} has version {version}, this penstock reads {VERSION}; upgrade it")
    return Batch(view[position : position + batch_bytes], checksum, *fields[3:])


def parse_few(buffer: Buffer) -> Batch | None:
    """A whole batch of a few plain records that is in no log, parsed and checked; None for any other."""
    found = recognise_few(buffer)
    if found is None:
        return None
    checksum, count, producer_id, first_sequence, epoch = found
    view = memoryview(buffer)
    return Batch(
        view, checksum, _RECORDS, 0, _HEADER_BYTES_OF[1], len(view), count, 1, 0, 0, 0, _NO_LOG, 0, 0,
        producer_id, first_sequence, epoch, checked=True,
    )  # fmt: skip


def batches(buffer: Buffer) -> Iterator[Batch]:
    """Every batch of a buffer of whole batches. Raises as `parse` does."""
    position, end = 0, len(memoryview(buffer))
    while position < end:
        batch = parse(buffer, position)
        yield batch
        position += batch.batch_bytes


def with_effects(batch: Buffer, effects: bytes) -> bytearray:
    """The same records with effects beside them: record and state change become one atomic write."""
    old = parse(batch)
    found: list[tuple[int, int, Buffer, int]] = [(c.id, c.codec, old.stored(c), c.raw_bytes) for c in old.directory()]
    found.append((ColumnId.EFFECTS, Codec.NONE, effects, len(effects)))
    return lay_out(old.kind, old.record_count, found, old.producer_id, old.producer_epoch, old.first_sequence)
