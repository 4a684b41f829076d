"""A cursor: moves forward through a log by chunks of whole batches.

Idea: the cursor knows the next seq, its position, and the batch before it; the index only says how much to read at
once. A batch that is not where it belongs is looked for in segments that are new since before it counts as damaged.

A mapped reader that keeps up with a writer finds one batch right at its position: `follow` takes that and leaves all
other cases to `next`.

Readers skip staged batches, many at once where the index shows many, and never read the columns of a large one. Only
replay and publishing use a cursor that returns them (`whole`).

Contract: every returned batch has its header, seq and chain verified; the decoder verifies columns. Damage raises
Corrupt with the offset where good records continue (AcceptedLoss if it was accepted), unless it took no record and the
cursor is for records: then the cursor passes it, and the reader reports it. A cut that took back batches already read
raises Diverged. Where retention took what is next, and no record of it, the cursor goes on behind that; else
OutOfBounds. After an error the cursor stays where it was, or behind staged batches.
Must not know: how far may be read, and why.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from . import index
from .batch import HEADER_BYTES, HEADER_BYTES_MAX, Batch, Kind, parse
from .errors import Corrupt, Diverged, InvalidBatch, OutOfBounds, StorageError
from .layout import DATA_START, SEQ_LIMIT, SegmentName, word
from .recovery import declared_bytes, end_offset_of
from .segment_reader import SegmentReader

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

    from .readable import ReadableLog
    from .segment import Newest

CHUNK_BYTES = 1 << 20
CHUNK_BATCHES = 1024
"""Limit on batches, however small: parsing this many takes 2 ms."""
GUESS_BYTES = 8192
"""A cursor that follows a log of batches up to half as long reads on without asking the index for their lengths."""
GUESS_BATCHES = 4
"""Limit on their number: the effects of a queue group, and the record after them."""

_STAGED = int(Kind.STAGED)
_ENDLESS = 1 << 32
"""More bytes than any batch has."""


class NotCached(StorageError):
    """The next bytes are not in memory: reading them would wait for the disk."""

    code = "not_cached"
    retry = True


class Beyond(NamedTuple):
    """The place behind damage: of the next batch, in its segment, and of the next record."""

    position: int
    seq: int
    offset: int


class Chunk(msgspec.Struct, gc=False):
    """Whole batches of one segment that follow each other, but for staged ones between them; state batches included.

    `offset` is the first record asked for: the first batch may begin before it. `buffer` is these batches back to
    back; when the reader is mapped it is a view of the mapping, which staged ones may stand in, too.
    """

    buffer: Buffer
    batches: list[Batch]
    seq_first: int
    seq_last: int
    offset: int
    next_offset: int


class Cursor:
    """A place in a log: the next batch is `seq`, at `position` of segment `name`; `offset` is the next record."""

    __slots__ = (
        "_ahead", "_alone_to", "_checksum", "_last_bytes", "_limit", "_mapping", "_name", "_reader", "offset",
        "position", "seq", "whole",
    )  # fmt: skip

    def __init__(
        self, reader: ReadableLog, name: SegmentName, seq: int, position: int, offset: int, *, whole: bool = False
    ) -> None:
        """`whole`: staged batches are handed out with all others."""
        self._reader = reader
        self._name = name
        self._checksum: int | None = None
        self._limit = -1
        self._last_bytes = 0
        self._alone_to = 0  # up to this position each batch is read alone
        self._mapping: Buffer = b""  # of the segment that was read last, all of it
        self._ahead = -1  # the word that commits exactly the next batch; -1 while `follow` cannot take it
        self.seq = seq
        self.position = position
        self.offset = offset
        self.whole = whole

    @property
    def path(self) -> str:
        """The log's directory."""
        return self._reader.path

    @property
    def at_limit(self) -> bool:
        """Whether everything up to the last known limit has been read."""
        return self.seq > self._limit

    def next(self, max_bytes: int = CHUNK_BYTES, limit_seq: int | None = None, *, cached: bool = False) -> Chunk | None:
        """The next whole batches, at least one and about `max_bytes` of them; None at the limit.

        Args:
            limit_seq: read no further than this; None: ask the reader's limit when the last answer is used up.
            cached: raise NotCached instead of waiting for the disk (the cursor stays where it is).

        Raises:
            Corrupt: the next batch is damaged; `next_offset` says where a new cursor can go on.
            Diverged: what was read before is void by now; the message names the valid end.
            OutOfBounds: retention took it.
        """
        while True:
            known = self._known_limit(self.seq if limit_seq is None else limit_seq)
            limit = known if limit_seq is None else limit_seq
            if self.seq > limit:
                if limit_seq is None:
                    self._check_read()
                return None
            if cached and limit - self.seq < 2 and (chunk := self._newest(limit, max_bytes)) is not None:
                return chunk
            if (chunk := self._read_on(limit, max_bytes, cached)) is not None:
                return chunk

    def _read_on(self, limit: int, max_bytes: int, cached: bool) -> Chunk | None:
        """The next batches up to `limit`; None when all of these were skipped."""
        segment = self._segment()
        if self.seq > limit:
            return None  # it went behind what retention took
        last = min(limit, self._last_in_segment())
        size = self._run_bytes(segment, last, 1 if self.position < self._alone_to else max_bytes, cached)
        data = self._fetch(segment, size, cached)
        batches = self._accept(data, last, max_bytes)
        if not batches:
            data, batches = self._insist(last, data, cached)
            if not batches:
                return None
        chunk = self._advance(data, batches)
        if chunk is None:
            self._pass_more(last, end_offset_of(batches[-1]), cached)
        return chunk

    def read_alone(self, size: int) -> None:
        """Read batch by batch, for so many bytes: of those, the disk can read only what is in front of a bad sector."""
        self._alone_to = self.position + size

    def follow(self, committed: int) -> Batch | None:
        """The next batch, if it is the last one that the board word `committed` covers, and is mapped already.

        Otherwise None, and nothing has changed: call `next`.
        """
        if committed != self._ahead:
            return None
        try:
            batch = parse(self._mapping, self.position)
        except InvalidBatch:
            return None  # in a new segment, or behind what is mapped
        if batch.seq != self.seq or batch.previous != self._checksum or batch.kind != Kind.RECORDS:
            return None
        self.seq += 1
        self._ahead += 1
        self.position += batch.batch_bytes
        self._checksum = batch.header_checksum
        self.offset = batch.base_offset + batch.record_count
        return batch

    def _newest(self, limit: int, max_bytes: int) -> Chunk | None:
        """The last batches from the writer's memory, one or two: a cursor that keeps up makes no system call."""
        newest = None if self._reader.newest is None else self._reader.newest()
        if newest is None or newest.seq != limit:
            return None
        if self.seq < limit:
            return self._last_two(newest, max_bytes)
        if newest.position != self.position:
            return None
        batch = parse(newest.batch)
        if batch.previous != self._checksum or (batch.kind == _STAGED and not self.whole):
            return None
        chunk = Chunk(newest.batch, [batch], batch.seq, batch.seq, self.offset, end_offset_of(batch))
        self._last_bytes = batch.batch_bytes
        self._move_behind(batch, self.position + batch.batch_bytes)
        return chunk

    def _last_two(self, newest: Newest, max_bytes: int) -> Chunk | None:
        if newest.position - len(newest.before) != self.position:
            return None
        data = newest.before + newest.batch
        batches = self._accept(data, newest.seq, max_bytes)
        if not batches or any(batch.kind == _STAGED for batch in batches):
            return None
        return self._advance(data, batches)

    def _known_limit(self, wanted: int) -> int:
        """The reader's limit, asked for anew when `wanted` is beyond it: so the reader learns of a cut before that."""
        if wanted > self._limit:
            self._limit = self._reader.limit()
        return self._limit

    def _segment(self) -> SegmentReader:
        reader = self._reader
        name = reader.names[reader.place_of(self.seq)]
        if name != self._name:
            self._move_to(name)
        known = reader.names
        try:
            return reader.segment(name)
        except OutOfBounds:
            if reader.names == known:
                raise
            return self._segment()

    def _move_to(self, name: SegmentName) -> None:
        """Go on in the next segment: at its start, or where what was read already was written anew."""
        if name.base_seq > self.seq:
            self._pass_removed(name)
            return
        position = self._start_of(name) if name.base_seq == self.seq else self._behind_copy(name)
        if position is None:
            raise self._diverged()
        self._name, self.position, self._alone_to = name, position, 0

    def _pass_removed(self, name: SegmentName) -> None:
        """Go on at the first segment that is left, where what retention took held no record for this cursor.

        Raises OutOfBounds.
        """
        if self.whole or self._reader.base_offset(0) != self.offset:
            first = self._reader.first_offset
            raise OutOfBounds(f"offset {self.offset} of {self.path} is gone; the log begins at offset {first}")
        self._name, self.position, self.seq, self._alone_to = name, DATA_START, name.base_seq, 0
        self._checksum = None

    def _check_read(self) -> None:
        """Raise Diverged where what was read last is void by now, which may long have more behind it than the log."""
        name = self._reader.names[self._reader.place_of(self.seq - 1)]
        if name.generation > self._name.generation:
            self._move_to(name)

    def _diverged(self) -> Diverged:
        end = self._reader.base_offset(self._fork())
        return Diverged(f"{self.path} was cut: what was read of it from offset {end}, its valid end then, is void")

    def _start_of(self, name: SegmentName) -> int | None:
        """Position of the first batch of a segment that begins here; None if it follows batches other than ours."""
        header = self._reader.segment(name).page.header
        if header is None or self._checksum is None or name.generation == self._name.generation:
            return DATA_START
        return DATA_START if header.previous == self._checksum else None

    def _fork(self) -> int:
        """Place of the first segment of a later generation than the one that was read."""
        later = (place for place, name in enumerate(self._reader.names) if name.generation > self._name.generation)
        return next(later, self._reader.place_of(self.seq))

    def _behind_copy(self, name: SegmentName) -> int | None:
        """This cursor's position in a segment that begins before it; None if that holds other batches.

        A writer that finds syncs in doubt writes verified batches again, byte for byte.
        """
        row = self._reader.segment(name).row(self.seq - 1)
        if row is None:
            return None
        same = row.end_offset <= self.offset if self._checksum is None else row.header_checksum == self._checksum
        return row.end_position if same else None

    def _last_in_segment(self) -> int:
        names = self._reader.names
        place = self._reader.place_of(self.seq)
        return names[place + 1].base_seq - 1 if place + 1 < len(names) else SEQ_LIMIT

    def _run_bytes(self, segment: SegmentReader, last: int, max_bytes: int, cached: bool) -> int:
        """How many bytes to read, by the index; a mapping is read to its end."""
        file = None if self._reader.mapped else segment.index_file()
        if file is None:
            return max_bytes
        if last - self.seq < GUESS_BATCHES and 0 < self._last_bytes <= GUESS_BYTES // 2:
            return min(GUESS_BYTES, max_bytes)
        first, count = self.seq - segment.name.base_seq, last - self.seq + 1
        size = index.run_bytes(file, first, count, self.position, max_bytes, cached=cached, whole=self.whole)
        if size > max_bytes:  # one batch, or a damaged row: of what is not there, nothing is allocated
            size = min(size, segment.size - self.position)
        return size if size > 0 else max_bytes

    def _fetch(self, segment: SegmentReader, size: int, cached: bool) -> Buffer:
        """Bytes from the position on; the next batch alone where the disk cannot read something behind it."""
        try:
            return self._bytes(segment, size, cached)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
        self.read_alone(size)
        try:
            head = self._bytes(segment, HEADER_BYTES, cached)
            return self._bytes(segment, declared_bytes(head, 0, segment.size - self.position), cached)
        except OSError as error:
            self._reader.check_given_up(error, segment.ref.path, self.position, self.offset)
            raise

    def _bytes(self, segment: SegmentReader, size: int, cached: bool) -> Buffer:
        if not cached:
            data = segment.read_on(size, self.position)
            self._mapping = segment.mapping
            return data
        data = segment.file.pread_cached(size, self.position)
        if data is None:
            raise NotCached(f"offset {self.offset} of {self.path} is not in memory")
        return data

    def _accept(self, data: Buffer, last: int, max_bytes: int) -> list[Batch]:
        """The batches of `data` that follow the cursor; the header is enough of staged ones, which are skipped."""
        found: list[Batch] = []
        seq, checksum, position, view = self.seq, self._checksum, 0, memoryview(data)
        doubtful = seq < self._reader.given_up_to and not self.whole
        while seq <= last and position < len(view):
            try:
                batch = parse(view, position, available=_ENDLESS)
            except InvalidBatch:
                break
            if batch.seq != seq or not (self._begins(batch) if checksum is None else batch.previous == checksum):
                break
            position += batch.batch_bytes
            if self.whole or batch.kind != _STAGED:
                if position > len(view) or (found and position > max_bytes):
                    break
            if len(found) == CHUNK_BATCHES or (doubtful and self._is_lost(batch)):
                break
            found.append(batch)
            seq, checksum = seq + 1, batch.header_checksum
        return found

    def _is_lost(self, batch: Batch) -> bool:
        """Whether the loss of a batch was accepted, and it cannot be read: its header says nothing of its columns."""
        if batch.kind != Kind.RECORDS or not self._reader.is_given_up(batch.base_offset, batch.end_offset):
            return False
        try:
            batch.check()
        except InvalidBatch:
            return True
        return False

    def _begins(self, batch: Batch) -> bool:
        """Whether a batch that nothing was read before belongs to this log; the chain says so of all others."""
        return self._segment().has(batch)

    def _insist(self, last: int, data: Buffer, cached: bool) -> tuple[Buffer, list[Batch]]:
        """The next batch must be there: it is longer than what was read, or in a new segment, or damaged.

        Where the damage took no record, it is passed, and there are no batches.
        """
        segment = self._segment()
        segment.map_again()
        if len(data) < HEADER_BYTES or declared_bytes(data, 0, segment.size - self.position) <= len(data):
            self._reader.refresh()
            segment = self._segment()
            data = self._fetch(segment, HEADER_BYTES, cached)
        size = declared_bytes(data, 0, segment.size - self.position)
        data = self._fetch(segment, size, cached)
        batches = self._accept(data, last, size)
        if not batches:
            beyond = self._beyond(segment, last)
            if not self._pass_damage(beyond):
                raise self._corrupt(segment, self._reader.known_end(last) if beyond is None else beyond.offset)
        return data, batches

    def _pass_damage(self, beyond: Beyond | None) -> bool:
        """Go behind damage, if what follows begins where this cursor is, so that no record is lost."""
        if self.whole or beyond is None or beyond.offset != self.offset:
            return False
        self.position, self.seq, self._checksum = beyond.position, beyond.seq, None
        self._reader.met_damage = True
        return True

    def _beyond(self, segment: SegmentReader, last: int) -> Beyond | None:
        """The place where the log continues after damage here: after seq `last` at the latest, if its mark is there."""
        resumed, last_here = segment.next_good(self.position + 1, self.seq), self._last_in_segment()
        if resumed is not None and resumed[1].seq <= last_here:
            return Beyond(resumed[0], resumed[1].seq, resumed[1].base_offset)
        if last_here != SEQ_LIMIT:
            return Beyond(DATA_START, last_here + 1, self._reader.base_offset(self._reader.place_of(self.seq) + 1))
        mark = segment.mark_of(last)
        return None if mark is None else Beyond(mark.end_position, last + 1, mark.end_offset)

    def _corrupt(self, segment: SegmentReader, following: int | None) -> Corrupt:
        reason = "the batch does not follow the one before it"
        try:
            segment.batch(self.position).check()
        except InvalidBatch as error:
            reason = error.message
        return self._reader.corrupt(segment.ref.path, self.position, reason, self.offset, following)

    def _advance(self, data: Buffer, batches: list[Batch]) -> Chunk | None:
        """Go behind these batches; None when all of them were staged, and are skipped."""
        last = batches[-1]
        size = sum([batch.batch_bytes for batch in batches])
        end = end_offset_of(last)
        wanted = batches if self.whole else [batch for batch in batches if batch.kind != _STAGED]
        if len(wanted) == len(batches):
            buffer = data if len(data) == size else memoryview(data)[:size]
        else:
            buffer = memoryview(data)[:size] if self._reader.mapped else _joined(wanted)
        chunk = Chunk(buffer, wanted, wanted[0].seq, wanted[-1].seq, self.offset, end) if wanted else None
        self._last_bytes = last.batch_bytes
        self._move_behind(last, self.position + size)
        return chunk

    def _move_behind(self, last: Batch, position: int) -> None:
        self.seq, self.position, self._checksum = last.seq + 1, position, last.header_checksum
        self.offset = max(end_offset_of(last), self.offset)
        if self._reader.mapped and self.seq >= self._reader.given_up_to:
            self._ahead = word(self._name.generation, self.seq)

    def _pass_more(self, last_seq: int, offset: int, cached: bool) -> None:
        """Staged batches often come in large numbers: go behind those that the index shows, if the last one agrees.

        It must begin at `offset`, as they all do: so no records stand between them.
        """
        if self.seq > last_seq:
            return
        segment = self._segment()
        file = segment.index_file()
        first, count = self.seq - segment.name.base_seq, last_seq - self.seq + 1
        found = None if file is None else index.staged_run(file, first, count, cached=cached)
        if found is None:
            return
        many, row = found
        try:
            batch = parse(self._fetch_header(segment, row.position, cached), available=_ENDLESS)
        except InvalidBatch:
            return
        told = (batch.seq, batch.kind, batch.base_offset, batch.header_checksum)
        if told == (self.seq + many - 1, _STAGED, offset, row.header_checksum) and row.position >= self.position:
            self._move_behind(batch, row.position + batch.batch_bytes)

    def _fetch_header(self, segment: SegmentReader, position: int, cached: bool) -> Buffer:
        data = (segment.file.pread_cached if cached else segment.file.pread)(HEADER_BYTES_MAX, position)
        if data is None:
            raise NotCached(f"a header at {position} of {segment.ref.path} is not in memory")
        return data


def _joined(batches: list[Batch]) -> Buffer:
    """Batches that stood apart, back to back; one by itself is not copied."""
    return batches[0].buffer if len(batches) == 1 else b"".join([batch.buffer for batch in batches])
