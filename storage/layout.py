"""The bytes and names of a log's directory, except batches and snapshots.

Idea: every structure is one numpy dtype (a test compares it with FORMAT.md) with one struct beside it for speed, an
`encode_*` that adds the checksum and a `decode_*` that returns None if the checksum does not match. A segment is a
page with a header and two marks, then batches; an index is a header and one row per batch; the promises journal is a
run of entries. All zeros never decode.

Contract: little-endian; checksums are xxh3_64 of everything in the structure after the checksum itself. Pure: bytes
and names in, values out. Knows nothing of open files, processes or time.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
from xxhash import xxh3_64_intdigest

from .errors import NewerFormat
from .header import Kind

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

VERSION = 1
SECTOR_BYTES = 512

# -- words ----------------------------------------------------------------------------------------

SEQ_BITS = 44
SEQ_LIMIT = 1 << SEQ_BITS
GENERATION_LIMIT = 1 << (64 - SEQ_BITS)


def word(generation: int, seq: int) -> int:
    """Generation and seq as one word; words of one log compare in order."""
    assert 0 <= generation < GENERATION_LIMIT, generation
    assert 0 <= seq < SEQ_LIMIT, seq
    return generation << SEQ_BITS | seq


def split(value: int) -> tuple[int, int]:
    """The generation and the seq of a word."""
    return value >> SEQ_BITS, value & (SEQ_LIMIT - 1)


def log_number(log_id: bytes) -> int:
    """A log's id as the board has it: its 16 bytes as one little-endian number."""
    return int.from_bytes(log_id, "little")


# -- the first page of a segment ------------------------------------------------------------------

SEGMENT_MAGIC = 0x534B4E50  # "PNKS" in the file
MARK_MAGIC = 0x4D4B4E50  # "PNKM"
DATA_START = 4096
MARK_POSITIONS = (1024, 2048)
"""Each mark has a sector of its own: writing one cannot tear the other."""

SEGMENT_HEADER = np.dtype(
    [
        ("checksum", "<u8"),
        ("magic", "<u4"),
        ("version", "<u4"),
        ("log_id", "V16"),
        ("generation", "<u8"),
        ("base_seq", "<i8"),  # seq of the first batch in this file
        ("base_offset", "<i8"),  # its base offset
        ("previous", "<u8"),  # header checksum of the batch before it
        ("void_from", "<i8"),  # this seq and all above it are void in files of older generations
        ("base_term", "<i8"),  # term and append time of the batch before it
        ("base_time_us", "<i8"),
        ("reserved", "V424"),
    ]
)
_SEGMENT_STRUCT = struct.Struct("<QII16sQqqQqqq424x")

MARK_CLEAN = 1
MARK = np.dtype(
    [
        ("checksum", "<u8"),
        ("magic", "<u4"),
        ("version", "<u4"),
        ("log_id", "V16"),
        ("word", "<u8"),  # generation << 44 | durable seq
        ("counter", "<u8"),  # orders the two marks of a file
        ("end_position", "<i8"),  # in this file, after the durable batch
        ("end_offset", "<i8"),
        ("last_checksum", "<u8"),  # header checksum of the durable batch
        ("last_time_us", "<i8"),
        ("term", "<i8"),
        ("flags", "<u8"),  # 1: closed in good order, nothing follows
        ("reserved", "V416"),
    ]
)
_MARK_STRUCT = struct.Struct("<QII16sQQqqQqqQ416x")
assert SEGMENT_HEADER.itemsize == _SEGMENT_STRUCT.size == SECTOR_BYTES
assert MARK.itemsize == _MARK_STRUCT.size == SECTOR_BYTES


