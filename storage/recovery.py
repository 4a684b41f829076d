"""The decisions of opening a log: where it ends, and which bytes are valid.

Idea: `End` is a place in the log; `follows` says whether a batch fits right there (seq, log, offset, chain), so the
log's end is as far as that goes. `begin` chooses the mark to start from. `walk` turns bytes into batches and stops at
the first invalid one.

Contract: bytes at or below a mark are never cut: bad ones are `Damage`, reported and read around. The log above the
mark is cut at the first bad batch, whatever follows, because unsynced writes have no order. Pure: pages and `read`
functions in, decisions out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from .batch import HEADER_BYTES, MAGIC, Batch, Kind, parse
from .errors import InvalidBatch
from .layout import DATA_START, IndexRow, Mark, SegmentHeader, SegmentName, word

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

    from .segment import Page

Read = Callable[[int, int], "Buffer"]
"""`read(size, position)`: up to `size` bytes of a segment."""

WINDOW_BYTES = 1 << 20
_MAGIC_BYTES = struct.pack("<I", MAGIC)
_MAGIC_AT = 8
_BATCH_BYTES = struct.Struct("<I")
_BATCH_BYTES_AT = 20
_STEP = 64


class Damage(msgspec.Struct, frozen=True):
    """Bytes that were durable and are wrong or missing. `next_offset` is where good records go on, if anywhere."""

    path: str
    position: int
    reason: str
    offset: int = -1
    next_offset: int | None = None


class LogEnd(msgspec.Struct, frozen=True, gc=False):
    """The place after batch `seq`: its position in its segment, the next offset, and what the next must name."""

    seq: int
    position: int
    offset: int
    checksum: int
    time_us: int
    term: int

    def after(self, batch: Batch, position: int) -> LogEnd:
        """The end when `batch`, at `position`, is the last one."""
        return LogEnd(
            batch.seq, position + batch.batch_bytes, end_offset_of(batch), batch.header_checksum,
            batch.append_time_us, batch.term,
        )  # fmt: skip

    def at_start(self) -> LogEnd:
        """The same place, at the start of the next segment."""
        return msgspec.structs.replace(self, position=DATA_START)

    def mark(self, log_id: bytes, generation: int, *, clean: bool = False) -> Mark:
        """The mark that says everything up to here is durable."""
        return Mark(
            log_id=log_id, word=word(generation, self.seq), end_position=self.position, end_offset=self.offset,
            last_checksum=self.checksum, last_time_us=self.time_us, term=self.term, clean=clean,
        )  # fmt: skip

    def header(self, log_id: bytes, generation: int) -> SegmentHeader:
        """The header of a segment that starts here."""
        return SegmentHeader(
            log_id=log_id, generation=generation, base_seq=self.seq + 1, base_offset=self.offset,
            previous=self.checksum, base_term=self.term, base_time_us=self.time_us,
        )  # fmt: skip


NOTHING = LogEnd(0, DATA_START, 0, 0, 0, 0)


def end_offset_of(batch: Batch) -> int:
    """The offset after a batch: only records take offsets."""
    return batch.base_offset + (batch.record_count if batch.kind == Kind.RECORDS else 0)


def end_at_mark(mark: Mark) -> LogEnd:
    """The place a mark names."""
    return LogEnd(mark.seq, mark.end_position, mark.end_offset, mark.last_checksum, mark.last_time_us, mark.term)


def end_before(header: SegmentHeader) -> LogEnd:
    """The place right before a segment's first batch."""
    return LogEnd(
        header.base_seq - 1, DATA_START, header.base_offset, header.previous, header.base_time_us, header.base_term
    )


def before(batch: Batch, position: int = DATA_START) -> LogEnd:
    """The place right before `batch`, at `position`, as the batch tells it: for when what leads there is damaged."""
    return LogEnd(batch.seq - 1, position, batch.base_offset, batch.previous, batch.append_time_us, batch.term)


def end_after(seq: int, row: IndexRow) -> LogEnd:
    """The place of the next segment's first batch, behind the batch of a row."""
    return LogEnd(seq, DATA_START, row.end_offset, row.header_checksum, row.append_time_us, row.term)


def follows(end: LogEnd, batch: Batch, log_id: bytes) -> str:
    """Why `batch` cannot stand right after `end`; "" when it can."""
    if batch.seq != end.seq + 1:
        return f"batch {batch.seq} stands where {end.seq + 1} belongs"
    if batch.log_id != log_id:
        return f"batch {batch.seq} belongs to another log ({batch.log_id.hex()})"
    if batch.previous != end.checksum:
        return f"batch {batch.seq} does not follow the batch before it"
    if batch.base_offset != end.offset:
        return f"batch {batch.seq} starts at offset {batch.base_offset} instead of {end.offset}"
    return ""


