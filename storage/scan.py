"""Reads a whole log without trusting any of it: good batches, damaged ranges, and where it ends.

Idea: walk the live segments from the first batch to the last. A batch that verifies and follows the one before it is
`Good`. A stop at or below the durable point is a `Bad` range, and the walk continues at the next batch of this log; a
stop above it is the `Tail`, and the walk ends. The newest mark and evidence.py say what was durable; in a segment that
has lost its marks, every batch that can be found was.

Contract: reads only and takes no lock, so it may run beside a broker: batches appended meanwhile are above the marks
that were read first. Every durable seq is in a `Good` or in a `Bad`, in order; what the disk cannot read is as bad as
what does not verify. Results point into a buffer that the next step may replace: decode them first.

Must not know: what to do about damage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from . import evidence, log_ids
from .batch import HEADER_BYTES, Batch
from .errors import InvalidBatch
from .files import File, Files
from .layout import DATA_START, INDEX_ROW_BYTES, SegmentName, index_position, live_segments, parse_segment_name
from .recovery import NOTHING, LogEnd, before, end_at_mark, end_before, follows, next_good, read_batch, walk
from .segment import Page, read_page
from .unreadable import PatientFile


class Good(msgspec.Struct, frozen=True):
    """A batch that verifies, at `position` of a segment."""

    segment: SegmentName
    position: int
    batch: Batch


class Bad(msgspec.Struct, frozen=True):
    """Batches `first_seq` up to `next_seq` (exclusive) are unreadable although they were durable.

    Records from `offset` up to `next_offset` are lost; None when nothing good is known to follow, and both
    equal when the damage took no record.
    """

    file: str
    position: int
    reason: str
    first_seq: int
    next_seq: int | None
    offset: int
    next_offset: int | None


class Tail(msgspec.Struct, frozen=True):
    """The end of the log. `reason` is "" when only zeros follow, else what an opening writer will cut."""

    file: str
    position: int
    reason: str


class Segments(msgspec.Struct, frozen=True):
    """The live segments, by the directory and their first pages, and the newest mark among them.

    Everything up to seq `durable` was, by that mark or by other evidence. `lost`: segments without the marks they had.
    `logs`: the log that each segment names in its first page, or else in its first batch.
    """

    names: list[SegmentName]
    pages: dict[SegmentName, Page]
    void: list[SegmentName]
    log_id: bytes
    marked: LogEnd
    durable: int = 0
    lost: frozenset[SegmentName] = frozenset()
    logs: dict[SegmentName, bytes] = {}

    def limit_of(self, index: int) -> int | None:
        """The last seq that segment `index` holds; None for the last one, which is open."""
        return self.names[index + 1].base_seq - 1 if index + 1 < len(self.names) else None


def look(files: Files, directory: str) -> Segments:
    """List a log's segments and read their first pages. Raises NewerFormat."""
    listed = [name for name in files.listdir(directory) if _is_no_stranger(files, directory, name)]
    names, void = live_segments(listed)
    pages: dict[SegmentName, Page] = {}
    logs: dict[SegmentName, bytes] = {}
    for name in names:
        try:
            file = PatientFile(files.open(f"{directory}/{name.segment_file}"))
        except FileNotFoundError:
            continue  # retired since we listed; if it was not the oldest, its batches count as missing
        with file:
            pages[name] = read_page(file)
            stated = stated_log(pages[name]) or _first_batchs_log(file, name)
        if stated is not None:
            logs[name] = stated
    found = [name for name in names if name in pages]
    log_id = owner(directory, logs.values()) or b""
    if log_id and log_ids.is_misplaced(directory, log_id):
        log_id = log_ids.own_id(directory) or b""
    segments = Segments(found, pages, void, log_id, NOTHING, logs=logs)
    marked = _newest_mark(segments)
    lost = frozenset(name for place, name in enumerate(found) if evidence.marks_lost(found, place, pages[name]))
    durable = evidence.durable_seq(files, directory, listed, found, log_id, marked.seq)
    return msgspec.structs.replace(segments, marked=marked, durable=durable, lost=lost)


def _is_no_stranger(files: Files, directory: str, name: str) -> bool:
    return parse_segment_name(name) is None or files.is_file(f"{directory}/{name}")


def stated_log(page: Page) -> bytes | None:
    """The log that a first page names."""
    stated = page.header or page.mark
    return None if stated is None else stated.log_id


def _first_batchs_log(file: File, name: SegmentName) -> bytes | None:
    try:
        first = read_batch(file.pread, DATA_START, file.size())
    except InvalidBatch:
        return None
    return first.log_id if first.seq == name.base_seq else None


