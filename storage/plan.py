"""Plans an append: the position of each batch and the bytes to write, before any of them is written.

Idea: a `Plan` walks the batches along the chain and gives each a position; when a segment is full it asks for the next
one. The result is a list of pieces, one per segment, ready for one index write and one pwritev. `Stamping` gives
batches their places in the chain, `Verbatim` checks batches that have places already.

Contract: planning writes nothing; dropping a plan leaves the log as it was, but for segments it asked for. The body of
a batch is never copied. Pure but for the `room` callback.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from msgspec import Struct

from .batch import MAGIC, Batch, parse
from .errors import BatchTooLarge, InvalidBatch
from .header import CHECKSUM_STRUCT, DIRECTORY_STRUCT, HEADER_BYTES, ColumnId, Kind, Stamp, stamped
from .index import extras, row_of
from .layout import DATA_START, INDEX_ROW_STRUCT, IndexRow
from .recovery import LogEnd, end_offset_of, follows

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

    from .segment import Segment

_FIELDS = struct.Struct("<IBBHIIII")  # of a batch's header, `magic` to `column_count`
_FIELDS_AT = CHECKSUM_STRUCT.size
_INDEXED_COLUMNS = bytes((ColumnId.PRIORITY, ColumnId.NOT_BEFORE))  # what a row says beyond the header
CODEC_AT = 2
"""Place of a column's codec in its entry of the directory."""

_APPENDABLE = frozenset(map(int, Kind))
_RECORDS = int(Kind.RECORDS)


class Appended(NamedTuple):
    """The place of a planned batch."""

    seq: int
    base_offset: int
    position: int


class SegmentPiece:
    """The part of a plan that goes into one segment, from `position` to `end`."""

    __slots__ = ("buffers", "end", "first_seq", "position", "rows", "segment")

    def __init__(self, segment: Segment, first_seq: int) -> None:
        self.segment = segment
        self.first_seq = first_seq
        self.position = self.end = segment.position
        self.buffers: list[Buffer] = []
        self.rows: list[bytes] = []


class Plan:
    """An append that has not happened. What it says of the log's end is so once it has."""

    __slots__ = ("appended", "checksum", "ends", "offset", "pieces", "seq", "term", "time_us")

    def __init__(self, segment: Segment, end: LogEnd) -> None:
        self.seq = end.seq
        self.offset = end.offset
        self.checksum = end.checksum
        self.time_us, self.term = end.time_us, end.term
        self.pieces = [SegmentPiece(segment, end.seq + 1)]
        self.appended: list[Appended] = []
        self.ends: dict[int, int] = {}

    def place(
        self,
        batches: Sequence[Buffer],
        source: Placing,
        *,
        segment_bytes: int,
        room: Callable[[LogEnd, int], Segment],
        begin: bool = False,
    ) -> None:
        """Place the batches one after the other; `room(end, size)` makes the next segment. Raises InvalidBatch.

        `begin`: the first one begins a segment, whatever room is left in the one before.
        """
        piece, seq, offset, checksum = self.pieces[-1], self.seq, self.offset, self.checksum
        for batch in batches:
            size = len(batch)
            found = source.inspect(batch, size)
            if (begin or piece.end + size > segment_bytes) and piece.end > DATA_START:
                end = LogEnd(seq, piece.end, offset, checksum, self.time_us, self.term)
                piece = SegmentPiece(room(end, size), seq + 1)
                self.pieces.append(piece)
            begin = False
            seq += 1
            entry = source.place(batch, found, piece.end, seq, offset, checksum)
            checksum = entry.checksum
            piece.buffers += entry.buffers
            piece.rows.append(entry.row)
            self.appended.append(Appended(seq, offset, piece.end))
            piece.end += size
            offset = entry.end_offset
            self.ends[seq], self.time_us, self.term = offset, entry.time_us, entry.term
        self.seq, self.offset, self.checksum = seq, offset, checksum


class PlacedBatch(Struct, frozen=True, gc=False):
    """A batch with its place: what to write for it, and what the next one follows."""

    buffers: tuple[Buffer, ...]
    row: bytes
    checksum: int
    end_offset: int
    time_us: int
    term: int


class Placing(Protocol):
    """Gives batches their places."""

    def inspect(self, batch: Buffer, size: int) -> Any:
        """Inspect the next batch before it has a position. Raises InvalidBatch."""
        ...

    def place(self, batch: Buffer, found: Any, position: int, seq: int, offset: int, previous: int) -> PlacedBatch:
        """The batch as it stands at `position`, behind the header whose checksum is `previous`."""
        ...


