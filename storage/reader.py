"""Reading a log: finds the batch of an offset or a time.

Idea: a `LogReader` finds the batch in the segments of a log, and cursors (cursor.py) move on from there.

Contract: as readable.py's. Damage raises Corrupt with the offset where good records continue.
"""

from __future__ import annotations

from bisect import bisect_right

from . import index, layout
from .cursor import Chunk, Cursor, NotCached
from .errors import Corrupt, OutOfBounds
from .layout import DATA_START, SEQ_LIMIT
from .readable import ReadableLog
from .segment_reader import SegmentReader

__all__ = ["Chunk", "Cursor", "LogReader", "NotCached"]


class LogReader(ReadableLog):
    """A log open for reading, with what finds a place in it."""

    def cursor(self, offset: int) -> Cursor:
        """A cursor whose first chunk begins with the batch that holds `offset`; the end offset is a fine place too.

        Raises OutOfBounds with the valid range, Corrupt when the record is in a damaged place.
        """
        try:
            return self.despite_removal(lambda: self._cursor_at(offset))
        except OSError as error:
            self.check_given_up(error, self.path, -1, offset)
            raise

    def _cursor_at(self, offset: int) -> Cursor:
        limit = self.limit()
        if offset == self._check_bounds(offset, limit):
            return self._cursor_at_end(offset, limit)
        place, seq, row = self._find(offset, limit)
        return Cursor(self, self.names[place], seq, row.position, offset)

    def cursor_after(self, seq: int, *, whole: bool = True) -> Cursor:
        """A cursor whose next batch is the one after `seq`, whatever its kind: for replay.

        Not `whole`: but for staged ones.
        """
        self.hear_of_cuts()
        return self.despite_removal(lambda: self._cursor_at_end(self.end_offset_at(seq), seq, whole=whole))

    def cursor_at(self, seq: int) -> Cursor:
        """A cursor whose next batch is `seq`, of any kind, whatever became of the one before.

        Raises OutOfBounds where its segment is removed, Corrupt.
        """
        self.hear_of_cuts()
        segment = self.segment_of(seq)
        self.check_there(seq)
        row = self.row(seq)
        if row is None:
            raise Corrupt(f"batch {seq} of {segment.ref.path} is damaged", path=segment.ref.path)
        return Cursor(self, segment.name, seq, row.position, row.base_offset, whole=True)

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
        reason = f"offset {offset} is in a damaged place"
        return self.corrupt(segment.ref.path, position, reason, offset, following)

    def offset_at(self, time_us: int) -> int:
        """The first offset appended at `time_us` (microseconds UTC) or later; the end offset when there is none."""
        return self.despite_removal(lambda: self._offset_at(time_us))

    def _offset_at(self, time_us: int) -> int:
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
        """The first offset in `low` to `high` - 1 of a term above `term`, or `high`. Terms never fall."""
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

    def _check_bounds(self, offset: int, limit: int) -> int:
        first, end = self.first_offset, self.end_offset_at(limit)
        if not first <= offset <= end:
            raise OutOfBounds(f"offset {offset} is outside {self.path}, which holds {first} to {end}")
        return end
