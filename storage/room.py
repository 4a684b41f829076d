"""Room for appends: segment sizes, and the next segment when one is full.

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
