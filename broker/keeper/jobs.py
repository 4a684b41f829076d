"""Jobs that the broker gives to the keeper, and their callbacks.

Idea: unlinking retired segments, syncing snapshots and removing deleted topics may take long, and no client waits
for them. Each gets a number and a callback; what a keeper did not finish goes to the next one.

Contract: callbacks are called from the broker's loop, once, and only after success; a failed job is
dropped (its caller asks again). Must not know: what the files are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...storage import jobs
from ...storage.errors import StorageError
from ..diagnostics import say
from . import messages

if TYPE_CHECKING:
    from ...storage.files import Files
    from .link import KeeperLink

Numbered = messages.Unlink | messages.FinishSnapshot


class KeeperJobs:
    """All that is asked and not answered."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._link: KeeperLink | None = None
        self._last = 0
        self._open: dict[int, tuple[Numbered, Callable[[int], None], Callable[[], None]]] = {}
        self._trees: list[str] = []

    def unlink(
        self, directory: str, names: Sequence[str], done: Callable[[int], None], failed: Callable[[], None]
    ) -> None:
        """Remove files; `done(0)` when their names are durably gone, `failed()` when that could not be done."""
        self._ask(messages.Unlink(self._number(), directory, list(names)), done, failed)

    def finish_snapshot(
        self, directory: str, seq: int, log_id: bytes, runs: Sequence[int], done: Callable[[int], None]
    ) -> None:
        """Sync runs, sync and name a prepared snapshot; `done(seq)` gets what the second-newest one covers."""
        job = messages.FinishSnapshot(self._number(), directory, seq, log_id, list(runs))
        self._ask(job, done, lambda: None)

    def remove_tree(self, path: str) -> None:
        """Remove a directory in the trash."""
        self._trees = [*self._there(), path]
        self._send([messages.RemoveTree(path)])

    def prepare_spare(self, row: int, directory: str, size_bytes: int) -> None:
        """Ask the keeper for a spare; without a keeper, do nothing."""
        self._send([messages.PrepareSpare(row, directory, size_bytes)])

    def answered(self, report: messages.Report) -> None:
        """The keeper did, or refused, a job."""
        if isinstance(report, messages.Unlinked):
            self._done(report.job, 0)
        elif isinstance(report, messages.SnapshotSaved):
            self._done(report.job, report.covered)
        elif isinstance(report, messages.Refused):
            found = self._open.pop(report.job, None)
            if found is not None:
                found[2]()

    def keeper_started(self, link: KeeperLink) -> None:
        """A keeper is there: give it all that is open."""
        self._link = link
        self._trees = self._there()
        self._send([*(messages.RemoveTree(path) for path in self._trees), *(job for job, _, _ in self._open.values())])

    def keeper_lost(self) -> None:
        """Keep unfinished jobs for the next keeper."""
        self._link = None

    def do_the_rest(self) -> None:
        """The broker ends: do here what is open, and report what fails."""
        for number, (job, _, _) in list(self._open.items()):
            try:
                result = self._do(job)
            except (OSError, StorageError) as error:
                say(f"{type(job).__name__} failed: {error}")
                del self._open[number]
            else:
                self._done(number, result)

    def _there(self) -> list[str]:
        """Directories in the trash that no keeper has removed yet; a keeper does not say which it has."""
        return [path for path in self._trees if self._files.exists(path)]

    def _do(self, job: Numbered) -> int:
        if isinstance(job, messages.Unlink):
            jobs.unlink(self._files, job.directory, job.names)
            return 0
        return jobs.finish_snapshot(self._files, job.directory, job.seq, job.log_id, job.runs)

    def _number(self) -> int:
        self._last += 1
        return self._last

    def _ask(self, job: Numbered, done: Callable[[int], None], failed: Callable[[], None]) -> None:
        self._open[job.job] = job, done, failed
        self._send([job])

    def _done(self, number: int, result: int) -> None:
        found = self._open.pop(number, None)
        if found is not None:
            found[1](result)

    def _send(self, commands: Sequence[messages.LinkMessage]) -> None:
        if self._link is not None:
            self._link.send(commands)
