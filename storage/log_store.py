"""The logs of one data directory: where they are; opening, deleting, snapshotting and trimming them.

    DATA/metadata/                          the metadata log
    DATA/topics/<topic id>/<partition>/     one log each
    DATA/trash/<topic id>-<random>          deleted topics until they are removed

Idea: the common base of all stores of a node, which asks for logs by topic and partition. Slow work goes to `Jobs`; a
store that keeps a board overrides `_hold`, `_let_go` and `row`, and one that knows of unanswered syncs overrides
`_open`.

Contract: as the engine's `ports.Store`; the node closes the logs. The caller has locked the directory. Must not know:
what topics and records mean, readers.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from . import aside, log_ids, snapshots
from .board import boot_id
from .data_directory import METADATA, TOPICS, TRASH, metadata_path, partition_path
from .errors import StorageFull
from .finals import FinalFiles
from .log import LogOptions, LogWriter
from .order import Sole
from .runs import RunFiles

if TYPE_CHECKING:
    from .files import Files
    from .jobs import Jobs
    from .order import LogOrder
    from .promises import Promises
    from .segment import SegmentRef
    from .segment_reader import SegmentCache
    from .snapshots import Snapshot

_log = logging.getLogger("penstock.storage")

RETIRE_MOST = 512
"""Segments that are removed at once, so that their names fit into a packet to the keeper: a fifth of what it takes."""


class LogSettings(Protocol):
    """The settings of a topic that concern its logs."""

    @property
    def commit(self) -> str: ...

    @property
    def segment_bytes(self) -> int: ...


class StoredLog:
    """The store's record of an open log."""

    __slots__ = ("covered", "newest", "retiring", "runs")

    def __init__(self, runs: RunFiles) -> None:
        self.runs = runs
        self.newest = 0  # the seq of the newest durable snapshot
        self.covered = 0  # and of the one before it
        self.retiring: set[str] = set()  # segments on their way out, by path