class Stamping:
    """Batches as producers make them get their places here."""

    def __init__(self, log_id: bytes, term: int, time_us: int, max_batch_bytes: int) -> None:
        self._log_id = log_id
        self._term = term
        self._time_us = time_us
        self._max_batch_bytes = max_batch_bytes

    def inspect(self, batch: Buffer, size: int) -> tuple[int, int, int, int]:
        return inspect(batch, size, self._max_batch_bytes)

    def place(
        self, batch: Buffer, found: tuple[int, int, int, int], position: int, seq: int, offset: int, previous: int
    ) -> PlacedBatch:
        place = Stamp(seq, offset, self._term, self._log_id, self._time_us, previous)
        return settled(batch, found, position, place)


class Verbatim:
    """Batches that have their places stay as they are. Each must follow the one before it, the first one `end`.

    How large one may be was decided where it was stamped.
    """

    def __init__(self, log_id: bytes, end: LogEnd) -> None:
        self._log_id = log_id
        self._end = end

    def inspect(self, batch: Buffer, size: int) -> Batch:
        found = parse(batch)
        if found.batch_bytes != size:
            raise InvalidBatch(f"{size} bytes are not one batch (its header says {found.batch_bytes})")
        if found.kind not in _APPENDABLE:
            raise InvalidBatch(f"a batch of kind {found.kind} cannot be appended")
        reason = follows(self._end, found, self._log_id) or _falls(self._end, found)
        if reason:
            raise InvalidBatch(reason)
        found.check()
        self._end = self._end.after(found, 0)
        return found

    def place(self, batch: Buffer, found: Batch, position: int, seq: int, offset: int, previous: int) -> PlacedBatch:
        row = INDEX_ROW_STRUCT.pack(*row_of(found, position))
        end_offset = end_offset_of(found)
        return PlacedBatch((batch,), row, found.header_checksum, end_offset, found.append_time_us, found.term)


def _falls(end: LogEnd, batch: Batch) -> str:
    """Why `batch` cannot follow `end` though it names it; "" when it can."""
    if batch.term < end.term:
        return f"batch {batch.seq} has term {batch.term}, the one before it {end.term}"
    if batch.append_time_us < end.time_us:
        return f"batch {batch.seq} was appended at {batch.append_time_us}, the one before it at {end.time_us}"
    return ""


def settled(batch: Buffer, found: tuple[int, int, int, int], position: int, place: Stamp) -> PlacedBatch:
    """Stamp a batch that `inspect` found good, to stand at `position` of its segment."""
    kind, header_bytes, count, columns = found
    header, checksum = stamped(batch, header_bytes, place)
    offset = place.base_offset
    row = (
        offset, position, place.append_time_us, place.term, 0, checksum, count, len(batch), kind, 0, 0, 0, 0,
    )  # fmt: skip
    if columns > 1:
        row = _with_extras(row, batch, columns)
    end_offset = offset + count if kind == _RECORDS else offset
    buffers = header, memoryview(batch)[header_bytes:]
    time_us, term = place.append_time_us, place.term
    return PlacedBatch(buffers, INDEX_ROW_STRUCT.pack(*row), checksum, end_offset, time_us, term)


def inspect(batch: Buffer, size: int, max_batch_bytes: int) -> tuple[int, int, int, int]:
    """Kind, header bytes, record count and columns of a batch. The caller has checked its columns."""
    if size < HEADER_BYTES:
        raise InvalidBatch(f"{size} bytes are too few for a batch")
    magic, _, kind, _, header_bytes, batch_bytes, count, columns = _FIELDS.unpack_from(batch, _FIELDS_AT)
    if magic != MAGIC or batch_bytes != size or header_bytes > size:
        raise InvalidBatch(f"{size} bytes are not one batch (its header says {batch_bytes})")
    if kind not in _APPENDABLE:
        raise InvalidBatch(f"a batch of kind {kind} cannot be appended")
    if size > max_batch_bytes:
        raise BatchTooLarge(f"a batch of {size} bytes is over {max_batch_bytes}; send fewer records at once")
    return kind, header_bytes, count, columns


def _with_extras(row: tuple, batch: Buffer, columns: int) -> tuple:
    """The row with what priority and not-before columns say, when the directory names any."""
    ids = columns_of(batch, columns)
    if not any(each in ids for each in _INDEXED_COLUMNS):
        return row
    return tuple(IndexRow(*row)._replace(**extras(parse(batch))))


def columns_of(batch: Buffer, columns: int, *, at: int = 0) -> bytes:
    """A byte of each entry of a batch's directory: its column's id, or what is `at` another place in it."""
    end = HEADER_BYTES + columns * DIRECTORY_STRUCT.size
    return bytes(memoryview(batch)[HEADER_BYTES + at : end : DIRECTORY_STRUCT.size])
