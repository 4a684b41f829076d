"""Syncs full segments in a thread, for a writer that does not wait for syncs.

Idea: with commit="written" no append waits for a sync, so after a crash recovery would have to verify the whole log. A
thread syncs each segment once the log has moved on; the writer collects the result and marks it.

Contract: only `collect`, `sync` and `finish` touch the writer; the thread that holds its lock calls them. A failed sync
poisons the log, like any other: none follows it, whose success would say nothing.
Must not know: records, buffers.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress

from .errors import StorageError, StorageFull
from .files import Files
from .log import LogWriter
from .segment import SegmentRef


class BackgroundSync:
    """Syncs the segments of `writer` that are full."""

    def __init__(self, writer: LogWriter, files: Files) -> None:
        self._writer = writer
        self._files = files
        self._thread: threading.Thread | None = None
        self._results: deque[tuple[int, int] | OSError | StorageFull] = deque()
        writer.on_segment = self._rolled
        self._pending = False

    def _rolled(self, _: SegmentRef) -> None:
        self._pending = self._writer.options.commit == "written"

    def collect(self) -> None:
        """Apply finished syncs to the writer, and start the next one if the log has rolled."""
        while self._results:
            result = self._results.popleft()
            if isinstance(result, OSError | StorageFull):
                self._writer.poison(str(result))
            elif self._writer.poisoned is None:
                self._writer.settle(*result)
                with suppress(OSError, StorageError):  # no append fails for it: the next mark says as much
                    self._writer.mark_durable()
        busy = self._thread is not None and self._thread.is_alive()
        if self._pending and not busy and self._writer.poisoned is None:
            self._pending = False
            self._start()

    def _start(self) -> None:
        full = self._writer.dirty_segments()[:-1]
        if not full or self._writer.dirty_segments()[-1].generation != full[0].generation:
            return
        through = self._writer.dirty_segments()[-1].base_seq - 1
        arguments = ([ref.path for ref in full], self._writer.generation, through)
        self._thread = threading.Thread(target=self._sync, args=arguments, name="penstock-sync", daemon=True)
        self._thread.start()

    def _sync(self, paths: list[str], generation: int, through: int) -> None:
        try:
            for path in paths:
                self._files.sync(path)
            self._files.sync_dir(self._writer.path)
        except (OSError, StorageFull) as error:
            self._results.append(error)
            return
        self._results.append((generation, through))

    def sync(self) -> None:
        """Make everything durable, here and now. Raises Poisoned, also for a sync of the thread that failed."""
        self.finish()
        self._writer.sync()

    def finish(self) -> None:
        """Wait for the thread and take its result. Raises Poisoned if it is one that nothing has told yet."""
        if self._thread is not None:
            self._thread.join()
        self._pending, was_well = False, self._writer.poisoned is None
        self.collect()
        if was_well and self._writer.poisoned is not None:
            self._writer.check_open()
