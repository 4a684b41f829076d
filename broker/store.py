"""The store of a broker process: logs in the data directory, rows on the board, jobs for the keeper.

    DATA/metadata/                          the metadata log
    DATA/topics/<topic id>/<partition>/     one log each
    DATA/trash/<topic id>-<random>          deleted topics until they are removed

Idea: the engine asks for logs by topic and partition; this decides where they are, opens them with what a dead
keeper left in doubt taken into account, puts them on the board, and gives everything that takes long (unlinking,
syncing snapshots) to the keeper.

Contract: as `engine.ports.Store`. Must not know: messages, peers, groups.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..storage import layout, poison, snapshots
from ..storage.board import boot_id
from ..storage.data_directory import METADATA, TOPICS, TRASH, metadata_path
from ..storage.errors import StorageFull
from ..storage.finals import FinalFiles
from ..storage.log import LogOptions, LogWriter
from ..storage.order import Sole
from ..storage.runs import RunFiles
from ..storage.segment import read_page, reference
from ..storage.segment_reader import SegmentCache

if TYPE_CHECKING:
    from ..storage.files import Files
    from ..storage.promises import Promises
    from ..storage.segment import SegmentRef
    from ..storage.snapshots import Snapshot
    from .engine import TopicSettings
    from .keeper.jobs import KeeperJobs
    from .keeper.unresolved_syncs import UnresolvedSyncs
    from .watermarks import Watermarks

READ_SEGMENTS = 256
"""Segments kept open for reading; two descriptors each."""


class DirectoryStore:
    """The logs of one data directory, which the caller has locked."""

    def __init__(
        self,
        data: str,
        files: Files,
        *,
        promises: Promises,
        watermarks: Watermarks,
        jobs: KeeperJobs,
        doubts: UnresolvedSyncs,
        max_batch_bytes: int,
    ) -> None:
        self._data = data
        self._files = files
        self._promises = promises
        self._watermarks = watermarks
        self._jobs = jobs
        self._unresolved = doubts
        self._max_batch_bytes = max_batch_bytes
        self._cache = SegmentCache(files, READ_SEGMENTS)
        self._covered: dict[LogWriter, int] = {}
        self._runs: dict[LogWriter, RunFiles] = {}
        self._retiring: dict[LogWriter, set[str]] = {}
        self._of_topic: dict[bytes, list[LogWriter]] = {}

    # -- opening ----------------------------------------------------------------------------------

    def metadata(self) -> LogWriter:
        """Open the metadata log. Raises Corrupt when it is gone and topics are there: they are not given up."""
        options = LogOptions(max_batch_bytes=self._max_batch_bytes)
        path = metadata_path(self._files, self._data)
        if path is None:
            return self._hold(self._make(f"{self._data}/{METADATA}", options))
        return self._open(path, options)

    def create(self, topic: bytes, partition: int, settings: TopicSettings) -> LogWriter:
        """Create a partition's log and open it. Raises StorageFull, LimitReached."""
        log = self._make(self.directory(topic, partition), self._options(settings))
        self._of_topic.setdefault(topic, []).append(log)
        return self._hold(log)

    def open(self, topic: bytes, partition: int, settings: TopicSettings) -> LogWriter:
        """Open a partition's log. Raises InvalidTopic when it is missing, and what LogWriter.open raises."""
        log = self._open(self.directory(topic, partition), self._options(settings))
        self._of_topic.setdefault(topic, []).append(log)
        return log

    def configure(self, log: LogWriter, settings: TopicSettings) -> None:
        """Take over what may change while the log is open."""
        log.options = self._options(settings)

    def _options(self, settings: TopicSettings) -> LogOptions:
        return LogOptions(
            segment_bytes=settings.segment_bytes, max_batch_bytes=self._max_batch_bytes, commit=settings.commit
        )

    def _make(self, path: str, options: LogOptions) -> LogWriter:
        return LogWriter.create(
            path,
            files=self._files,
            log_id=uuid.uuid4().bytes,
            options=options,
            order=Sole(self._promises),
            cache=self._cache,
        )

    def _open(self, path: str, options: LogOptions) -> LogWriter:
        log_id = self._log_id(path) if self._unresolved else b""
        doubt = self._unresolved.about(log_id)
        if doubt is not None and doubt.poisoned:
            poison.write(self._files, path, "a sync failed before the broker ended", durable=doubt.durable)
        log = LogWriter.open(
            path,
            files=self._files,
            options=options,
            order=Sole(self._promises),
            suspect=doubt is not None,
            cache=self._cache,
        )
        self._unresolved.settled(log_id)
        return self._hold(log)

    def _log_id(self, path: str) -> bytes:
        """The id of a log that is not open yet; empty when its newest segment does not say."""
        names, _ = layout.live_segments(self._files.listdir(path))
        if not names:
            return b""
        file = self._files.open(reference(path, names[-1]).path)
        try:
            header = read_page(file).header
        finally:
            file.close()
        return b"" if header is None else header.log_id

    def _hold(self, log: LogWriter) -> LogWriter:
        try:
            self._watermarks.hold(log, lazy=log.options.commit == "written")
        except BaseException:
            log.close(clean=False)
            raise
        return log

    # -- where and what ---------------------------------------------------------------------------

    def directory(self, topic: bytes, partition: int) -> str:
        """Where a partition's files are."""
        return f"{self._data}/{TOPICS}/{topic.hex()}/{partition}"

    def row(self, log: LogWriter) -> int:
        """The log's row on the board."""
        return self._watermarks.number_of(log)

    # -- deleting ---------------------------------------------------------------------------------

    def delete(self, topic: bytes) -> None:
        """Rename a topic's directory to the trash; the keeper removes it from there. Raises StorageFull, OSError."""
        for log in self._of_topic.pop(topic, []):
            self._watermarks.let_go(log)
            self._covered.pop(log, None)
            self._runs.pop(log, None)
            self._retiring.pop(log, None)
            self._cache.drop(log.path)
        source, trash = f"{self._data}/{TOPICS}/{topic.hex()}", f"{self._data}/{TRASH}"
        if not self._files.exists(source):
            return
        try:
            self._files.mkdir(trash)
        except StorageFull:
            self._jobs.remove_tree(source)  # on a full disk, this is what makes room
            raise
        target = f"{trash}/{topic.hex()}-{uuid.uuid4().hex[:8]}"
        self._files.rename_dir(source, target)
        self._files.sync_dir(f"{self._data}/{TOPICS}")
        self._files.sync_dir(trash)
        self._jobs.remove_tree(target)

    def empty_trash(self) -> None:
        """What an earlier broker deleted and its keeper did not get to remove."""
        trash = f"{self._data}/{TRASH}"
        for name in self._files.listdir(trash):
            self._jobs.remove_tree(f"{trash}/{name}")

    # -- snapshots and retention ------------------------------------------------------------------

    def hurry(self, log: LogWriter) -> None:
        """See Store: the keeper does it within its `lazy_s`."""

    def save_snapshot(self, log: LogWriter, seq: int, term: int, body: bytes) -> None:
        """Write the snapshot; the keeper syncs and names it. It may not get ahead of what is durable."""
        if log.durable < seq:
            self._watermarks.sync_now(log)
        snapshots.prepare(self._files, log.path, seq, term, body, log.log_id)

        runs = self.runs(log)
        numbers = list(runs.unsynced)

        def covered(found: int) -> None:
            self._covered[log] = found
            runs.synced(numbers)

        self._jobs.finish_snapshot(log.path, seq, log.log_id, numbers, covered)

    def load_snapshot(self, log: LogWriter, below: int | None = None) -> Snapshot | None:
        """The newest whole one that the log reaches."""
        first_seq, last_seq = log.segments()[0].base_seq, log.written if below is None else below - 1
        found = snapshots.load_newest(self._files, log.path, log.log_id, first_seq=first_seq, last_seq=last_seq)
        snapshots.drop_beyond(self._files, log.path, last_seq)
        self._covered[log] = 0 if found is None else snapshots.second_newest_seq(self._files, log.path, log.log_id)
        return found

    def finals(self, log: LogWriter) -> FinalFiles:
        """Beside the log."""
        return FinalFiles(self._files, log.path, log.log_id, boot_id().to_bytes(16, "big"))

    def runs(self, log: LogWriter) -> RunFiles:
        """See Store."""
        found = self._runs.get(log)
        if found is None:
            found = self._runs[log] = RunFiles(self._files, log.path, log.log_id)
        return found

    def covered(self, log: LogWriter) -> int:
        """The seq of the second-newest durable snapshot."""
        return self._covered.get(log, 0)

    def retire(self, log: LogWriter, segments: Sequence[SegmentRef]) -> None:
        """Have segments unlinked, then forgotten. Those already on their way are left out."""
        under_way = self._retiring.setdefault(log, set())
        fresh = [ref for ref in segments if ref.path not in under_way]
        if not fresh:
            return
        under_way.update(ref.path for ref in fresh)

        def over() -> None:
            under_way.difference_update(ref.path for ref in fresh)

        def gone(_: int) -> None:
            over()
            if self._watermarks.number_of(log) >= 0:  # not deleted meanwhile
                log.forget(fresh)

        names = [name for ref in fresh for name in (ref.name.segment_file, ref.name.index_file)]
        self._jobs.unlink(log.path, names, gone, over)

    # -- the end ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Close what is open for reading. The logs are closed by the node."""
        self._cache.close()
