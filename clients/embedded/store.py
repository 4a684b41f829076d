"""The store of a node inside this process: the same directory as a broker's, without a keeper.

    DATA/node.json  DATA/board  DATA/promises  DATA/metadata/  DATA/topics/<topic id>/<partition>/  DATA/trash/

Idea: everything a broker would hand to its keeper is done at once, in the caller's thread.
Contract: as `engine.ports.Store`. The caller holds the directory's lock. A broker that was killed may have left
syncs without an answer, so every log that was not closed cleanly is opened as suspect: what its tail holds is
written anew before it counts.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ...storage import layout, runs, snapshots
from ...storage.board import boot_id
from ...storage.data_directory import DOUBTS, METADATA, TOPICS, TRASH, metadata_path
from ...storage.errors import Poisoned
from ...storage.finals import FinalFiles
from ...storage.log import LogOptions, LogWriter
from ...storage.memory_files import MemoryFiles
from ...storage.order import Sole
from ...storage.promises import Promises
from ...storage.segment_reader import SegmentCache
from .board import LocalBoard

if TYPE_CHECKING:
    from ...broker.engine import TopicSettings
    from ...storage.files import Files
    from ...storage.segment import SegmentRef
    from ...storage.snapshots import Snapshot


class LocalStore:
    """See the module."""

    def __init__(self, data: str, files: Files, *, max_batch_bytes: int) -> None:
        self.files = files
        self.board: LocalBoard | None = None
        self._logs: list[LogWriter] | None = []  # until all are open
        self._data = data
        self._max_batch_bytes = max_batch_bytes
        self._promises = Promises(f"{data}/{layout.PROMISES}", files)
        self._cache = SegmentCache(files)
        self._covered: dict[str, int] = {}
        self._runs: dict[str, runs.RunFiles] = {}
        for name in files.listdir(f"{data}/{TRASH}"):
            files.remove_tree(f"{data}/{TRASH}/{name}")

    # -- logs -------------------------------------------------------------------------------------------

    def metadata(self) -> LogWriter:
        """See Store. Raises Corrupt when it is gone though there are topics: they are not given up."""
        options = LogOptions(max_batch_bytes=self._max_batch_bytes)
        path = metadata_path(self.files, self._data)
        return self._create(f"{self._data}/{METADATA}", options) if path is None else self._open(path, options)

    def create(self, topic: bytes, partition: int, settings: TopicSettings) -> LogWriter:
        """See Store."""
        return self._create(self.directory(topic, partition), self._options(settings))

    def open(self, topic: bytes, partition: int, settings: TopicSettings) -> LogWriter:
        """See Store."""
        return self._open(self.directory(topic, partition), self._options(settings))

    def configure(self, log: LogWriter, settings: TopicSettings) -> None:
        """See Store."""
        log.options = self._options(settings)

    def _options(self, settings: TopicSettings) -> LogOptions:
        return LogOptions(
            segment_bytes=settings.segment_bytes, max_batch_bytes=self._max_batch_bytes, commit=settings.commit
        )

    def _create(self, path: str, options: LogOptions) -> LogWriter:
        log = LogWriter.create(
            path,
            files=self.files,
            log_id=uuid.uuid4().bytes,
            options=options,
            order=Sole(self._promises),
            cache=self._cache,
        )
        return self._hold(log)

    def _open(self, path: str, options: LogOptions) -> LogWriter:
        log = LogWriter.open(
            path, files=self.files, options=options, order=Sole(self._promises), suspect=True, cache=self._cache
        )
        return self._hold(log)

    def _hold(self, log: LogWriter) -> LogWriter:
        if self._logs is not None:
            self._logs.append(log)
        elif self.board is not None:
            self.board.hold(log)
        return log

    def opened(self) -> None:
        """Every log is open: what a dead broker left in doubt is settled, and its board may become ours."""
        logs, self._logs = self._logs or [], None
        if isinstance(self.files, MemoryFiles):
            return
        if self.files.exists(f"{self._data}/{DOUBTS}"):
            self.files.unlink(f"{self._data}/{DOUBTS}")
            self.files.sync_dir(self._data)
        self.board = LocalBoard.create(self.files, self._data)
        if self.board is not None:
            for log in logs:
                self.board.hold(log)

    def sync(self, log: LogWriter) -> None:
        """Make what was appended durable, when its topic asks for that, and say how far it is. Raises Poisoned."""
        if log.options.commit == "durable":
            self.make_durable(log)
        elif self.board is not None:
            self.board.publish(log)

    def make_durable(self, log: LogWriter) -> None:
        """Sync a log, whatever its topic asks for, and say how far it is. Raises Poisoned."""
        if self.board is None:
            if log.poisoned is None:
                log.sync()
            return
        if log.poisoned is None:
            self.board.sync(log)
        self.board.publish(log)

    def directory(self, topic: bytes, partition: int) -> str:
        """See Store."""
        return f"{self._data}/{TOPICS}/{topic.hex()}/{partition}"

    def row(self, log: LogWriter) -> int:
        """See Store: nobody is woken through this board, so nobody is told."""
        return -1

    def delete(self, topic: bytes) -> None:
        """See Store."""
        source, trash = f"{self._data}/{TOPICS}/{topic.hex()}", f"{self._data}/{TRASH}"
        for partition in self.files.listdir(source):
            self._cache.drop(f"{source}/{partition}")
            self._covered.pop(f"{source}/{partition}", None)
            self._runs.pop(f"{source}/{partition}", None)
            if self.board is not None:
                self.board.let_go(f"{source}/{partition}")
        if not self.files.exists(source):
            return
        self.files.mkdir(trash)
        target = f"{trash}/{topic.hex()}-{os.urandom(4).hex()}"
        self.files.rename_dir(source, target)
        self.files.sync_dir(f"{self._data}/{TOPICS}")
        self.files.sync_dir(trash)
        self.files.remove_tree(target)

    # -- snapshots and retention ------------------------------------------------------------------------

    def hurry(self, log: LogWriter) -> None:
        """See Store."""
        with suppress(Poisoned):  # the log keeps the reason
            self.make_durable(log)

    def save_snapshot(self, log: LogWriter, seq: int, term: int, body: bytes) -> None:
        """See Store. A snapshot may not get ahead of what is durable."""
        if log.durable < seq:
            log.sync()
        written = self.runs(log)
        runs.sync(self.files, log.path, written.unsynced)
        written.unsynced.clear()
        self._covered[log.path] = snapshots.save(self.files, log.path, seq, term, body, log.log_id)

    def load_snapshot(self, log: LogWriter, below: int | None = None) -> Snapshot | None:
        """See Store."""
        first_seq, last_seq = log.segments()[0].base_seq, log.written if below is None else below - 1
        found = snapshots.load_newest(self.files, log.path, log.log_id, first_seq=first_seq, last_seq=last_seq)
        snapshots.drop_beyond(self.files, log.path, last_seq)
        if found is not None:
            self._covered[log.path] = snapshots.second_newest_seq(self.files, log.path, log.log_id)
        return found

    def runs(self, log: LogWriter) -> runs.RunFiles:
        """See Store."""
        found = self._runs.get(log.path)
        if found is None:
            found = self._runs[log.path] = runs.RunFiles(self.files, log.path, log.log_id)
        return found

    def finals(self, log: LogWriter) -> FinalFiles:
        """See Store."""
        return FinalFiles(self.files, log.path, log.log_id, boot_id().to_bytes(16, "big"))

    def covered(self, log: LogWriter) -> int:
        """See Store."""
        return self._covered.get(log.path, 0)

    def retire(self, log: LogWriter, segments: Sequence[SegmentRef]) -> None:
        """See Store."""
        for ref in segments:
            for path in (ref.path, ref.index_path):
                if self.files.exists(path):
                    self.files.unlink(path)
        self.files.sync_dir(log.path)
        log.forget(segments)

    def close(self) -> None:
        """Let go of the files; the logs are closed by the node."""
        if self.board is not None:
            self.board.close()
        self._cache.close()
        self._promises.close()
