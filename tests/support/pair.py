"""A broker's watermarks and a keeper in one process, over fakes, moved by the test one step at a time.

    pair = Pair(files)
    log = pair.open("/log")
    pair.append(log, 3); pair.publish(log)      the broker wrote and rang
    steps = pair.keeper.begin(0.0)[0]           the keeper says what it will sync
    pair.keeper.finish(pair.keeper.sync(steps)) and does
    pair.settle()                               the broker takes it over

Contract: real code on both sides; only the link is a list, delivered when the test says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from penstock.broker.config import KeeperOptions
from penstock.broker.keeper import messages
from penstock.broker.keeper.core import Keeper
from penstock.broker.keeper.jobs import KeeperJobs
from penstock.broker.watermarks import Watermarks
from penstock.storage.batch import encode
from penstock.storage.board import Board
from penstock.storage.log import LogOptions, LogWriter
from penstock.storage.order import Sole
from penstock.storage.promises import Promises
from support.writeback import WritebackFiles


class ListLink:
    """A link whose commands wait in a list."""

    def __init__(self) -> None:
        self.started = True
        self.gone = False
        self.pid = 1
        self.commands: list[messages.LinkMessage] = []
        self.rings = 0

    def send(self, commands: Iterable[messages.LinkMessage]) -> None:
        self.commands += commands

    def ring(self) -> None:
        self.rings += 1


class Pair:
    """Both sides over one board."""

    def __init__(
        self, files: WritebackFiles, *, board: Board | None = None, options: KeeperOptions | None = None
    ) -> None:
        self.files = files
        self.board = board or Board.private(8)
        self.options = options or KeeperOptions(mark_s=0.0)
        self.warnings: list[str] = []
        self.jobs = KeeperJobs(files)
        self.sync_s = self._clock_s = 0.0  # what a sync of the broker's own takes
        self.watermarks = Watermarks(self.board, self.jobs, clock=self._clock)
        files.mkdir("/")
        self.promises = Promises("/promises", files)
        self.start_keeper()

    def _clock(self) -> float:
        self._clock_s += self.sync_s
        return self._clock_s

    def start_keeper(self) -> None:
        """A fresh keeper, known to the broker."""
        self.link: Any = ListLink()
        self.keeper = Keeper(
            self.board, self.files, sync_all=self.files.sync_all, device=0, options=self.options,
            warn=self.warnings.append,
        )  # fmt: skip
        self.jobs.keeper_started(self.link)
        self.watermarks.keeper_started(self.link)
        self.deliver()

    def kill_keeper(self) -> Keeper:
        """The keeper is gone, and the broker noticed. Returns it: a test may wake it late."""
        self.link.gone = True
        self.jobs.keeper_lost()
        self.watermarks.keeper_lost()
        return self.keeper

    def deliver(self) -> None:
        """Let the keeper have what the broker sent."""
        for command in self.link.commands:
            if isinstance(command, messages.Register):
                self.keeper.register(command)
            elif isinstance(command, messages.Forget):
                self.keeper.forget(command.row)
                self.watermarks.forgotten(command.row)
        self.link.commands.clear()

    def open(self, path: str, *, commit: str = "durable", suspect: bool = False, **options: int) -> LogWriter:
        """A log on the board, made when it is not there."""
        log = LogWriter.create_or_open(
            path, files=self.files, log_id=path.encode().ljust(16, b"."), order=Sole(self.promises), suspect=suspect,
            options=LogOptions(commit=commit, **options),
        )  # fmt: skip
        self.watermarks.hold(log, lazy=commit == "written")
        return log

    def append(self, log: LogWriter, count: int, size: int = 20) -> list[int]:
        """That many batches of one record each. Returns their seqs."""
        batches = [encode([b"%d" % number + bytes(size)]) for number in range(count)]
        return [appended.seq for appended in log.append(batches, 1_000_000)]

    def publish(self, *logs: LogWriter, idle: bool = False, now_s: float = 0.0) -> None:
        """After an append: the broker publishes and rings, the keeper gets the commands."""
        self.watermarks.flushed(logs, idle=idle, now_s=now_s)
        self.watermarks.after_answers(math.inf)
        self.deliver()

    def settle(self, now_s: float = 0.0) -> bool:
        """The bell rang in the broker."""
        return self.watermarks.settle(now_s)

    def round(self, now_s: float = 0.0) -> tuple[bool, float | None]:
        """One round of the keeper, and the broker takes it over."""
        result = self.keeper.round(now_s)
        self.keeper.write_marks(now_s)
        self.settle(now_s)
        return result
