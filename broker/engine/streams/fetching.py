"""Fetching: reads records by request, at once or when some come.

Idea: a fetch that finds records is answered at once; one at the end waits in its partition until the end moves or its
time is up, and is then answered with the records there, possibly none.

Contract: only committed batches leave. Memory: one small entry per waiting fetch, up to a limit; nothing is read
ahead.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from ....storage.projection import project
from ....transport.messages import Fetch, Fetched
from ..logs.partition import Partition
from ..logs.topics import Topics
from ..ports import COLD, Handlers, NodeConfig, Now, Payload, Peer, Port
from ..turns.awaiting import AwaitingRequests

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ....storage.errors import Error
    from ....storage.reader import Chunk, Cursor
    from ..turns.alarms import Alarms
    from ..turns.portions import Portions


BYTES_MAX = 4 << 20
"""Limit of one answer, except for a single longer batch."""

CONTINUATIONS = 256
"""Places remembered where a peer's last fetch ended."""


class Continuation(NamedTuple):
    """The end of a fetch: the next offset, the term of the batch before it, and a cursor there."""

    offset: int
    term: int
    cursor: Cursor


class WaitingFetch:
    """One fetch that was not answered yet. Stands among the partition's readers under its own number."""

    __slots__ = ("cold", "cursor", "deadline_s", "message", "number", "partition", "peer")

    def __init__(self, peer: Peer, message: Fetch, partition: Partition, deadline_s: float, number: int) -> None:
        self.peer = peer
        self.message = message
        self.partition = partition
        self.deadline_s = deadline_s
        self.number = number
        self.cursor: Cursor | None = None
        self.cold = False


class Fetching:
    """Handler of Fetch, and the fetches that wait."""

    def __init__(
        self, topics: Topics, port: Port, config: NodeConfig, wakes: Portions, deadlines: Alarms[float]
    ) -> None:
        """`wakes` answers those that wait, in portions."""
        self.handlers: Handlers = {Fetch: self.fetch}
        self._topics = topics
        self._port = port
        self._config = config
        self._numbers = count(1)
        self._continuations: OrderedDict[tuple[Peer, Partition], Continuation] = OrderedDict()
        self._awaiting = AwaitingRequests[WaitingFetch](
            "fetches", port, wakes, deadlines, answer=self._answer, overdue=self._give_up, looks=1
        )
        self.end_moved = self._awaiting.more
        """Called with a partition that has new records: answers fetches that wait for them."""

    def fetch(self, peer: Peer, message: Fetch, payload: Payload, now: Now) -> None:
        """Answer, or wait. Raises Diverged, OutOfBounds, LimitReached."""
        partition = self._topics.partition(message.topic, message.partition)
        cursor = self._continued(peer, partition, message)
        if cursor is None:
            partition.check_position(message.offset, message.term)
        wait_s = min(message.wait_ms / 1000, self._config.wait_max_s)
        waiting = WaitingFetch(peer, message, partition, now.monotonic_s + wait_s, next(self._numbers))
        waiting.cursor = cursor
        if self._awaiting.attempt(waiting):
            return
        if message.wait_ms or waiting.cold:
            self._awaiting.parked.check(peer)
            self._awaiting.add(waiting)
        else:
            self._empty(waiting)

    def warmed(self, waiting: Hashable) -> None:
        """Pages are in memory now."""
        if isinstance(waiting, WaitingFetch):
            self._awaiting.warmed(waiting)

    def _give_up(self, waiting: WaitingFetch) -> None:
        """Answer one whose time is up; one that waits for pages when they are there, since the data exists."""
        if not waiting.cold:
            self._awaiting.forget(waiting)
            self._empty(waiting)

    def disconnect(self, peer: Peer) -> None:
        """Drop what a peer waits for."""
        for key in [key for key in self._continuations if key[0] == peer]:
            del self._continuations[key]
        self._awaiting.disconnect(peer)

    def topic_deleted(self, partition: Partition, error: Error) -> None:
        """Fail the fetches that wait for records of a deleted partition."""
        for key in [key for key in self._continuations if key[1] is partition]:
            del self._continuations[key]
        self._awaiting.close(partition, error)

    @property
    def waiting(self) -> int:
        """The number of waiting fetches."""
        return len(self._awaiting.parked.standing)

    def _answer(self, waiting: WaitingFetch) -> bool:
        message, partition = waiting.message, waiting.partition
        while message.offset < partition.end:
            if waiting.cursor is None:
                waiting.cursor = partition.cursor(message.offset)
            size = min(message.max_bytes, self._config.max_frame_bytes, BYTES_MAX)
            chunk = self._port.read(waiting.cursor, size, partition.seq, waiting)
            if chunk is COLD:
                waiting.cold = True
                return False
            if chunk is None:
                return False
            if chunk.next_offset > message.offset:
                answer = Fetched(message.request, chunk.next_offset, partition.first, partition.end)
                payload = project(chunk.batches, message.columns) if message.columns else chunk.buffer
                self._port.reply(waiting.peer, answer, payload)
                self._remember(waiting, chunk)
                return True
        return False

    def _remember(self, waiting: WaitingFetch, chunk: Chunk) -> None:
        """Most fetches go on where the same peer's last one ended: its cursor saves finding that place again."""
        assert waiting.cursor is not None
        key = (waiting.peer, waiting.partition)
        self._continuations[key] = Continuation(chunk.next_offset, chunk.batches[-1].term, waiting.cursor)
        self._continuations.move_to_end(key)
        if len(self._continuations) > CONTINUATIONS:
            self._continuations.popitem(last=False)

    def _continued(self, peer: Peer, partition: Partition, message: Fetch) -> Cursor | None:
        known = self._continuations.pop((peer, partition), None)
        if known is None or known.offset != message.offset or message.term not in (-1, known.term):
            return None
        return known.cursor if message.offset >= partition.first else None

    def _empty(self, waiting: WaitingFetch) -> None:
        message, partition = waiting.message, waiting.partition
        self._port.reply(waiting.peer, Fetched(message.request, message.offset, partition.first, partition.end))
