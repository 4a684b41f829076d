"""The keeper as a process: waits for commands and the doorbell, runs rounds, does jobs.

Idea: one thread over two descriptors. The doorbell (an eventfd) only says that words moved; commands come
over the link. When the link ends, the broker has ended: what was written is still made durable, marks
included, and then the keeper ends too. A stop signal to the whole group (Ctrl-C) is left to the supervisor.

Contract: rounds come before jobs, and one step of a job is done between two rounds, so that unlinking a large
file never delays an acknowledgement by more than itself. Scrubbing comes last, one piece between two rounds.
Must not know: topics, messages of clients, ZeroMQ.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator

from ...storage import jobs
from ...storage.board import Board
from ...storage.errors import StorageError
from ...storage.files import Files
from ..config import KeeperOptions, ServeConfig
from ..diagnostics import say
from ..packets import PacketSocket, PeerGone
from ..poller import milliseconds
from ..system import die_with_parent, set_file_limit, syncfs
from . import messages
from .core import Keeper
from .messages import LinkMessage
from .scrubbing import Scrubbing

SLOW_S = 1.0
"""A round that takes longer is told as a warning, where it was for requests that have a name."""


class KeeperProcess:
    """Everything the process has: the link, both bells, the core and the jobs to do."""

    def __init__(self, link: PacketSocket, doorbell: int, bell_back: int, options: KeeperOptions) -> None:
        self._link = link
        self._doorbell = doorbell
        self._bell_back = bell_back
        self._options = options
        self._files = Files()
        self._keeper: Keeper | None = None
        self._board: Board | None = None
        self._scrubbing: Scrubbing | None = None
        self._jobs: deque[LinkMessage] = deque()
        self._steps: Iterator[None] | None = None  # of the first of them, once it is begun
        self._lock: list[int] = []
        self._stopping = False
        self._named: list[str] = []  # requests that wait for the next round
        self._handlers: dict[type[LinkMessage], Callable] = {
            messages.Attach: self._attach,
            messages.Register: self._register,
            messages.Forget: self._forget,
            messages.Stop: self._stop,
            messages.Named: self._name,
            messages.PrepareSpare: self._jobs.append,
            messages.Unlink: self._jobs.append,
            messages.RemoveTree: self._jobs.append,
            messages.FinishSnapshot: self._jobs.append,
        }

    def run(self) -> None:
        """Until the broker says stop, or is gone."""
        poll = select.poll()
        poll.register(self._link.fd, select.POLLIN)
        poll.register(self._doorbell, select.POLLIN)
        wait: float | None = None
        while not self._stopping:
            poll.register(self._link.fd, select.POLLIN | (select.POLLOUT if self._link.unsent else 0))
            ready = poll.poll(0 if self._jobs else milliseconds(None if wait is None else max(wait, 0.001)))
            wait = self._turn({fd for fd, _ in ready})
        if self._keeper is not None:
            self._keeper.finish_all()
            os.eventfd_write(self._bell_back, 1)

    def _turn(self, ready: set[int]) -> float | None:
        if self._doorbell in ready:
            os.eventfd_read(self._doorbell)
        if self._link.fd in ready:
            self._link.flush()
            self._drain_link()
        if self._keeper is None or self._board is None or self._stopping:
            return None
        now_s = time.monotonic()
        moved, wait = self._keeper.round(now_s)
        if moved:
            os.eventfd_write(self._bell_back, 1)
            took_s = time.monotonic() - now_s
            self._board.note_round(int(took_s * 1e6))
            self._tell_named(took_s)
        marks = self._keeper.write_marks(now_s)
        if marks is not None:
            wait = marks if wait is None else min(wait, marks)
        if self._jobs:
            if self._do(self._jobs[0]):
                self._jobs.popleft()
        elif self._scrubbing is not None:
            wait = self._scrub(self._scrubbing, now_s, wait)
        return wait

    def _scrub(self, scrubbing: Scrubbing, now_s: float, wait: float | None) -> float:
        """Read a piece where one is due. Returns in how many seconds there is more to do."""
        if not scrubbing.wait(now_s) and (found := scrubbing.step(now_s)) is not None:
            bad = found.bad
            said = f"{bad.file} does not verify at {bad.position}: {bad.reason}"
            self._report(messages.Rotten(found.path, said, bad.next_offset))
        due = scrubbing.wait(now_s)
        return due if wait is None else min(wait, due)

    def _drain_link(self) -> None:
        try:
            while (received := self._link.receive()) is not None:
                packet, self._lock[len(self._lock) :] = received  # held to the end
                for command in messages.decode_commands(packet):
                    self._handlers[type(command)](command)
        except PeerGone:
            self._stopping = True

    def _report(self, message: LinkMessage) -> None:
        self._link.send(messages.packets([message]))

    # -- commands ---------------------------------------------------------------------------------

    def _attach(self, command: messages.Attach) -> None:
        self._board = board = Board.attach(command.board, write=True)
        # Open for the whole life: syncfs reports to a descriptor what failed since it was opened.
        directory = os.open(command.data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._keeper = Keeper(
            board, self._files, sync_all=lambda: syncfs(directory), device=os.fstat(directory).st_dev,
            options=self._options, warn=_warn,
        )  # fmt: skip
        if self._options.scrub_s:
            self._scrubbing = Scrubbing(self._files, command.data, self._options, time.monotonic())
        say(f"watching {command.data}", logging.INFO)
        self._report(messages.Started(os.getpid()))

    def _register(self, command: messages.Register) -> None:
        assert self._keeper is not None, "Attach comes first"
        try:
            self._keeper.register(command)
        except (OSError, StorageError) as error:
            self._report(messages.Refused(command.row, 0, str(error)))

    def _forget(self, command: messages.Forget) -> None:
        if self._keeper is not None:
            self._keeper.forget(command.row)
        self._report(messages.Forgotten(command.row))

    def _stop(self, command: messages.Stop) -> None:
        self._stopping = True

    def _name(self, command: messages.Named) -> None:
        self._named = (self._named + command.ids)[-messages.NAMED_MOST :]

    def _tell_named(self, took_s: float) -> None:
        """Say which requests a round was for, as a warning when it was slow: in one line, as they waited together."""
        named, self._named = self._named, []
        if named:
            level = logging.WARNING if took_s >= SLOW_S else logging.DEBUG
            say(f"synced in {took_s:.3g} s, for request {', '.join(named)}", level)

    # -- jobs ----------------------------------------------------------------------------------

    def _do(self, job: LinkMessage) -> bool:
        """A step of a job. Returns whether it was the last; a failure is reported, and the broker does without."""
        self._steps = self._steps or self._steps_of(job)
        try:
            for _ in self._steps:
                return False
        except (OSError, StorageError) as error:
            _warn(f"{type(job).__name__} failed: {error}")
            number = job.job if isinstance(job, messages.Unlink | messages.FinishSnapshot) else 0
            self._report(messages.Refused(-1, number, str(error)))  # no row: those are of registrations
        self._steps = None
        return True

    def _steps_of(self, job: LinkMessage) -> Iterator[None]:
        if isinstance(job, messages.PrepareSpare):
            path = jobs.prepare_spare(self._files, job.directory, job.size_bytes)
            self._report(messages.Spared(job.row, path))
        elif isinstance(job, messages.Unlink):
            yield from jobs.unlinking(self._files, job.directory, job.names)
            self._report(messages.Unlinked(job.job))
        elif isinstance(job, messages.RemoveTree):
            yield from jobs.removing(self._files, job.path)
        elif isinstance(job, messages.FinishSnapshot):
            covered = jobs.finish_snapshot(self._files, job.directory, job.seq, job.log_id, job.runs)
            self._report(messages.SnapshotSaved(job.job, covered))


def _warn(sentence: str) -> None:
    say(sentence)


def main(config: ServeConfig, *, link: int, doorbell: int, bell_back: int, parent_pid: int) -> int:
    """Run the keeper of a supervisor's child process; returns its exit code."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if not die_with_parent(parent_pid, signal.SIGCONT):
        _warn("the supervisor is gone already")
    set_file_limit(config.limit_files)
    KeeperProcess(PacketSocket(link), doorbell, bell_back, config.keeper).run()
    return 0
