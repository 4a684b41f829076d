"""The store of a node inside this process: the same directory as a broker's, without a keeper.

Idea: jobs that a broker would hand to its keeper run at once, in the caller's thread.
Contract: as `engine.ports.Store`. The caller holds the directory's lock. A broker that was killed may have left syncs
without an answer, so every log that was not closed cleanly is opened as suspect: its tail is written anew before it
counts.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ...storage import layout
from ...storage.data_directory import DOUBTS
from ...storage.errors import Poisoned
from ...storage.jobs import InlineJobs
from ...storage.log_store import LogStore
from ...storage.memory_files import MemoryFiles
from ...storage.promises import Promises
from ...storage.segment_reader import SegmentCache
from .board import LocalBoard

if TYPE_CHECKING:
    from ...storage.files import Files
    from ...storage.log import LogOptions, LogWriter


class LocalStore(LogStore):
    """See the module."""

    def __init__(self, data: str, files: Files, *, max_batch_bytes: int) -> None:
        super().__init__(
            data,
            files,
            promises=Promises(f"{data}/{layout.PROMISES}", files),
            cache=SegmentCache(files),
            jobs=InlineJobs(files),
            max_batch_bytes=max_batch_bytes,
        )
        self.board: LocalBoard | None = None
        self._logs: dict[str, LogWriter] = {}
        self.empty_trash()

    def _open(self, path: str, options: LogOptions, *, suspect: bool = True) -> LogWriter:
        return super()._open(path, options, suspect=suspect)

    def _hold(self, log: LogWriter) -> LogWriter:
        self._logs[log.path] = log
        if self.board is not None:
            self.board.hold(log)
        return log

    def _let_go(self, log: LogWriter) -> None:
        self._logs.pop(log.path, None)
        if self.board is not None:
            self.board.let_go(log.path)

    def opened(self) -> None:
        """Settle doubts of a dead broker once every log is open, and take over its board if possible."""
        if isinstance(self.files, MemoryFiles):
            return
        if self.files.exists(f"{self._data}/{DOUBTS}"):
            self.files.unlink(f"{self._data}/{DOUBTS}")
            self.files.sync_dir(self._data)
        self.board = LocalBoard.create(self.files, self._data)
        if self.board is not None:
            for log in self._logs.values():
                self.board.hold(log)

    def sync(self, log: LogWriter) -> None:
        """Make appended batches durable if the topic asks for it, and publish the log's progress. Raises Poisoned."""
        if log.options.commit == "durable":
            self.make_durable(log)
        elif self.board is not None:
            self.board.publish(log)

    def make_durable(self, log: LogWriter) -> None:
        """Sync a log, whatever its topic asks for, and publish its progress. Raises Poisoned."""
        if self.board is None:
            if log.poisoned is None:
                log.sync()
            return
        if log.poisoned is None:
            self.board.sync(log)
        self.board.publish(log)

    def hurry(self, log: LogWriter) -> None:
        """See Store."""
        with suppress(Poisoned):  # the log keeps the reason
            self.make_durable(log)

    def close(self) -> None:
        """Release the files. Logs that the node did not close are left as after a kill."""
        for log in self._logs.values():
            log.close(clean=False)
        if self.board is not None:
            self.board.retire()
            self.board = None
        super().close()
        self._promises.close()