class RecoveryPlan(Enum):
    """How recovery goes on from its beginning."""

    CONTINUE = "closed in good order: append in place"
    VERIFY = "keep what follows and verifies, then go on in a new generation"
    CUT = "a sync failed: nothing after the mark counts"
    COPY = "a sync never answered: what follows and verifies is written again on fresh blocks"


class Begin(msgspec.Struct, frozen=True):
    """The beginning of recovery: `segment` is an index into the live segments. `is_marked`: a mark says so."""

    segment: int
    end: LogEnd
    how: RecoveryPlan
    clean: bool
    is_marked: bool


def begin(pages: Callable[[int], Page], names: list[SegmentName], *, poisoned: bool, suspect: bool) -> Begin:
    """Choose the newest mark. Pages are asked for from the last segment backwards, as few as needed."""
    for index in range(len(names) - 1, -1, -1):
        page, last = pages(index), index == len(names) - 1
        mark = page.mark
        if mark is None or mark.seq < names[index].base_seq - 1:
            continue
        if not last and mark.seq >= names[index + 1].base_seq:
            continue
        return _begin_at(index, end_at_mark(mark), mark.clean and last, poisoned, suspect, is_marked=True)
    header = pages(0).header
    end = end_before(header) if header is not None else NOTHING
    end = msgspec.structs.replace(end, seq=names[0].base_seq - 1)
    return _begin_at(0, end, False, poisoned, suspect, is_marked=False)


def _begin_at(index: int, end: LogEnd, clean: bool, poisoned: bool, suspect: bool, *, is_marked: bool) -> Begin:
    if poisoned:
        how = RecoveryPlan.CUT
    elif clean:
        how = RecoveryPlan.CONTINUE
    else:
        how = RecoveryPlan.COPY if suspect else RecoveryPlan.VERIFY
    return Begin(index, end, how, clean, is_marked)


def read_batch(read: Read, position: int, size: int) -> Batch:
    """The batch at `position` of a file of `size` bytes. Raises InvalidBatch, BadChecksum, NewerFormat."""
    head = read(min(HEADER_BYTES, size - position), position) if position < size else b""
    return parse(read(declared_bytes(head, 0, size - position), position))


def declared_bytes(window: Buffer, at: int, available: int) -> int:
    """The length a header names, held to what is there; the least a header needs when it names nothing sane."""
    view = memoryview(window)
    if len(view) < at + HEADER_BYTES or view[at + _MAGIC_AT : at + _MAGIC_AT + 4] != _MAGIC_BYTES:
        return min(HEADER_BYTES, max(available, 0))
    return min(_BATCH_BYTES.unpack_from(view, at + _BATCH_BYTES_AT)[0], available)


def walk(read: Read, position: int, size: int) -> Iterator[tuple[int, Batch]]:
    """Every batch with its position, until the first that does not parse. Raises NewerFormat."""
    window, start = memoryview(b""), position
    while position < size:
        try:
            batch = parse(window, position - start)
        except InvalidBatch:
            try:
                window, start = _window(read, position, size), position
                batch = parse(window)
            except InvalidBatch:
                return
        yield position, batch
        position += batch.batch_bytes


def _window(read: Read, position: int, size: int) -> memoryview:
    """Bytes from `position` on: at least the batch that begins there."""
    window = memoryview(read(min(WINDOW_BYTES, size - position), position))
    needed = declared_bytes(window, 0, size - position)
    return window if needed <= len(window) else memoryview(read(needed, position))


def next_good(read: Read, position: int, size: int, *, log_id: bytes, after_seq: int) -> tuple[int, Batch] | None:
    """The first batch of this log after a damaged place, found by its magic number; None when there is none."""
    position = (position + _STEP - 1) & -_STEP
    while position < size:
        window = bytes(read(min(WINDOW_BYTES, size - position), position))
        for place in _candidates(window):
            try:
                batch = read_batch(read, position + place, size)
            except InvalidBatch:
                continue
            if batch.log_id == log_id and batch.seq > after_seq:
                return position + place, batch
        position += WINDOW_BYTES
    return None


def _candidates(window: bytes) -> Iterator[int]:
    """Aligned places in a window where a batch's magic number stands."""
    found = window.find(_MAGIC_BYTES)
    while found >= 0:
        if found >= _MAGIC_AT and (found - _MAGIC_AT) % _STEP == 0:
            yield found - _MAGIC_AT
        found = window.find(_MAGIC_BYTES, found + 1)
