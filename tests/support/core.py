"""A whole node in one process over a disk that may fail: engine, store, watermarks and keeper, without sockets.

    core = Core(WritebackFiles())
    topic = core.create_topic("t")
    answer = core.ask(lambda request: m.Produce(request, topic, 0), encode([b"x"]))

Contract: the real parts, wired as `broker_process` does; only sockets and processes are missing. `turn` is one
turn of the broker's loop and one round of the keeper, unless `hold` keeps the keeper from its work.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from penstock.broker.engine import Node, NodeConfig, Now
from penstock.broker.keeper import messages
from penstock.broker.keeper.core import Keeper
from penstock.broker.keeper.jobs import KeeperJobs
from penstock.broker.keeper.unresolved_syncs import UnresolvedSyncs
from penstock.broker.lenders import Lenders
from penstock.broker.store import DirectoryStore
from penstock.broker.watermarks import Watermarks
from penstock.storage.board import Board
from penstock.storage.promises import Promises
from penstock.storage.segment_reader import SegmentCache
from penstock.transport import messages as m
from support.engine import MemoryPort
from support.lending import Bytes
from support.pair import ListLink
from support.writeback import WritebackFiles

DATA = "/data"


class Core:
    """One start of the node, up to `close` or until it is abandoned like a killed process."""

    def __init__(
        self,
        files: WritebackFiles,
        *,
        keeper: bool = True,
        config: NodeConfig | None = None,
        cut: bool = False,
        table: dict[int, Bytes] | None = None,
    ) -> None:
        """`table`: of locks on bytes, of all starts; without it nothing is lent."""
        self.files = files
        self.hold = False
        self.idle = False  # whether turns are those of an idle broker, which syncs inline
        self.idle_hands = False  # the keeper syncs, and does no jobs
        self.now_s = 1000.0
        files.mkdir(f"{DATA}/topics")
        self.port = MemoryPort()
        self.board = Board.private(64)
        self.jobs = KeeperJobs(files)
        self.watermarks = Watermarks(self.board, self.jobs, clock=lambda: self.now_s)
        self.warnings: list[str] = []
        doubts = UnresolvedSyncs(files, DATA)
        self.store = DirectoryStore(
            DATA, files, promises=Promises(f"{DATA}/promises", files), cache=SegmentCache(files), jobs=self.jobs,
            watermarks=self.watermarks, doubts=doubts, max_batch_bytes=1 << 20, check_log=lambda unopened: None,
            cut=cut,
        )  # fmt: skip
        lenders = None
        if table is not None:
            self.board.incarnation = files.incarnation = files.incarnation + 1
            lenders = Lenders(self.board, self.watermarks, Bytes(table), (0, 0), missing="")
        self.node = Node(
            self.store, self.port, randomness=random.Random(7).randbytes, config=config or NodeConfig(), now=self.now,
            lenders=lenders,
        )  # fmt: skip
        doubts.save()
        self._request = 0
        if keeper:
            self.start_keeper()

    @property
    def now(self) -> Now:
        return Now(1_700_000_000_000_000 + int(self.now_s * 1e6), self.now_s)

    def start_keeper(self) -> None:
        self.link: Any = ListLink()
        self.keeper = Keeper(self.board, self.files, sync_all=self.files.sync_all, device=0, warn=self.warnings.append)
        self.jobs.keeper_started(self.link)
        self.watermarks.keeper_started(self.link)

    def turn(self) -> None:
        """Append, publish, let the keeper work, answer."""
        dirty = self.node.flush(self.now, hurry=self.idle)
        if self.watermarks.flushed(dirty, idle=self.idle, now_s=self.now_s):
            self.node.answer_ahead()
        self.node.advance(self.now)
        if not self.hold:
            self._deliver()
            self.keeper.round(self.now_s)
            self.keeper.write_marks(self.now_s)
            self.watermarks.settle(self.now_s)
            self.node.advance(self.now)
        self.node.tick(self.now)
        self.watermarks.after_answers(math.inf)

    def _deliver(self) -> None:
        commands, self.link.commands = self.link.commands, []
        for command in commands:
            if isinstance(command, messages.Register):
                self.keeper.register(command)
            elif isinstance(command, messages.Forget):
                self.keeper.forget(command.row)
                self.watermarks.forgotten(command.row)
        if not self.idle_hands:
            self.jobs.do_the_rest()

    def send(self, make: Callable[[int], Any], payload: bytes = b"", *, peer: str = "peer") -> int:
        """One request, unanswered so far. Returns its number."""
        self._request += 1
        self.node.receive(peer, make(self._request), payload, self.now)
        return self._request

    def answer(self, request: int) -> Any:
        """The answer to a request, or None."""
        found = [message for _, message, _ in self.port.sent if getattr(message, "request", 0) == request]
        return found[-1] if found else None

    def ask(self, make: Callable[[int], Any], payload: bytes = b"", *, peer: str = "peer") -> Any:
        """The answer after a few turns, or None."""
        request = self.send(make, payload, peer=peer)
        for _ in range(4):
            self.turn()
        return self.answer(request)

    def create_topic(self, name: str, **settings: Any) -> bytes:
        answer = self.ask(lambda request: m.CreateTopic(request, name, 1, settings))
        return answer.topics[0].topic

    def topic(self, name: str) -> m.Topic:
        return self.ask(lambda request: m.ListTopics(request, [name])).topics[0]

    def close(self) -> None:
        """In good order."""
        self.keeper.finish_all()
        self.watermarks.settle(self.now_s)
        self.watermarks.keeper_lost()
        self.watermarks.sync_all()
        self.node.close(self.now)
        self.jobs.do_the_rest()
