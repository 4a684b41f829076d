"""Reading a log: which segments there are, where an offset or a time is in them, and how far may be read.

Idea: a `LogReader` knows the segments by name and opens them when needed; cursors (cursor.py) move through
them. How far may be read is somebody else's word (`limit`: a seq, or a board word); without one, the log's own
verified end.

Contract: never takes a lock, never writes, never keeps a writer waiting. Damage is raised as Corrupt with the
offset where good records go on. An index row is believed only when its batch agrees.
Must not know: processes, boards, commit levels.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

from . import index, layout
from .cursor import Chunk, Cursor, NotCached, corrupt
from .errors import Corrupt, InvalidBatch, InvalidTopic, OutOfBounds
from .files import Files
from .layout import DATA_START, SEQ_LIMIT, SegmentName
from .opening import find_end
from .recovery import NOTHING, LogEnd, before, end_after
from .segment import Newest
from .segment_reader import SegmentCache, SegmentReader, log_of

__all__ = ["Chunk", "Cursor", "LogReader", "NotCached"]


class LogReader:
    """A log open for reading.

    Args:
        limit: the last seq that may be read, as a seq or as a board word; None, or one that returns None: as far
            as the log verifies.
        first: the first offset that may be read, where retention moved it past the first segment's.
        cache: open segments, shared with other readers of the process; the reader's own when None.
        newest: the batch that was written last, from a writer in this process that has it at hand.
        log_id: of the log; None: what its newest segment says.
    """

    def __init__(
        self,
        path: str,
        files: Files,
        *,
        mapped: bool = False,
        limit: Callable[[], int | None] | None = None,
        first: Callable[[], int] | None = None,
        cache: SegmentCache | None = None,
        newest: Callable[[], Newest | None] | None = None,
        log_id: bytes | None = None,
    ) -> None:
        self.path = path
        self._log_id = log_id
        self.mapped = mapped
        self._files = files
        self._cache = cache or SegmentCache(files)
        self._owns_cache = cache is None
        self._limit = limit
        self._first = first
        self.newest = newest
        self.generation = 0
        """That of the last limit."""
        self.met_damage = False
        """Whether some cursor passed damage that took no record."""
        self._end: int = -1
        self.names: list[SegmentName] = []
        self.refresh()

    def refresh(self) -> bool:
        """Look which segments there are; True when they are others than before. Raises InvalidTopic without any."""
        names, _ = layout.live_segments(self._files.listdir(self.path))
        if not names:
            raise InvalidTopic(f"there is no log in {self.path}")
        changed = names != self.names
        self.names = names
        return changed

    def limit(self) -> int:
        """The last seq that may be read now."""
        value = self._limit() if self._limit is not None else None
        if value is None:
            return self._verified_end()
        generation, seq = layout.split(value)
        if generation != self.generation:
            self.generation = generation
            self.refresh()
        return seq

    def _verified_end(self) -> int:
        if self._end < 0 or self.refresh() or self._has_more(self._end):
            found = find_end(self._files, self.path)
            if found.missing:
                raise Corrupt(found.missing, path=self.path)
            self._end = found.end.seq
        return self._end

    def _has_more(self, seq: int) -> bool:
        """Whether a batch follows `seq` in its segment: cheaper than recovering the end again."""
        segment = self.segment_of(seq + 1)
        position = DATA_START
        if seq >= segment.name.base_seq:
            row = segment.row(seq)
            position = row.end_position if row is not None else segment.size
        try:
            return segment.batch(position).seq == seq + 1
        except InvalidBatch:
            return False

    # -- segments ---------------------------------------------------------------------------------

    def segment(self, name: SegmentName) -> SegmentReader:
        """A segment, open. Raises OutOfBounds when retention took it meanwhile."""
        try:
            if self._log_id is None:
                self._log_id = log_of(self._files, self.path, self.names)
            return self._cache.get(self.path, name, self._log_id, mapped=self.mapped)
        except FileNotFoundError:
            self.refresh()
            raise OutOfBounds(
                f"segment {name} of {self.path} is gone; the log begins at offset {self.first_offset}"
            ) from None

    def place_of(self, seq: int) -> int:
        """Index in `names` of the segment that holds, or will hold, `seq`."""
        names = self.names
        if seq >= names[-1].base_seq:  # whoever follows a log
            return len(names) - 1
        return max(bisect_right(names, seq, key=lambda name: name.base_seq) - 1, 0)

    def segment_of(self, seq: int) -> SegmentReader:
        return self.segment(self.names[self.place_of(seq)])

    def base_offset(self, place: int) -> int:
        """Offset of the first record of the segment at `place`. Raises Corrupt when it cannot be told."""
        return self.start(place).offset

    def start(self, place: int) -> LogEnd:
        """Where the segment at `place` begins. Raises Corrupt when nothing tells.

        One that does not tell begins where the one before ends, or else where good batches go on.
        """
        segment = self.segment(self.names[place])
        try:
            return segment.start()
        except InvalidBatch as error:
            found = NOTHING if segment.name.base_seq == 1 else self._end_of(place - 1) or self._good_in(place)
            if found is not None:
                return found
            if 0 < place < len(self.names) - 1:
                return self.start(place + 1)
            if place:
                return self.start(place - 1)
            raise Corrupt(f"nothing in {segment.ref.path} can be read ({error})", path=segment.ref.path) from error

    def _end_of(self, place: int) -> LogEnd | None:
        """Behind the last batch of the segment at `place`, if that is good, and there is such a segment."""
        if place < 0:
            return None
        seq = self.names[place + 1].base_seq - 1
        row = self.segment(self.names[place]).row(seq)
        return None if row is None else end_after(seq, row)

    def _good_in(self, place: int) -> LogEnd | None:
        """Before the first good batch of the segment at `place`."""
        segment = self.segment(self.names[place])
        found = segment.next_good(DATA_START, segment.name.base_seq - 1)
        return None if found is None or found[1].seq > self.last_seq(place, SEQ_LIMIT) else before(found[1])

    def place_at(self, offset: int) -> int:
        """Index in `names` of the segment that holds, or will hold, the record at `offset`."""
        return max(bisect_right(range(len(self.names)), offset, key=self.base_offset) - 1, 0)

    def last_seq(self, place: int, limit: int) -> int:
        """The last readable seq of the segment at `place`."""
        return min(limit, self.names[place + 1].base_seq - 1) if place + 1 < len(self.names) else limit

    # -- bounds -----------------------------------------------------------------------------------

    @property
    def first_offset(self) -> int:
        """The first offset that can be read."""
        base = self.base_offset(0)
        return max(base, self._first()) if self._first is not None else base

    @property
    def end_offset(self) -> int:
        """The offset after the last readable record."""
        return self.end_offset_at(self.limit())

    def row(self, seq: int) -> layout.IndexRow | None:
        """The verified row of a batch; None when it is damaged. Segments that are new meanwhile are looked for."""
        row = self.segment_of(seq).indexed(seq)
        if row is None and self.refresh():
            row = self.segment_of(seq).indexed(seq)
        return self.segment_of(seq).row(seq) if row is None else row

    def end_offset_at(self, seq: int) -> int:
        """The offset after the batch `seq`."""
        if seq < self.names[0].base_seq:
            return self.base_offset(0)
        row = self.row(seq)
        place = self.place_of(seq)
        segment = self.segment(self.names[place])
        if row is not None:
            return row.end_offset
        if place + 1 < len(self.names) and self.names[place + 1].base_seq == seq + 1:
            return self.base_offset(place + 1)
        mark = segment.mark_of(seq)
        if mark is not None:
            return mark.end_offset
        raise Corrupt(f"batch {seq} of {segment.ref.path} is damaged", path=segment.ref.path)

    def known_end(self, seq: int) -> int | None:
        """As `end_offset_at`; None when damage leaves nothing that tells."""
        try:
            return self.end_offset_at(seq)
        except Corrupt:
            return None

    def _check_bounds(self, offset: int, limit: int) -> int:
        first, end = self.first_offset, self.end_offset_at(limit)
        if not first <= offset <= end:
            raise OutOfBounds(f"offset {offset} is outside {self.path}, which holds {first} to {end}")
        return end

    # -- finding ----------------------------------------------------------------------------------

    def cursor(self, offset: int) -> Cursor:
        """A cursor whose first chunk begins with the batch that holds `offset`; the end offset is a fine place too.

        Raises OutOfBounds with the valid range, Corrupt when the record is in a damaged place.
        """
        return self._despite_removal(lambda: self._cursor_at(offset))

    def _cursor_at(self, offset: int) -> Cursor:
        limit = self.limit()
        if offset == self._check_bounds(offset, limit):
            return self._cursor_at_end(offset, limit)
        place, seq, row = self._find(offset, limit)
        return Cursor(self, self.names[place], seq, row.position, offset)

    def cursor_after(self, seq: int, *, whole: bool = True) -> Cursor:
        """A cursor whose next batch is the one after `seq`, whatever its kind: for those who replay a log.

        Not `whole`: but for staged ones.
        """
        return self._despite_removal(lambda: self._cursor_at_end(self.end_offset_at(seq), seq, whole=whole))

    def cursor_at(self, seq: int) -> Cursor:
        """A cursor whose next batch is `seq`, of any kind, whatever became of the one before. Raises Corrupt."""
        segment = self.segment_of(seq)
        row = self.row(seq) if seq >= segment.name.base_seq else None
        if row is None:
            raise Corrupt(f"batch {seq} of {segment.ref.path} is damaged or gone", path=segment.ref.path)
        return Cursor(self, segment.name, seq, row.position, row.base_offset, whole=True)

    def _despite_removal(self, find: Callable[[], Cursor]) -> Cursor:
        """Find again while segments that were known turn out to be gone: what is asked for may stand in another one."""
        while True:
            known = self.names
            try:
                return find()
            except (OutOfBounds, Corrupt):
                if self.names == known:
                    raise

    def _cursor_at_end(self, offset: int, limit: int, *, whole: bool = False) -> Cursor:
        place = self.place_of(limit + 1)
        segment = self.segment(self.names[place])
        position = DATA_START
        if limit >= segment.name.base_seq:
            if (row := segment.row(limit)) is not None:
                position = row.end_position
            elif (mark := segment.mark_of(limit)) is not None:
                position = mark.end_position
        return Cursor(self, segment.name, limit + 1, position, offset, whole=whole)

    def _find(self, offset: int, limit: int) -> tuple[int, int, layout.IndexRow]:
        """Place of the segment, seq and row of the batch that holds `offset`. Raises Corrupt."""
        place = self.place_at(offset)
        segment = self.segment(self.names[place])
        count = self.last_seq(place, limit) - segment.name.base_seq + 1
        for rows in segment.candidates(max(count, 0)):
            at = index.last_at_or_before(rows, offset)
            if at < 0 or not rows[at].base_offset <= offset < rows[at].end_offset:
                continue
            seq = segment.described(rows[at])
            if seq is not None:
                return place, seq, rows[at]
        raise self._corrupt_at(place, offset, limit)

    def _corrupt_at(self, place: int, offset: int, limit: int) -> Corrupt:
        segment = self.segment(self.names[place])
        position, following = DATA_START, None
        last = self.last_seq(place, SEQ_LIMIT)
        for seq, row in segment.found():
            if seq > last:
                break
            if row.base_offset > offset:
                following = row.base_offset
                break
            position = row.end_position
        if following is None:
            following = self.base_offset(place + 1) if place + 1 < len(self.names) else self.known_end(limit)
        return corrupt(segment.ref.path, position, f"offset {offset} is in a damaged place", following)

    def offset_at(self, time_us: int) -> int:
        """The first offset appended at `time_us` (microseconds UTC) or later; the end offset when there is none."""
        limit = self.limit()
        end = self.end_offset_at(limit)
        place = max(bisect_right(range(len(self.names)), time_us - 1, key=self._base_time) - 1, 0)
        for each in range(place, len(self.names)):
            segment = self.segment(self.names[each])
            count = self.last_seq(each, limit) - segment.name.base_seq + 1
            row = self._first_not_before(segment, count, time_us)
            if row is not None:
                return max(row.base_offset, self.first_offset)
        return end

    def _first_not_before(self, segment: SegmentReader, count: int, time_us: int) -> layout.IndexRow | None:
        """The row of a segment's first batch appended at `time_us` or later; None when all are earlier."""
        for rows in segment.candidates(count):
            at = index.first_not_before(rows, time_us)
            if isinstance(rows, index.IndexRows):
                # The batches on both sides of the place decide whether the index found the right one.
                near = [each for each in (at - 1, at) if 0 <= each < count]
                if not all(segment.agrees(segment.name.base_seq + each, rows[each]) for each in near):
                    continue
            return rows[at] if at < len(rows) else None
        return None

    def _base_time(self, place: int) -> int:
        return self.start(place).time_us

    def seq_at(self, offset: int) -> int:
        """The seq of the batch that holds the record at `offset`. Raises OutOfBounds, Corrupt."""
        limit = self.limit()
        if offset == self._check_bounds(offset, limit):
            raise OutOfBounds(f"offset {offset} of {self.path} is its end: no record is there yet")
        return self._find(offset, limit)[1]

    def end_of_term(self, term: int, low: int, high: int) -> int:
        """Of the offsets from `low` on and below `high`, the first of a term above `term`: terms never fall."""
        while low < high:
            middle = (low + high) // 2
            if self.term_at(middle) > term:
                high = middle
            else:
                low = middle + 1
        return low

    def term_at(self, offset: int) -> int:
        """The term under which the record at `offset` was appended; that of the last batch for the end offset."""
        limit = self.limit()
        if offset == self._check_bounds(offset, limit):
            row = self.segment_of(limit).row(limit) if limit else None
            return 0 if row is None else row.term
        return self._find(offset, limit)[2].term

    def time_at(self, offset: int) -> int:
        """When the record at `offset` was appended, microseconds UTC."""
        return self._find(offset, self.limit())[2].append_time_us

    def close(self) -> None:
        """Close what this reader opened; chunks handed out stay good."""
        if self._owns_cache:
            self._cache.close()
        else:
            self._cache.drop(self.path)