def owner(directory: str, logs: Iterable[bytes | None]) -> bytes | None:
    """The log that is named most often here, the first of them where another is as often; None where all are None.

    A log that belongs in another directory only where no other is named.
    """
    named = Counter(log_id for log_id in logs if log_id is not None)
    return max(named, key=lambda log_id: (not log_ids.is_misplaced(directory, log_id), named[log_id]), default=None)


def _newest_mark(segments: Segments) -> LogEnd:
    """The furthest place that a mark of this log names within its own segment."""
    best = NOTHING
    for index, name in enumerate(segments.names):
        mark, limit = segments.pages[name].mark, segments.limit_of(index)
        if mark is not None and mark.log_id == segments.log_id and (limit is None or mark.seq <= limit):
            best = max(best, end_at_mark(mark), key=lambda end: end.seq)
    return best


def scan(files: Files, directory: str, segments: Segments | None = None) -> Iterator[Good | Bad | Tail]:
    """Walk the log. The last thing yielded is its Tail, or that all of it is gone, without any segment."""
    return _Scanner(files, directory, segments or look(files, directory)).run()


class Survey(msgspec.Struct, frozen=True):
    """The end of a log, the segment with it, and the damage."""

    end: LogEnd
    name: SegmentName
    bad: list[Bad]


def survey(files: Files, directory: str, segments: Segments) -> Survey:
    """Walk all of a log, which has segments, for its end."""
    scanner = _Scanner(files, directory, segments)
    bad = [each for each in scanner.run() if isinstance(each, Bad)]
    assert scanner.end is not None
    return Survey(scanner.end, scanner.name, bad)


