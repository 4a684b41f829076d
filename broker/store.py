"""The store of a broker process: logs in the data directory, rows on the board, jobs for the keeper.

Idea: as `storage.log_store`, with slow work given to the keeper. Opening a log takes the doubts that a dead keeper
left into account, and each open log has a row on the board.

Contract: as `engine.ports.Store`. Must not know: messages, peers, groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..storage import layout, poison
from ..storage.log_store import LogSettings, LogStore
from ..storage.segment import read_page, reference

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..storage.files import Files
    from ..storage.log import LogOptions, LogWriter
    from ..storage.promises import Promises
    from ..storage.segment_reader import SegmentCache
    from .keeper.jobs import KeeperJobs
    from .keeper.unresolved_syncs import UnresolvedSyncs
    from .watermarks import Watermarks


class DirectoryStore(LogStore):
    """The logs of one data directory, which the caller has locked."""

    def __init__(
        self,
        data: str,
        files: Files,
        *,
        promises: Promises,
        cache: SegmentCache,
        watermarks: Watermarks,
        jobs: KeeperJobs,
        doubts: UnresolvedSyncs,
        max_batch_bytes: int,
        check_log: Callable[[int], None],
        cut: bool,
    ) -> None:
        """A store whose logs have rows on the board.

        Args:
            check_log: raises unless there may be another log, beside so many that have no files open for writing.
            cut: whether a producer may still be writing into a log that an earlier node lent to it.
        """
        super().__init__(data, files, promises=promises, cache=cache, jobs=jobs, max_batch_bytes=max_batch_bytes)
        self._watermarks = watermarks
        self._unresolved = doubts
        self._check_log = check_log
        self._cut = cut

    def create(self, topic: bytes, partition: int, settings: LogSettings) -> LogWriter:
        self._check_log(self._watermarks.unopened)
        return super().create(topic, partition, settings)

    def _open(self, path: str, options: LogOptions, *, suspect: bool = False) -> LogWriter:
        log_id = stored_log_id(self.files, path) if self._unresolved else b""
        doubt = self._unresolved.about(log_id)
        if doubt is not None and doubt.poisoned:
            poison.write(self.files, path, "a sync failed before the broker ended", durable=doubt.durable)
        log = super()._open(path, options, suspect=suspect or doubt is not None)
        if self._cut and options.commit == "written":
            self._begin_anew(log)
        self._unresolved.settled(log_id)
        return log

    def _begin_anew(self, log: LogWriter) -> None:
        """Make void what a producer may yet write behind the end. Raises StorageFull, Poisoned."""
        try:
            log.cut_here()
        except BaseException:
            log.close(clean=False)
            raise

    def _hold(self, log: LogWriter) -> LogWriter:
        try:
            self._watermarks.hold(log, lazy=log.options.commit == "written")
        except BaseException:
            log.close(clean=False)
            raise
        return log

    def _let_go(self, log: LogWriter) -> None:
        self._watermarks.let_go(log)

    def row(self, log: LogWriter) -> int:
        """The log's row on the board."""
        return self._watermarks.number_of(log)

    def hurry(self, log: LogWriter) -> None:
        """See Store: the keeper does it within its `lazy_s`."""

    def _sync(self, log: LogWriter) -> None:
        self._watermarks.sync_now(log)


def stored_log_id(files: Files, path: str) -> bytes:
    """The id of a log that is not open yet; empty when its newest segment does not say."""
    names, _ = layout.live_segments(files.listdir(path))
    if not names:
        return b""
    with files.open(reference(path, names[-1]).path) as file:
        header = read_page(file).header
    return b"" if header is None else header.log_id
