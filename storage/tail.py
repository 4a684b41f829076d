"""The end of an open log: how far it is written and durable, and its open segments.

Idea: the state that appending.py advances and cutting.py restarts in a new generation, and how it becomes durable.
Plain numbers rather than a `LogEnd`, because every append moves them.

Contract: only `sync`, or `settle` with a keeper's result, makes batches durable; a failed sync poisons, for good. Must
not know: what batches contain, where terms come from, readers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from . import forks
from . import poison as poisons
from . import segment as segments
from .errors import Closed, Poisoned, StorageFull
from .files import Files
from .layout import SegmentName
from .recovery import LogEnd
from .room import LogOptions, Room
from .segment import Segment, SegmentRef

if TYPE_CHECKING:
    from .batch import Batch


class PendingBatch(msgspec.Struct, frozen=True, gc=False):
    """The extent of a sync: the batches up to `end`, and the segments with batches not known to be durable."""

    generation: int
    end: LogEnd
    segments: list[Segment]


class LogTail:
    """The end of a log, where the next batch goes.

    `written` is the seq of the last appended batch, `durable` of the last one known to be synced, `end_offset` the next
    offset to be given out. `ready`: an append has nothing to prepare, so it closes no file.

    Invariant: durable <= written, and `opened` holds every segment with batches above `durable`, oldest first, the
    one that is written last. Nothing is open before the first append; then the log ends at `resting`. `must_cut`:
    bytes that are not the log's may lie behind the end, so the next append goes to a new generation. `term` is that of
    the last batch or, with `in_term`, one that was begun since the log was opened. `is_parents`: in a forked child.
    `hurries`: a sync follows the next append at once, so that the disk may begin.
    """

    on_segment: Callable[[SegmentRef], None] | None = None
    """Told of every segment that batches go to, before the append returns."""

    def __init__(
        self,
        path: str,
        files: Files,
        options: LogOptions,
        *,
        log_id: bytes,
        end: LogEnd,
        names: list[SegmentName],
        end_name: SegmentName,
        in_place: bool,
    ) -> None:
        """A log that ends at `end`, in segment `end_name` of `names`; `in_place`: nothing lies behind that."""
        self.path = path
        self.files = files
        self.options = options
        self.log_id = log_id
        self.names = names
        self.generation = names[-1].generation
        self.must_cut = not in_place
        self.ready = self.closed = self.segment_ends = self.in_term = False
        self.poisoned: str | None = None
        self.hurries = False
        self.opened: list[Segment] = []
        self.resting = end
        self.resting_name = end_name
        self.room = Room(path, files, options, log_id)
        self.written = self.durable = end.seq
        self.end_offset, self.checksum = end.offset, end.checksum
        self.last_time_us, self.term = end.time_us, end.term
        self.ends: dict[int, int] = {end.seq: end.offset}
        """End offsets of the newest batches; those of older ones are in the index."""
        self._failure: OSError | StorageFull | None = None
        self.is_parents = False
        forks.tell(self)

    def _forked(self) -> None:
        """A child that goes on in the middle of an append, which a signal's handler interrupted, changes nothing."""
        self.is_parents = self.closed = True
        self.ready = False
        for segment in self.opened:
            segment.close()

    def end(self) -> LogEnd:
        """The place that the next batch goes to."""
        position = self.opened[-1].position if self.opened else self.resting.position
        return LogEnd(self.written, position, self.end_offset, self.checksum, self.last_time_us, self.term)

    @property
    def rests(self) -> bool:
        """Whether the next append opens a segment first, or makes one: that takes syncs."""
        return self.must_cut or not self.opened

    def follow(self, batch: Batch, position: int) -> None:
        """The log ends behind `batch` now, which another process wrote at `position` of the active segment."""
        active = self.opened[-1]
        end = self.end().after(batch, position)
        active.position, active.last_seq, active.newest = end.position, end.seq, None
        self.end_offset, self.checksum, self.last_time_us = end.offset, end.checksum, end.time_us
        self.ends[end.seq] = end.offset
        self.written = end.seq

    def check_open(self) -> None:
        """Raise Poisoned or Closed when nothing may be written any more."""
        if self._failure is not None and self.poisoned is None:
            self.poison(str(self._failure))
        if self.poisoned is not None:
            raise Poisoned(f"{self.path} takes no more writes since a sync failed ({self.poisoned}); reads go on")
        if self.closed:
            raise Closed(f"{self.path} is closed")

    # -- segments ---------------------------------------------------------------------------------

    def announce(self, segment: Segment) -> None:
        """Batches go to this segment now."""
        if self.on_segment is not None:
            self.on_segment(segment.ref)

    def adopt_spare(self, path: str) -> None:
        """Use this prepared file (blocks reserved, synced, all zeros) for the next segment."""
        self.room.adopt(path)

    def dirty_segments(self) -> list[SegmentRef]:
        """The segments that hold batches not known to be durable."""
        return [segment.ref for segment in self.opened if segment.last_seq > self.durable]

    def close_segments(self) -> None:
        """Let go of all open files."""
        while self.opened:
            self.opened.pop().close()

    # -- durability -------------------------------------------------------------------------------

    def sync(self, *, mark: bool = True) -> int:
        """Make everything appended durable, here and now; returns its seq. Raises Poisoned, for good.

        Args:
            mark: False leaves the mark to a `mark_durable` soon after, which no caller waits for.
        """
        self.check_open()
        if self.durable < self.written:
            self.sync_segments(mark=mark)
        return self.durable

    def sync_segments(self, *, mark: bool) -> None:
        """As `sync`, also when everything is durable already."""
        pending = self.pending()
        self.carry_out(pending, mark=mark)
        self.settle(pending.generation, pending.end.seq)

    def begin_sync(self) -> None:
        """Have the disk begin to write what the next `sync` waits for. If that fails, so will the sync."""
        try:
            self.opened[-1].file.begin_sync()
        except OSError as error:
            self._failure = error

    @property
    def failing(self) -> bool:
        """Whether the next sync fails, for what is known: no other process is to be asked for one."""
        return self._failure is not None

    def pending(self) -> PendingBatch:
        """The extent of a sync that begins now: `carry_out` runs it, `settle` records its success."""
        self.check_open()
        return PendingBatch(self.generation, self.end(), [each for each in self.opened if each.last_seq > self.durable])

    def carry_out(self, pending: PendingBatch, *, mark: bool = True) -> None:
        """Sync, and leave a mark. Appends may go on meanwhile; a cut or a close may not. Raises Poisoned."""
        try:
            for segment in pending.segments:
                segment.sync()
        except (OSError, StorageFull) as error:  # a directory is opened to sync it
            self._failure = error  # without a call: nothing that interrupts us may let the next sync succeed
            raise self.poisoned_by(error) from error
        if mark and pending.segments:
            active = pending.segments[-1]
            # Copy-on-write file systems need room even for it. The batches are durable; the next sync leaves one.
            with suppress(OSError, StorageFull):
                segments.write_mark(active.file, pending.end.mark(self.log_id, active.ref.generation))

    def settle(self, generation: int, seq: int) -> None:
        """A sync of everything up to `seq` succeeded, names included. One of another generation says nothing.

        The log may have gone back meanwhile: then all that is left was synced.
        """
        seq = min(seq, self.written)
        if generation != self.generation or seq <= self.durable:
            return
        self.durable = seq
        while len(self.opened) > 1 and self.opened[0].last_seq <= seq:
            self.opened.pop(0).close()
        if self.opened and self.opened[0].ref.base_seq <= seq:
            self.opened[0].name_is_durable()

    def poisoned_by(self, error: OSError | StorageFull) -> Poisoned:
        """Poison the log; what to raise."""
        self.poison(str(error))
        return Poisoned(f"{self.path} could not be synced ({error}); what was not durable yet is lost, open it again")

    def give_up(self, reason: str) -> None:
        """No more appends of this opening, which cannot tell what stands in the log: the next one finds out."""
        self.poisoned, self.ready = self.poisoned or reason, False

    def poison(self, reason: str) -> None:
        """No more appends, no more acks: a sync failed. Written to the disk too, so that it survives a restart."""
        if self.poisoned is None:
            self.poisoned = reason  # first of all: nothing that interrupts us may leave it open
            if not self.is_parents:
                self.poisoned = poisons.write(self.files, self.path, reason, durable=self.durable)
        self.ready = False