class _Scanner:
    """`end` is the place up to which everything was yielded."""

    def __init__(self, files: Files, directory: str, segments: Segments) -> None:
        self._files = files
        self._directory = directory
        self._segments = segments
        self._log_id = segments.log_id
        self.end: LogEnd | None = None
        self.name = segments.names[0] if segments.names else SegmentName(0, 0)

    def run(self) -> Iterator[Good | Bad | Tail]:
        if not self._segments.names:
            yield Bad(self._directory, 0, "the log is gone: no segment of it is there", 1, None, 0, None)
        for index, name in enumerate(self._segments.names):
            try:
                file = PatientFile(self._files.open(f"{self._directory}/{name.segment_file}"))
            except FileNotFoundError:
                continue  # retired since we looked, as the oldest ones are
            try:
                tail = yield from self._segment(index, name, file)
            finally:
                file.close()
            if tail is not None:
                yield tail
                return

    def _segment(self, index: int, name: SegmentName, file: PatientFile) -> Iterator[Good | Bad]:
        """One segment; returns the Tail when the log ends in it."""
        self.name = name
        mute = yield from self._enter(name, file)
        limit = self._segments.limit_of(index)
        size = self._segments.pages[name].size
        position = DATA_START
        while True:
            position, reason = yield from self._run_of_good(name, file, position, limit)
            assert self.end is not None
            if limit is not None and self.end.seq >= limit:
                return None
            lost = name in self._segments.lost
            if self.end.seq >= self._segments.durable and not mute and not lost:
                return Tail(file.path, position, reason)
            position, reason, mute = (0, mute, "") if mute else (position, reason, "")
            after = self.end.seq + 1 if reason.startswith(_FOREIGN) else self.end.seq
            found = next_good(file.pread, position, size, log_id=self._log_id, after_seq=after)
            if found is None or (limit is not None and found[1].seq > limit):
                if self.end.seq >= self._segments.durable and lost and not reason and not self._has_row(name):
                    return Tail(file.path, position, "")
                yield self._lost_rest(index, file, position, reason)
                return None if limit is not None else Tail(file.path, size, "")
            resumed, batch = found
            yield self._bad(file, position, reason, batch.seq, batch.base_offset)
            if batch.seq > self.end.seq + 1:
                self.end = before(batch, resumed)
            position = resumed

    def _enter(self, name: SegmentName, file: PatientFile) -> Iterator[Bad]:
        """Set the end to where this segment begins, judging its header by its name and its predecessor.

        A name without its header is always damage. Returns why when the first batch does not help either: then
        nothing here tells what the segment held, and whether the marks reach so far does not matter.
        """
        header = self._segments.pages[name].header
        reason = ""
        if header is None:
            reason = "the segment's header does not verify"
        elif header.log_id != self._log_id and log_ids.is_misplaced(self._directory, header.log_id):
            reason = log_ids.misplacement(self._files, self._directory, header.log_id)
        elif (header.base_seq, header.generation, header.log_id) != (*name, self._log_id):
            reason = f"the segment's header is that of {SegmentName(header.base_seq, header.generation)}"
        elif self.end is not None and self.end.seq == name.base_seq - 1 and header.previous != self.end.checksum:
            reason = "the segment's header does not follow the segment before it"
        first = self._first_batch(name, file) if reason else None
        if self.end is not None and self.end.seq == name.base_seq - 1:
            self.end = self.end.at_start()
        elif header is not None and not reason:
            self.end = end_before(header)
        elif first is not None:
            self.end = before(first)
        else:
            offset = 0 if self.end is None else self.end.offset
            self.end = LogEnd(name.base_seq - 1, DATA_START, offset, 0, 0, 0)
        if reason and first is None:
            return reason
        if reason:
            offset = self.end.offset
            yield Bad(file.path, 0, reason, name.base_seq, name.base_seq, offset, offset)
        return ""

    def _first_batch(self, name: SegmentName, file: PatientFile) -> Batch | None:
        """The first batch, if it is the one that belongs there."""
        try:
            first = read_batch(file.pread, DATA_START, self._segments.pages[name].size)
        except InvalidBatch:
            return None
        return first if (first.seq, first.log_id) == (name.base_seq, self._log_id) else None

    def _run_of_good(self, name: SegmentName, file: PatientFile, start: int, limit: int | None) -> Iterator[Good | Bad]:
        """Yield what verifies and follows; returns where that stopped and why ("" for nothing but zeros)."""
        assert self.end is not None
        size = self._segments.pages[name].size
        for position, batch in walk(file.pread, start, size):
            if limit is not None and batch.seq > limit:
                return position, f"batch {batch.seq} is void, a newer segment begins at {limit + 1}"
            reason = follows(self.end, batch, self._log_id)
            if reason:
                return position, _FOREIGN + reason if batch.seq == self.end.seq + 1 else reason
            reason = _column_problem(batch)
            if reason and batch.seq > self._segments.durable and name not in self._segments.lost:
                return position, reason
            end = self.end.after(batch, position)
            if reason:
                yield self._bad(file, position, reason, end.seq + 1, end.offset)
            else:
                yield Good(name, position, batch)
            self.end = end
        return self.end.position, _why_not(file, self.end.position, size)

    def _has_row(self, name: SegmentName) -> bool:
        """Whether the index has a row for the next batch, which says that one was written."""
        assert self.end is not None
        try:
            file = PatientFile(self._files.open(f"{self._directory}/{name.index_file}"))
        except FileNotFoundError:
            return False
        try:
            return any(file.pread(INDEX_ROW_BYTES, index_position(name.base_seq, self.end.seq + 1)))
        finally:
            file.close()

    def _lost_rest(self, index: int, file: PatientFile, position: int, reason: str) -> Bad:
        """The rest of a segment is lost: up to the next segment, or up to the mark when this is the last."""
        assert self.end is not None
        marked = self._segments.marked
        if index + 1 < len(self._segments.names):
            following = self._segments.names[index + 1]
            header = self._segments.pages[following].header
            return self._bad(file, position, reason, following.base_seq, None if header is None else header.base_offset)
        if self.end.seq < marked.seq == self._segments.durable:
            bad = self._bad(file, position, reason, marked.seq + 1, marked.offset)
            self.end = marked
            return bad
        return self._bad(file, position, reason, None, None)

    def _bad(self, file: PatientFile, position: int, reason: str, next_seq: int | None, next_offset: int | None) -> Bad:
        assert self.end is not None
        reason = reason.removeprefix(_FOREIGN) or f"batch {self.end.seq + 1} is missing"
        reason = f"{reason}; {file.trouble}" if file.trouble else reason
        return Bad(file.path, position, reason, self.end.seq + 1, next_seq, self.end.offset, next_offset)


_FOREIGN = "out of place: "
"""Marks a batch that has the right seq and does not follow: looking on must not find it again."""


def _column_problem(batch: Batch) -> str:
    try:
        batch.check()
    except InvalidBatch as error:
        return error.message
    return ""


def _why_not(file: PatientFile, position: int, size: int) -> str:
    """Why no batch parses at `position`; "" when there is nothing but zeros, or nothing at all."""
    if not any(file.pread(HEADER_BYTES, position)):
        return ""
    try:
        read_batch(file.pread, position, size)
    except InvalidBatch as error:
        return error.message
    return "a batch that was not there a moment ago"