class LogStore:
    """See the module."""

    def __init__(
        self, data: str, files: Files, *, promises: Promises, cache: SegmentCache, jobs: Jobs, max_batch_bytes: int,
        order: LogOrder | None = None,
    ) -> None:  # fmt: skip
        """`order`: of all logs; None: each has its only writer here."""
        self.files = files
        self.boot_id = boot_id().to_bytes(16, "big")
        self._data = data
        self._promises = promises
        self._order = order
        self._cache = cache
        self._jobs = jobs
        self._max_batch_bytes = max_batch_bytes
        self._stored: dict[LogWriter, StoredLog] = {}
        self._of_topic: dict[bytes, list[LogWriter]] = {}

    # -- opening ----------------------------------------------------------------------------------

    def metadata(self) -> LogWriter:
        """Open the metadata log. Raises Corrupt when it is gone though there are topics, which must not be lost."""
        options = LogOptions(max_batch_bytes=self._max_batch_bytes)
        path = metadata_path(self.files, self._data)
        log = self._create(f"{self._data}/{METADATA}", options) if path is None else self._open(path, options)
        return self._hold(log)

    def create(self, topic: bytes, partition: int, settings: LogSettings) -> LogWriter:
        """Create a partition's log and open it. Raises StorageFull, LimitReached."""
        return self._hold_for(topic, self._create(self.directory(topic, partition), self._options(settings)))

    def open(self, topic: bytes, partition: int, settings: LogSettings) -> LogWriter:
        """Open a partition's log. Raises InvalidTopic when it is missing, and what LogWriter.open raises."""
        return self._hold_for(topic, self._open(self.directory(topic, partition), self._options(settings)))

    def configure(self, log: LogWriter, settings: LogSettings) -> None:
        """Take over what may change while the log is open."""
        log.options = self._options(settings)

    def _options(self, settings: LogSettings) -> LogOptions:
        return LogOptions(
            segment_bytes=settings.segment_bytes, max_batch_bytes=self._max_batch_bytes, commit=settings.commit
        )

    def _create(self, path: str, options: LogOptions) -> LogWriter:
        return LogWriter.create(
            path,
            files=self.files,
            log_id=self._new_log_id(path),
            options=options,
            order=self._order or Sole(self._promises),
            cache=self._cache,
        )

    def _open(self, path: str, options: LogOptions, *, suspect: bool = False) -> LogWriter:
        return LogWriter.open(
            path, files=self.files, options=options, order=self._order or Sole(self._promises), suspect=suspect,
            cache=self._cache,
        )  # fmt: skip

    def _new_log_id(self, path: str) -> bytes:
        return log_ids.own_id(path) or self.files.new_id()

    def _hold_for(self, topic: bytes, log: LogWriter) -> LogWriter:
        self._of_topic.setdefault(topic, []).append(log)
        return self._hold(log)

    def _hold(self, log: LogWriter) -> LogWriter:
        """A log was opened."""
        return log

    def _let_go(self, log: LogWriter) -> None:
        """A log is deleted."""

    # -- where and what ---------------------------------------------------------------------------

    def directory(self, topic: bytes, partition: int) -> str:
        """The directory of a partition's files."""
        return partition_path(self._data, topic, partition)

    def row(self, log: LogWriter) -> int:
        """The log's row on a board that wakes readers; -1 without one."""
        return -1

    # -- deleting ---------------------------------------------------------------------------------

    def delete(self, topic: bytes) -> None:
        """Rename a topic's directory to the trash, and have it removed from there. Raises StorageFull, OSError."""
        for log in self._of_topic.pop(topic, []):
            self._let_go(log)
            self._stored.pop(log, None)
            self._cache.drop(log.path)
        self._throw_away(f"{self._data}/{TOPICS}/{topic.hex()}")

    def _throw_away(self, source: str) -> None:
        """Rename a directory to the trash, if it is there, and have it removed. Raises StorageFull, OSError."""
        if not self.files.exists(source):
            return
        trash, (above, _, name) = f"{self._data}/{TRASH}", source.rpartition("/")
        try:
            self.files.mkdir(trash)
        except StorageFull:
            self._jobs.remove_tree(source)  # on a full disk, this is what makes room
            raise
        target = f"{trash}/{name}-{self.files.new_id().hex()[:8]}"
        self.files.rename_dir(source, target)
        self.files.sync_dir(above)
        self.files.sync_dir(trash)
        self._jobs.remove_tree(target)

    def empty_trash(self) -> None:
        """Have removed what an earlier node deleted and did not get to remove. What is no directory is set aside."""
        trash = f"{self._data}/{TRASH}"
        if self.files.exists(trash) and not self.files.is_directory(trash):
            _log.warning("%s", aside.set_aside(self.files, trash, "no directory, which is where deleted topics go"))
        for name in self.files.listdir(trash):
            self._jobs.remove_tree(f"{trash}/{name}")

    # -- snapshots and retention ------------------------------------------------------------------

    def save_snapshot(self, log: LogWriter, seq: int, term: int, body: bytes) -> None:
        """Write the snapshot, and have it synced and named. It may not get ahead of what is durable."""
        if log.durable < seq:
            self._sync(log)
        snapshots.prepare(self.files, log.path, seq, term, body, log.log_id)
        stored = self._of(log)
        numbers = list(stored.runs.unsynced)

        def covered(found: int) -> None:
            stored.covered, stored.newest = found, seq
            stored.runs.synced(numbers)

        self._jobs.finish_snapshot(log.path, seq, log.log_id, numbers, covered)

    def _sync(self, log: LogWriter) -> None:
        log.sync()

    def load_snapshot(self, log: LogWriter, below: int | None = None) -> Snapshot | None:
        """The newest whole one that the log reaches."""
        first_seq, last_seq = log.segments()[0].base_seq, log.written if below is None else below - 1
        found = snapshots.load_newest(self.files, log.path, log.log_id, first_seq=first_seq, last_seq=last_seq)
        snapshots.drop_beyond(self.files, log.path, last_seq)
        stored = self._of(log)
        stored.newest = 0 if found is None else found.seq
        stored.covered = 0 if found is None else snapshots.second_newest_seq(self.files, log.path, log.log_id)
        return found

    def finals(self, log: LogWriter) -> FinalFiles:
        """Beside the log."""
        return FinalFiles(self.files, log.path, log.log_id, self.boot_id)

    def runs(self, log: LogWriter) -> RunFiles:
        """Beside the log."""
        return self._of(log).runs

    def covered(self, log: LogWriter) -> int:
        """The seq of the second-newest durable snapshot."""
        return self._of(log).covered

    def removable_to(self, log: LogWriter) -> int:
        """The last batch that snapshots let go: the second-newest one has it, should the newest be damaged."""
        return self._of(log).covered

    def _of(self, log: LogWriter) -> StoredLog:
        found = self._stored.get(log)
        if found is None:
            found = self._stored[log] = StoredLog(RunFiles(self.files, log.path, log.log_id))
        return found

    def retire(self, log: LogWriter, segments: Sequence[SegmentRef]) -> None:
        """Have the first RETIRE_MOST of these segments unlinked, then forgotten. The others are asked for again.

        Nothing while some are on their way, or unless these are the oldest of the log: where one of those stays, a
        later one that goes would leave a hole.
        """
        retiring, fresh = self._of(log).retiring, segments[:RETIRE_MOST]
        if retiring or not fresh or [ref.name for ref in fresh] != log.names[: len(fresh)]:
            return
        paths = {ref.path for ref in fresh}
        retiring |= paths

        def over() -> None:
            retiring.difference_update(paths)

        def gone(_: int) -> None:
            over()
            log.forget(fresh)

        names = [name for ref in fresh for name in (ref.name.segment_file, ref.name.index_file)]
        self._jobs.unlink(log.path, names, gone, over)

    # -- the end ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Close what is open for reading. The logs are closed by the node."""
        self._cache.close()
