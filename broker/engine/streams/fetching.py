"""Fetching: reads records by request, at once or when some come.

Idea: a fetch that finds records is answered at once; one at the end waits in its partition until the end moves or its
time is up, and is then answered with the records there, possibly none.

Contract: only committed batches leave. Memory: one small entry per waiting fetch, up to a limit; nothing is read
ahead.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from ....storage.projection import project
from ....transport.messages import Fetch, Fetched
from ..logs.partition import Partition
from ..logs.topics import Topics
from ..ports import COLD, Handlers, NodeConfig, Now, Payload, Peer, Port
from ..turns.awaiting import AwaitingRequests
from .reading import Read, Reads, answer_bytes

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ....storage.errors import Error
    from ..turns.alarms import Alarms
    from ..turns.portions import Portions


class WaitingFetch:
    """One fetch that was not answered yet. Stands among the partition's readers under its own number."""

    __slots__ = ("cold", "deadline_s", "message", "number", "partition", "peer", "read")

    def __init__(self, peer: Peer, message: Fetch, read: Read, deadline_s: float, number: int) -> None:
        self.peer = peer
        self.message = message
        self.partition = read.partition
        self.read = read
        self.deadline_s = deadline_s
        self.number = number
        self.cold = False


class Fetching:
    """Handler of Fetch, and the fetches that wait."""

    def __init__(
        self,
        topics: Topics,
        port: Port,
        config: NodeConfig,
        reads: Reads,
        wakes: Portions,
        deadlines: Alarms[float],
    ) -> None:
        """`wakes` answers those that wait, in portions."""
        self.handlers: Handlers = {Fetch: self.fetch}
        self._topics = topics
        self._port = port
        self._config = config
        self._reads = reads
        self._numbers = count(1)
        self.awaiting = AwaitingRequests[WaitingFetch](
            "fetches", port, wakes, deadlines, answer=self._answer, overdue=self._give_up, looks=1
        )
        self.end_moved = self.awaiting.more
        """Called with a partition that has new records: answers fetches that wait for them."""

    def fetch(self, peer: Peer, message: Fetch, payload: Payload, now: Now) -> None:
        """Answer, or wait. Raises Diverged, OutOfBounds, LimitReached."""
        partition = self._topics.partition(message.topic, message.partition)
        read = self._reads.begin(peer, partition, message.offset, message.term)
        wait_s = min(message.wait_ms / 1000, self._config.wait_max_s)
        waiting = WaitingFetch(peer, message, read, now.monotonic_s + wait_s, next(self._numbers))
        if self.awaiting.attempt(waiting):
            return
        if message.wait_ms or waiting.cold:
            self.awaiting.parked.check(peer)
            self.awaiting.add(waiting)
        else:
            self._empty(waiting)

    def warmed(self, waiting: Hashable) -> None:
        """Pages are in memory now."""
        if isinstance(waiting, WaitingFetch):
            self.awaiting.warmed(waiting)

    def _give_up(self, waiting: WaitingFetch) -> None:
        """Answer one whose time is up; one that waits for pages when they are there, since the data exists."""
        if not waiting.cold:
            self.awaiting.forget(waiting)
            self._empty(waiting)

    def disconnect(self, peer: Peer) -> None:
        """Drop what a peer waits for."""
        self.awaiting.disconnect(peer)

    def topic_deleted(self, partition: Partition, error: Error) -> None:
        """Fail the fetches that wait for records of a deleted partition."""
        self.awaiting.close(partition, error)

    @property
    def waiting(self) -> int:
        """The number of waiting fetches."""
        return len(self.awaiting.parked.standing)

    def _answer(self, waiting: WaitingFetch) -> bool:
        message, partition = waiting.message, waiting.partition
        chunk = self._reads.next(waiting.read, answer_bytes(message.max_bytes, self._config), waiting)
        if chunk is COLD:
            waiting.cold = True
        if chunk is COLD or chunk is None:
            return False
        answer = Fetched(message.request, chunk.next_offset, partition.first, partition.end)
        payload = project(chunk.batches, message.columns) if message.columns else chunk.buffer
        self._port.reply(waiting.peer, answer, payload)
        self._reads.remember(waiting.peer, waiting.read, chunk)
        return True

    def _empty(self, waiting: WaitingFetch) -> None:
        message, partition = waiting.message, waiting.partition
        self._port.reply(waiting.peer, Fetched(message.request, message.offset, partition.first, partition.end))
