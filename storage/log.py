"""A log and its one writer: open, append, sync, read, cut, and trim from the start.

Idea: a `LogWriter` is the tail of a log (tail.py) with its verbs: writing batches is appending.py, cutting is
cutting.py, finding the end is opening.py. The order (order.py) gives batches their terms and times, and says which of
them are committed.

Contract: one writer per log (the caller holds the lock). `append` is all or nothing.
Must not know: boards, processes, what a batch means.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from . import appending, cutting, layout, opening
from . import segment as segments
from .errors import Corrupt, InvalidBatch, OutOfBounds
from .extents import Extents
from .files import Files
from .layout import DATA_START, SegmentName
from .order import LogOrder
from .plan import Appended
from .reader import LogReader
from .recovery import NOTHING, Damage, LogEnd
from .retention import SegmentExtent, removable
from .room import LogOptions
from .segment import SegmentRef, reference
from .segment_reader import SegmentCache
from .tail import LogTail

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

__all__ = ["LogOptions", "LogWriter"]


class LogWriter(LogTail):
    """An open log. Make one with `create`, `open` or `create_or_open`."""

    on_first: Callable[[LogWriter], None] | None = None
    """Told when the first offset moved."""

    def __init__(
        self, path: str, files: Files, options: LogOptions, order: LogOrder, found: opening.FoundLog,
        cache: SegmentCache | None,
    ) -> None:  # fmt: skip
        """Take over a recovered log; use the class methods."""
        super().__init__(
            path, files, options, log_id=found.log_id, end=found.end, names=found.names, end_name=found.end_name,
            in_place=found.in_place,
        )  # fmt: skip
        self.damage: list[Damage] = found.damage
        self._order = order
        self._cache = cache
        self._reader: LogReader | None = None
        self._first: int | None = None

    @classmethod
    def create(
        cls,
        path: str,
        *,
        files: Files,
        log_id: bytes,
        options: LogOptions | None = None,
        order: LogOrder,
        cache: SegmentCache | None = None,
        start: LogEnd = NOTHING,
    ) -> LogWriter:
        """A new log, durably there when this returns. Raises FileExistsError when there is one, StorageFull.

        `start`: the place that it begins behind, of another copy of this log.
        """
        options = options or LogOptions()
        files.mkdir(path)
        if layout.live_segments(files.listdir(path))[0]:
            raise FileExistsError(f"there is a log in {path} already")
        size = max(min(options.allocate_bytes, options.segment_bytes), DATA_START)
        cutting.begin_generation(files, path, log_id, start, 1, size=size, clean=True).close()
        return cls.open(path, files=files, options=options, order=order, cache=cache)

    @classmethod
    def open(
        cls,
        path: str,
        *,
        files: Files,
        options: LogOptions | None = None,
        order: LogOrder,
        suspect: bool = False,
        cache: SegmentCache | None = None,
    ) -> LogWriter:
        """An existing log, recovered. Raises InvalidTopic, Corrupt, Poisoned, StorageFull, NewerFormat.

        Args:
            suspect: a sync of this log began and never answered (its keeper died): what lies above the mark is
                copied to fresh blocks, because the kernel may have forgotten that writing it failed.
        """
        found = opening.recover(files, path, suspect=suspect)
        return cls(path, files, options or LogOptions(), order, found, cache)

    @classmethod
    def create_or_open(cls, path: str, *, files: Files, log_id: bytes, order: LogOrder, **how: Any) -> LogWriter:
        """The log in `path`, made when there is none; `log_id` only names a new one."""
        if layout.live_segments(files.listdir(path))[0]:
            return cls.open(path, files=files, order=order, **how)
        how.pop("suspect", None)
        return cls.create(path, files=files, log_id=log_id, order=order, **how)

    # -- how far ----------------------------------------------------------------------------------

    @property
    def committed(self) -> int:
        """Seq of the last batch that readers may see."""
        return self._order.committed(self)

    @property
    def safe(self) -> int:
        """Seq of the last batch that cannot be lost any more."""
        return self._order.safe(self)

    @property
    def next_term(self) -> int:
        """The term of the next batch: no batch of an earlier opening has it."""
        return self._order.term(self)

    @property
    def first_offset(self) -> int:
        """The first offset that is kept."""
        if self._first is None:
            self._first = self._own_reader().base_offset(0)
        return self._first

    def end_offset_at(self, seq: int) -> int:
        """The end offset once `seq` is the last committed batch."""
        known = self.ends.get(seq)
        return self._own_reader().end_offset_at(seq) if known is None else known

    # -- appending --------------------------------------------------------------------------------

    def append(self, batches: Sequence[Buffer], now_us: int) -> list[Appended]:
        """Stamp and write batches, all or none.

        Raises:
            InvalidBatch, BatchTooLarge: one of them cannot stand in a log.
            StorageFull: no room; nothing of it is in the log.
            Poisoned: a sync failed earlier; open the log again.
        """
        return self._order.append(self, batches, now_us)

    def append_stamped(self, batches: Sequence[Buffer]) -> list[Appended]:
        """Write batches that have their places already, as another copy of this log has them, all or none.

        Raises:
            InvalidBatch: one of them does not follow the one before it: another seq, offset or log, another header
                before it, a lower term, an earlier time, columns that do not verify.
            StorageFull, Poisoned, Closed: as for `append`.
        """
        return appending.append_stamped(self, batches)

    def end_term(self) -> None:
        """Another leader stamps from here on: its first batch has a higher term than all before."""
        self.ready = self.in_term = False

    def cut(self, seq: int) -> None:
        """Take back every batch behind `seq`, durably; the log goes on from there in a new generation.

        When it fails, `written` says where the log ends, which nothing follows before the cut is done: by asking again
        or by the next append. Opened again before that, the log has what was written.

        Raises:
            UnsafeCut: some of it is committed, or cannot be lost.
            OutOfBounds: the log does not hold `seq`.
            StorageFull, Poisoned, Closed, Corrupt.
        """
        self.go_back(seq)
        if self.must_cut:
            cutting.cut(self)

    def go_back(self, seq: int) -> None:
        """As `cut`, but on the disk with the next append: opened again before that, the log has what was written.

        A log that goes back to an earlier segment is cut at once.
        """
        self.check_open()
        first, least = self.names[0].base_seq - 1, max(self.safe, self.committed)
        if not first <= seq <= self.written:
            raise OutOfBounds(f"{self.path} cannot be cut behind batch {seq}: it holds {first + 1} to {self.written}")
        if seq < least:
            raise cutting.UnsafeCut(
                f"{self.path} cannot be cut behind batch {seq}: everything up to {least} is to stay"
            )
        if seq < self.written:
            if self.files.exists(
                f"{self.path}/{layout.POISON}"
            ):  # a log that ends below what it says has lost something
                cutting.cut(self)
            end, name = self.place_behind(seq)
            cutting.go_back(self, end, name)
            if name != self.names[-1]:
                cutting.cut(self)

    def cut_here(self) -> None:
        """Begin a generation at the end, durably: what another process may yet write behind that is void.

        Raises Poisoned, StorageFull: the next append begins with it then.
        """
        self.must_cut, self.ready = True, False
        cutting.cut(self)

    def place_behind(self, seq: int) -> tuple[LogEnd, SegmentName]:
        """The place after batch `seq`, which is here or the one before the first, and its segment.

        Raises OutOfBounds where that is removed, Corrupt.
        """
        reader = self._own_reader()
        segment = reader.segment_of(seq)
        reader.check_there(seq + 1)
        row = reader.row(seq) if seq >= segment.name.base_seq else None
        if row is not None:
            end = LogEnd(seq, row.end_position, row.end_offset, row.header_checksum, row.append_time_us, row.term)
            return end, segment.name
        following = reader.segment_of(seq + 1)
        if following.name.base_seq == seq + 1:
            with suppress(InvalidBatch):
                return following.start(), following.name
        raise Corrupt(f"batch {seq} of {segment.ref.path} is damaged", path=segment.ref.path)

    def checksum_at(self, seq: int) -> int | None:
        """The header checksum of a batch; None for one that is not here, and where its row is damaged."""
        if not self.names[0].base_seq <= seq <= self.written:
            return None
        if seq == self.written:
            return self.checksum
        row = self._own_reader().row(seq)
        return None if row is None else row.header_checksum

    def newest(self, seq: int) -> bytes | None:
        """Batch `seq` as it was written, if it is the last one and in memory."""
        newest = self.opened[-1].newest if self.opened else None
        return newest.batch if newest is not None and newest.seq == seq else None

    def batch_at(self, seq: int) -> bytes:
        """The bytes of a batch that is here, committed or not. Raises Corrupt, OutOfBounds."""
        chunk = self._own_reader().cursor_at(seq).next(1, seq)
        assert chunk is not None
        return bytes(chunk.batches[0].buffer)

    # -- marks and closing ------------------------------------------------------------------------

    def mark_durable(self) -> None:
        """Write the mark for what is durable into the segment that holds it; the next sync carries it."""
        if self.durable == self.written and self.opened:
            active = self.opened[-1]
            segments.write_mark(active.file, self.end().mark(self.log_id, active.ref.generation))
            return
        reader = self._own_reader()
        row = reader.row(self.durable)
        if row is not None:
            name = reader.segment_of(self.durable).name
            mark = layout.mark_from_row(self.log_id, layout.word(name.generation, self.durable), row)
            segments.leave_mark(self.files, reference(self.path, name).path, mark)

    def close(self, clean: bool = True) -> None:
        """Sync, write a clean mark, close the files. A poisoned log, or `clean=False`, only closes the files.

        No clean mark where something may lie behind the end: a failed append, or a cut that is not done yet.
        """
        try:
            if clean and not self.closed and self.poisoned is None and self.opened:
                self.sync()
                if not self.must_cut:
                    self._leave_clean_mark()
        finally:
            self.closed, self.ready = True, False
            self.on_first = None  # a board, which is unmapped when it is dropped
            self.close_segments()
            if self._reader is not None:
                self._reader.close()
                self._reader = None  # it leads back here, as the extents do: no work for the collector
                del self._extents

    def _leave_clean_mark(self) -> None:
        active = self.opened[-1]
        try:
            active.index.sync()
            segments.write_mark(active.file, self.end().mark(self.log_id, active.ref.generation, clean=True))
            active.sync()
        except OSError as error:
            raise self.poisoned_by(error) from error

    # -- reading and retention --------------------------------------------------------------------

    def reader(self, *, mapped: bool = False) -> LogReader:
        """A reader of this log that sees what is committed."""
        return LogReader(
            self.path, self.files, mapped=mapped, cache=self._cache, limit=self._limit, first=lambda: self._first or 0,
            newest=lambda: self.opened[-1].newest if self.opened else None, ends=lambda seq: self.ends.get(seq),
            log_id=self.log_id,
        )  # fmt: skip

    def _limit(self) -> int:
        return layout.word(self.generation, self.committed)

    def _own_reader(self) -> LogReader:
        if self._reader is None:
            reader = LogReader(self.path, self.files, cache=self._cache, limit=lambda: self.written, log_id=self.log_id)
            self._extents = Extents(reader)
            self._reader = reader  # last: Ctrl-C comes with the return of a call, and finds both or none
        elif self._reader.names != self.names:
            self._reader.refresh()
        return self._reader

    def check_first(self, offset: int) -> None:
        """Raise OutOfBounds unless the log may begin at `offset`."""
        if offset > self.end_offset:
            raise OutOfBounds(f"{self.path} cannot begin at {offset}, it ends at {self.end_offset}")

    def set_first(self, offset: int) -> None:
        """Retention moved the first offset to `offset`. Raises OutOfBounds."""
        self.check_first(offset)
        self._first = max(offset, self.first_offset)
        if self.on_first is not None:
            self.on_first(self)

    def segments(self) -> list[SegmentExtent]:
        """Every segment's extent, oldest first, the active one last."""
        self._own_reader()
        return self._extents.all(self.written, self.end().position, self.end_offset, self.last_time_us)

    def expired(self, covered_seq: int) -> list[SegmentRef]:
        """Segments wholly before the first offset, durable, and covered by a snapshot of `covered_seq`."""
        gone = removable(self.segments(), self.first_offset, min(covered_seq, self.durable))
        return [reference(self.path, name) for name in self.names[: len(gone)]]

    def forget(self, gone: Sequence[SegmentRef]) -> None:
        """Remove segments that were unlinked."""
        names = {ref.name for ref in gone}
        self.names = [name for name in self.names if name not in names]
        if self._reader is not None:
            self._extents.forget(names)
            self._reader.refresh()