class SegmentHeader(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The header of a segment, in its first sector."""

    log_id: bytes
    generation: int
    base_seq: int
    base_offset: int
    previous: int
    base_term: int
    base_time_us: int

    @property
    def void_from(self) -> int:
        """The seq from which on files of older generations are void."""
        return self.base_seq


class Mark(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Everything up to seq `word & (SEQ_LIMIT - 1)` was synced when this was written."""

    log_id: bytes
    word: int
    end_position: int
    end_offset: int
    last_checksum: int
    last_time_us: int
    term: int
    clean: bool = False
    counter: int = 0

    @property
    def generation(self) -> int:
        return self.word >> SEQ_BITS

    @property
    def seq(self) -> int:
        return self.word & (SEQ_LIMIT - 1)


def encode_segment_header(header: SegmentHeader) -> bytes:
    """One sector."""
    return _sealed(
        _SEGMENT_STRUCT, SEGMENT_MAGIC, VERSION, header.log_id, header.generation, header.base_seq, header.base_offset,
        header.previous, header.void_from, header.base_term, header.base_time_us,
    )  # fmt: skip


def decode_segment_header(page: Buffer) -> SegmentHeader | None:
    """The header in the first sector of `page`, or None. Raises NewerFormat."""
    found = _opened(_SEGMENT_STRUCT, SEGMENT_MAGIC, page, 0, "segment")
    if found is None:
        return None
    log_id, generation, base_seq, base_offset, previous, _, base_term, base_time_us = found
    return SegmentHeader(
        log_id=log_id, generation=generation, base_seq=base_seq, base_offset=base_offset,
        previous=previous, base_term=base_term, base_time_us=base_time_us,
    )  # fmt: skip


def encode_mark(mark: Mark) -> bytes:
    """One sector."""
    return _sealed(
        _MARK_STRUCT, MARK_MAGIC, VERSION, mark.log_id, mark.word, mark.counter, mark.end_position, mark.end_offset,
        mark.last_checksum, mark.last_time_us, mark.term, MARK_CLEAN if mark.clean else 0,
    )  # fmt: skip


def decode_mark(page: Buffer, slot: int) -> Mark | None:
    """The mark in slot 0 or 1 of a segment's first page, or None. Raises NewerFormat."""
    found = _opened(_MARK_STRUCT, MARK_MAGIC, page, MARK_POSITIONS[slot], "mark")
    if found is None:
        return None
    log_id, word_, counter, end_position, end_offset, last_checksum, last_time_us, term, flags = found
    return Mark(
        log_id=log_id, word=word_, counter=counter, end_position=end_position, end_offset=end_offset,
        last_checksum=last_checksum, last_time_us=last_time_us, term=term, clean=bool(flags & MARK_CLEAN),
    )  # fmt: skip


def newest_mark(page: Buffer, log_id: bytes | None = None) -> tuple[Mark | None, int]:
    """The mark of a first page that holds, and the slot the next one goes to.

    The higher word holds; with equal words the higher counter. Marks of another log do not count.
    """
    marks = [decode_mark(page, slot) for slot in (0, 1)]
    best: Mark | None = None
    target = 0
    for slot, mark in enumerate(marks):
        if mark is None or (log_id is not None and mark.log_id != log_id):
            continue
        if best is None or (mark.word, mark.counter) > (best.word, best.counter):
            best, target = mark, 1 - slot
    return best, target


def both_marks_written(page: Buffer) -> bool:
    """Whether the places of both marks hold anything."""
    view = memoryview(page)
    return all(any(view[position : position + SECTOR_BYTES]) for position in MARK_POSITIONS)


# -- the index ------------------------------------------------------------------------------------

INDEX_MAGIC = 0x494B4E50  # "PNKI"
INDEX_HEADER = np.dtype(
    [
        ("checksum", "<u8"),
        ("magic", "<u4"),
        ("version", "<u4"),
        ("log_id", "V16"),
        ("generation", "<u8"),
        ("base_seq", "<i8"),
        ("reserved", "V16"),
    ]
)
_INDEX_HEADER_STRUCT = struct.Struct("<QII16sQq16x")
INDEX_HEADER_BYTES = 64

INDEX_ROW = np.dtype(
    [
        ("base_offset", "<i8"),
        ("position", "<i8"),  # of the batch in the segment; 0 = no row
        ("append_time_us", "<i8"),
        ("term", "<i8"),
        ("not_before_max", "<i8"),  # latest not-before of the records, 0 when none has one
        ("header_checksum", "<u8"),  # the row is believed only when the batch's header has it
        ("record_count", "<u4"),
        ("batch_bytes", "<u4"),
        ("kind", "u1"),
        ("flags", "u1"),
        ("priority_min", "u1"),
        ("priority_max", "u1"),
        ("reserved", "<u4"),
    ]
)
INDEX_ROW_STRUCT = struct.Struct("<qqqqqQIIBBBBI")
INDEX_ROW_BYTES = 64
assert INDEX_HEADER.itemsize == _INDEX_HEADER_STRUCT.size == INDEX_HEADER_BYTES
assert INDEX_ROW.itemsize == INDEX_ROW_STRUCT.size == INDEX_ROW_BYTES


class IndexRow(NamedTuple):
    """One batch as the index has it; the fields of INDEX_ROW in order."""

    base_offset: int
    position: int
    append_time_us: int
    term: int
    not_before_max: int
    header_checksum: int
    record_count: int
    batch_bytes: int
    kind: int
    flags: int = 0
    priority_min: int = 0
    priority_max: int = 0
    reserved: int = 0

    @property
    def end_offset(self) -> int:
        """The next offset after this batch: only records take any."""
        return self.base_offset + (self.record_count if self.kind == Kind.RECORDS else 0)

    @property
    def end_position(self) -> int:
        return self.position + self.batch_bytes


def index_position(base_seq: int, seq: int) -> int:
    """The position of the row of `seq` in the index of the segment that starts at `base_seq`."""
    return INDEX_HEADER_BYTES + (seq - base_seq) * INDEX_ROW_BYTES


def encode_index_header(log_id: bytes, generation: int, base_seq: int) -> bytes:
    return _sealed(_INDEX_HEADER_STRUCT, INDEX_MAGIC, VERSION, log_id, generation, base_seq)


def decode_index_header(page: Buffer) -> tuple[bytes, int, int] | None:
    """Log id, generation and base seq that an index says it belongs to, or None. Raises NewerFormat."""
    return _opened(_INDEX_HEADER_STRUCT, INDEX_MAGIC, page, 0, "index")


def mark_from_row(log_id: bytes, word_: int, row: IndexRow) -> Mark:
    """The mark that says the batch of `row` is durable; `word_` is its generation and seq."""
    return Mark(
        log_id=log_id, word=word_, end_position=row.end_position, end_offset=row.end_offset,
        last_checksum=row.header_checksum, last_time_us=row.append_time_us, term=row.term,
    )  # fmt: skip


# -- promises -------------------------------------------------------------------------------------

PROMISE_MAGIC = 0x504B4E50  # "PNKP"
PROMISE = np.dtype(
    [
        ("checksum", "<u8"),
        ("magic", "<u4"),
        ("version", "<u4"),
        ("log_id", "V16"),
        ("term", "<i8"),
        ("vote", "V16"),  # node id that got this node's vote in `term`, zeros = no node
        ("twin", "u1"),  # 1: the entry behind it says the same, 2: the one before it does, 0: none does
        ("reserved", "V7"),
    ]
)
_PROMISE_STRUCT = struct.Struct("<QII16sq16sB7x")
PROMISE_BYTES = 64
NO_NODE = bytes(16)
TWIN_BEHIND, TWIN_BEFORE = 1, 2
assert PROMISE.itemsize == _PROMISE_STRUCT.size == PROMISE_BYTES


class Promise(msgspec.Struct, frozen=True, gc=False):
    """This node will not go below `term` in this log, and has voted for `vote` in it."""

    log_id: bytes
    term: int
    vote: bytes = NO_NODE
    twin: int = 0


def encode_promise(promise: Promise) -> bytes:
    return _sealed(_PROMISE_STRUCT, PROMISE_MAGIC, VERSION, promise.log_id, promise.term, promise.vote, promise.twin)


def decode_promise(buffer: Buffer, position: int = 0) -> Promise | None:
    """The entry at `position`, or None. Raises NewerFormat."""
    found = _opened(_PROMISE_STRUCT, PROMISE_MAGIC, buffer, position, "promises journal")
    return None if found is None else Promise(*found)


# -- where a log that stands alone begins ---------------------------------------------------------

FIRST_MAGIC = 0x424B4E50  # "PNKB"
FIRST_OFFSET = np.dtype(
    [
        ("checksum", "<u8"),
        ("magic", "<u4"),
        ("version", "<u4"),
        ("log_id", "V16"),
        ("offset", "<i8"),  # records before it are gone
        ("reserved", "V24"),
    ]
)
_FIRST_STRUCT = struct.Struct("<QII16sq24x")
assert FIRST_OFFSET.itemsize == _FIRST_STRUCT.size


def encode_first(log_id: bytes, offset: int) -> bytes:
    return _sealed(_FIRST_STRUCT, FIRST_MAGIC, VERSION, log_id, offset)


def decode_first(buffer: Buffer) -> tuple[bytes, int] | None:
    """Log id and first offset, or None. Raises NewerFormat."""
    return _opened(_FIRST_STRUCT, FIRST_MAGIC, buffer, 0, "first offset")


# -- names ----------------------------------------------------------------------------------------

POISON = "poison"
LOCK = "lock"
PROMISES = "promises"
BOARD = "board"
FIRST = "first"
ADOPTED = "adopted"
NODE = "node.json"
SPARE_PREFIX = "spare-"
SEGMENT_SUFFIX = ".segment"
INDEX_SUFFIX = ".index"
_SEGMENT_PATTERN = re.compile(r"([0-9]{20})-([0-9]{8})\.(segment|index)")


class SegmentName(NamedTuple):
    """Identity of a segment within its log. `str()` is the stem of its file names."""

    base_seq: int
    generation: int

    def __str__(self) -> str:
        return f"{self.base_seq:020d}-{self.generation:08d}"

    @property
    def segment_file(self) -> str:
        return f"{self}{SEGMENT_SUFFIX}"

    @property
    def index_file(self) -> str:
        return f"{self}{INDEX_SUFFIX}"


def parse_segment_name(name: str) -> SegmentName | None:
    """The identity in a `.segment` file's name, None for every other name."""
    match = _SEGMENT_PATTERN.fullmatch(name)
    return SegmentName(int(match[1]), int(match[2])) if match and match[3] == "segment" else None


def parse_index_name(name: str) -> SegmentName | None:
    """The identity in an `.index` file's name, None for every other name."""
    match = _SEGMENT_PATTERN.fullmatch(name)
    return SegmentName(int(match[1]), int(match[2])) if match and match[3] == "index" else None


def spare_name(unique: str) -> str:
    """Name of a prepared file that is no segment yet."""
    return f"{SPARE_PREFIX}{unique}"


def makes_void(name: SegmentName, older: Iterable[SegmentName]) -> bool:
    """Whether a segment of this name says that any of these are void."""
    return any(each.generation < name.generation and each.base_seq >= name.base_seq for each in older)


def live_segments(names: Iterable[str]) -> tuple[list[SegmentName], list[SegmentName]]:
    """The segments that make up the log in order of seq, and those a newer generation has made void.

    A segment of a newer generation voids every seq from its base on in the older ones, so an older segment
    that starts there is void as a whole and one that starts before ends there.
    """
    found = [parsed for name in names if (parsed := parse_segment_name(name)) is not None]
    live: list[SegmentName] = []
    void: list[SegmentName] = []
    for name in sorted(found, key=lambda each: (each.generation, each.base_seq)):
        while live and live[-1].base_seq >= name.base_seq:
            void.append(live.pop())
        live.append(name)
    return live, void


# -- sealing --------------------------------------------------------------------------------------


def _sealed(layout: struct.Struct, magic: int, version: int, *fields: object) -> bytes:
    """The structure with its checksum, which is its first field, in place."""
    body = layout.pack(0, magic, version, *fields)[8:]
    return struct.pack("<Q", xxh3_64_intdigest(body)) + body


def _opened(layout: struct.Struct, magic: int, buffer: Buffer, position: int, what: str) -> tuple | None:
    """The fields after magic and version if the checksum agrees, else None."""
    view = memoryview(buffer)[position : position + layout.size]
    if len(view) < layout.size:
        return None
    checksum, found_magic, version, *fields = layout.unpack(view)
    if found_magic != magic or xxh3_64_intdigest(view[8:]) != checksum:
        return None
    if version > VERSION:
        raise NewerFormat(f"this {what} has format version {version}, this penstock reads {VERSION}; upgrade it")
    return tuple(fields)
