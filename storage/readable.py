"""The readable part of a log: its segments, and how far they may be read.

Idea: segments are known by name and opened when needed. The caller says how far may be read (`limit`: a seq, or a
board word); without a limit, it is the log's own verified end.

Contract: never takes a lock, never writes, never keeps a writer waiting. An index row is believed only when its batch
agrees. Must not know: processes, boards, commit levels.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from . import layout
from .accepted import accepted_losses, covers
from .errors import AcceptedLoss, Corrupt, InvalidBatch, InvalidTopic, OutOfBounds
from .files import Files
from .layout import DATA_START, SEQ_LIMIT, SegmentName
from .opening import find_end
from .recovery import NOTHING, LogEnd, before, end_after
from .segment import Newest
from .segment_reader import SegmentCache, SegmentReader, log_of

Found = TypeVar("Found")


class ReadableLog:
    """A log open for reading: its segments, and its bounds.

    Args:
        limit: the last seq that may be read, as a seq or as a board word; None, or one that returns None: as far
            as the log verifies.
        first: the first offset that may be read, where retention moved it past the first segment's.
        cache: open segments, shared with other readers of the process; the reader's own when None.
        newest: the batch that was written last, from a writer in this process that has it at hand.
        ends: the end offset of a batch, from such a writer, where it remembers it: also of a batch damaged since.
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
        ends: Callable[[int], int | None] | None = None,
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
        self._ends = ends
        self.generation = 0
        """That of the last limit."""
        self.met_damage = False
        """Whether some cursor passed damage that took no record."""
        self._given_up = accepted_losses(files, path)
        self.given_up_to = max((each.next_seq or 0 for each in self._given_up), default=0)
        """Batches from this seq on are not among those whose loss was accepted."""
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
        if changed:
            self._cache.drop(self.path, but=names)
        return changed

    def limit(self) -> int:
        """The last seq that may be read now."""
        value = self._limit() if self._limit is not None else None
        if value is None:
            verified = self._verified_end()
            # A writer that came meanwhile may have written what it has not synced.
            value = self._limit() if self._limit is not None else None
            if value is None:
                return verified
        self._end = -1
        generation, seq = layout.split(value)
        if generation != self.generation:
            self.generation = generation
            self.refresh()
        return seq

    def hear_of_cuts(self) -> None:
        """Segments of a generation that is over have rows of batches that are void."""
        if self._limit is not None:
            self.limit()

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

    def despite_removal(self, find: Callable[[], Found]) -> Found:
        """Retry while known segments turn out to be removed: what is looked for may be in another segment."""
        while True:
            known = self.names
            try:
                return find()
            except (OutOfBounds, Corrupt):
                if self.names == known:
                    raise

    def place_of(self, seq: int) -> int:
        """Index in `names` of the segment that holds, or will hold, `seq`."""
        names = self.names
        if seq >= names[-1].base_seq:  # a reader that follows the end of the log
            return len(names) - 1
        return max(bisect_right(names, seq, key=lambda name: name.base_seq) - 1, 0)

    def check_there(self, seq: int) -> None:
        """Raise OutOfBounds where the segment of a batch is removed. The writer of the log may not know yet."""
        if seq < self.names[0].base_seq:
            raise OutOfBounds(f"batch {seq} of {self.path} is gone; the log begins at batch {self.names[0].base_seq}")

    def segment_of(self, seq: int) -> SegmentReader:
        return self.segment(self.names[self.place_of(seq)])

    def base_offset(self, place: int) -> int:
        """Offset of the first record of the segment at `place`. Raises Corrupt when it cannot be told."""
        return self.start(place).offset

    def start(self, place: int) -> LogEnd:
        """The log's end at the start of the segment at `place`. Raises Corrupt if unknown.

        One that does not tell begins where the one before ends, or else where good batches go on, or else where one
        before it begins.
        """
        behind = range(place + 1, len(self.names)) if place else ()
        for each in (place, *behind, *range(place - 1, -1, -1)):
            if (found := self._start(each)) is not None:
                return found
        path = self.segment(self.names[place]).ref.path
        raise Corrupt(f"nothing in {path} can be read", path=path)

    def _start(self, place: int) -> LogEnd | None:
        """The same, as far as this segment, or the end of the one before, tells it."""
        segment = self.segment(self.names[place])
        with suppress(InvalidBatch):
            return segment.start()
        return NOTHING if segment.name.base_seq == 1 else self._end_of(place - 1) or self._good_in(place)

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

    def is_given_up(self, offset: int, next_offset: int) -> bool:
        """Whether the loss of these records was accepted."""
        return covers(self._given_up, offset, next_offset)

    def check_given_up(self, error: OSError, path: str, position: int, offset: int) -> None:
        """Raise AcceptedLoss if the disk cannot read the record at `offset`, and its loss was accepted."""
        for each in self._given_up if error.errno == errno.EIO else ():
            if each.next_offset is not None and each.offset <= offset < each.next_offset:
                raise self.corrupt(path, position, str(error.strerror), offset, each.next_offset) from error

    def corrupt(self, path: str, position: int, reason: str, offset: int, following: int | None) -> Corrupt:
        """The error of a reader that met damage at `offset`; good records go on at `following`, if any do."""
        way_out = "no good record follows" if following is None else f"good records go on at offset {following}"
        given_up = following is not None and following > offset and self.is_given_up(offset, following)
        accepted = f"records {offset} to {(following or 0) - 1} are lost, which was accepted; " if given_up else ""
        message = f"{path} is damaged at {position}: {reason}; {accepted}{way_out}"
        kind = AcceptedLoss if given_up else Corrupt
        return kind(message, path=path, position=position, next_offset=following)

    # -- bounds -----------------------------------------------------------------------------------

    @property
    def first_offset(self) -> int:
        """The first offset that can be read."""
        base = self.despite_removal(lambda: self.base_offset(0))
        return max(base, self._first()) if self._first is not None else base

    def check_first(self, offset: int) -> None:
        """Raise OutOfBounds where the log begins behind `offset` by now, whose segment may be there still."""
        first = 0 if self._first is None else self._first()
        if offset < first:
            raise OutOfBounds(f"offset {offset} of {self.path} is gone; the log begins at offset {first}")

    @property
    def end_offset(self) -> int:
        """The offset after the last readable record."""
        return self.despite_removal(lambda: self.end_offset_at(self.limit()))

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
        known = None if self._ends is None else self._ends(seq)
        if known is not None:
            return known
        raise Corrupt(f"batch {seq} of {segment.ref.path} is damaged", path=segment.ref.path)

    def known_end(self, seq: int) -> int | None:
        """As `end_offset_at`; None when damage leaves nothing that tells."""
        try:
            return self.end_offset_at(seq)
        except Corrupt:
            return None

    def close(self) -> None:
        """Close what this reader opened; chunks handed out stay good."""
        if self._owns_cache:
            self._cache.close()
        else:
            self._cache.drop(self.path)
