"""Room for appends: segment sizes, blocks ahead of the end, and the next segment when one is full.

Idea: blocks are reserved ahead of need, in doubling steps, only while that leaves RESERVE_BYTES of the disk free. Below
that a batch gets the blocks that it needs, so no log is stopped by what another one reserved and has not written.

Contract: a spare (blocks reserved, the first page written, synced beforehand, all zeros) becomes the next segment if it
is ready in time. No append waits for a directory to be synced.
Must not know: which batches go where.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from . import segment as segments
from .files import Files
from .layout import DATA_START
from .recovery import LogEnd
from .segment import Segment

RESERVE_BYTES = 64 << 20
"""What stays free of a disk where blocks are reserved before anything is to be written to them."""


class LogOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a log is written. `commit` is what readers wait for: "written" or "durable"."""

    segment_bytes: int = 64 << 20
    max_batch_bytes: int = 64 << 20
    allocate_bytes: int = 64 << 10
    commit: str = "durable"


class Room:
    """Makes the segments of the log in `path`."""

    def __init__(self, path: str, files: Files, options: LogOptions, log_id: bytes) -> None:
        self._path = path
        self._files = files
        self._options = options
        self._log_id = log_id
        self._spare: str | None = None

    def make(self, end: LogEnd, generation: int, size: int) -> Segment:
        """A segment that starts at `end`, with room for a batch of `size` bytes. Its name is synced later."""
        header, size = end.header(self._log_id, generation), self.size(size)
        return segments.create(self._files, self._path, header, size=size, spare=self.take_spare(), durably=False)

    def size(self, batch_bytes: int) -> int:
        """How large a segment is made whose first batch is so large."""
        wanted = DATA_START + batch_bytes
        return min(max(self._options.allocate_bytes, wanted), max(self._options.segment_bytes, wanted))

    def reserve(self, segment: Segment, end: int) -> None:
        """Have blocks up to `end` of a segment, and more ahead where the disk has them. Raises StorageFull."""
        held = segment.allocated
        if end <= held:
            return
        step, free = self._options.allocate_bytes, self._files.free(self._path)
        size = max(held, step)
        while size < end:
            size *= 2
        size = max(end, min(size, self._options.segment_bytes))
        if size - held > free - RESERVE_BYTES:
            size = min(size, -(-end // step) * step)
        segment.allocate(size if size - held <= free else end)

    def has_ahead(self, size: int) -> bool:
        """Whether so many bytes may be reserved ahead of need."""
        return size <= self._files.free(self._path) - RESERVE_BYTES

    def take_spare(self) -> str | None:
        """The spare, which is the caller's from now on."""
        spare, self._spare = self._spare, None
        return spare

    def adopt(self, spare: str) -> None:
        """Use this file for the next segment. One that came too late for its segment and still waits is removed."""
        before, self._spare = self._spare, spare
        if before is not None and self._files.exists(before):
            with suppress(OSError):  # the next opening tries again
                self._files.unlink(before)
