"""Fetching: reading by request, at once or when something comes.

Idea: a fetch that finds records is answered where it stands; one at the end waits in its partition until the
end moves or its time is up, and is then answered with what is there, possibly nothing.

Contract: only committed batches leave. Memory: one small entry per waiting fetch, up to a limit; nothing is read ahead.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from ....storage.errors import Corrupt, Error
from ....storage.projection import project
from ....transport.messages import Fetch, Fetched
from ..logs.partition import Partition
from ..logs.topics import Topics
from ..ports import COLD, Handlers, NodeConfig, Now, Payload, Peer, Port, Work
from ..turns.parked import Parked
from ..turns.replies import failure

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ....storage.reader import Chunk, Cursor
    from ..turns.portions import Portions


BYTES_MAX = 4 << 20
"""Of one answer, but for one batch that is longer."""

CONTINUATIONS = 256
"""Places remembered where a peer's last fetch ended."""


class Continuation(NamedTuple):
    """Where a fetch ended: the next offset, the term of the batch before it, and a cursor that stands there."""

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

    def __init__(self, topics: Topics, port: Port, config: NodeConfig, wakes: Portions) -> None:
        """`wakes` answers those that wait, in portions."""
        self.handlers: Handlers = {Fetch: self.fetch}
        self._topics = topics
        self._port = port
        self._config = config
        self._wakes = wakes
        self._numbers = count(1)
        self._continuations: OrderedDict[tuple[Peer, Partition], Continuation] = OrderedDict()
        self._parked = Parked[WaitingFetch]("fetches")
        self._by_partition: dict[Partition, dict[Peer, dict[int, WaitingFetch]]] = {}
        self._telling: dict[tuple[Partition, Peer], bool] = {}  # and whether the end moved since

    def fetch(self, peer: Peer, message: Fetch, payload: Payload, now: Now) -> None:
        """Answer, or wait. Raises Diverged, OutOfBounds, LimitReached."""
        partition = self._topics.partition(message.topic, message.partition)
        cursor = self._continued(peer, partition, message)
        if cursor is None:
            partition.check_position(message.offset, message.term)
        wait_s = min(message.wait_ms / 1000, self._config.wait_max_s)
        waiting = WaitingFetch(peer, message, partition, now.monotonic_s + wait_s, next(self._numbers))
        waiting.cursor = cursor
        if not self._try(waiting) and not (message.wait_ms == 0 and not waiting.cold and self._empty(waiting)):
            self._parked.check(peer)
            self._parked.add(waiting)
            self._by_partition.setdefault(partition, {}).setdefault(peer, {})[waiting.number] = waiting

    def end_moved(self, partition: Partition) -> None:
        """There are new records: answer the fetches that wait for them, connections in turn."""
        for peer in self._by_partition.get(partition, ()):
            if (partition, peer) not in self._telling:
                self._wakes.add(peer, self._tell(partition, peer))
            self._telling[partition, peer] = True

    def _tell(self, partition: Partition, peer: Peer) -> Work:
        """Answer what one connection waits for in one partition, until the end stands still."""
        while self._telling[partition, peer]:
            self._telling[partition, peer] = False
            for waiting in list(self._by_partition.get(partition, {}).get(peer, {}).values()):
                if waiting in self._parked and not waiting.cold and self._try(waiting):
                    self._forget(waiting)
                yield
        del self._telling[partition, peer]

    def warmed(self, waiting: Hashable) -> None:
        """Pages are in memory now."""
        if isinstance(waiting, WaitingFetch) and waiting.cold:
            waiting.cold = False
            if waiting in self._parked and self._try(waiting):
                self._forget(waiting)

    def tick(self, now: Now) -> float | None:
        """Answer those whose time is up. Returns the next deadline."""
        for waiting in self._parked.due(now.monotonic_s):
            # One that waits for pages is answered when they are there: the data exists.
            if not waiting.cold:
                self._forget(waiting)
                self._empty(waiting)
        return self._parked.next_s

    def disconnect(self, peer: Peer) -> None:
        """Drop what a peer waits for."""
        for key in [key for key in self._continuations if key[0] == peer]:
            del self._continuations[key]
        for key in [key for key in self._telling if key[1] == peer]:
            del self._telling[key]
        for waiting in self._parked.of(peer):
            self._forget(waiting)

    def topic_deleted(self, partition: Partition, error: Error) -> None:
        """Fail the fetches that wait for records of a deleted partition."""
        for key in [key for key in self._continuations if key[1] is partition]:
            del self._continuations[key]
        for of_peer in list(self._by_partition.get(partition, {}).values()):
            for waiting in list(of_peer.values()):
                self._forget(waiting)
                self._port.reply(waiting.peer, failure(waiting.message.request, error))

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._parked)

    def _try(self, waiting: WaitingFetch) -> bool:
        try:
            return self._answer(waiting)
        except Error as error:
            return self._fail(waiting, error)
        except OSError as error:
            return self._fail(waiting, Corrupt(f"{waiting.partition!r} cannot be read: {error}"))

    def _fail(self, waiting: WaitingFetch, error: Error) -> bool:
        if isinstance(error, Corrupt):
            waiting.partition.damaged = True
        self._port.reply(waiting.peer, failure(waiting.message.request, error))
        return True

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

    def _empty(self, waiting: WaitingFetch) -> bool:
        message, partition = waiting.message, waiting.partition
        self._port.reply(waiting.peer, Fetched(message.request, message.offset, partition.first, partition.end))
        return True

    def _forget(self, waiting: WaitingFetch) -> None:
        self._parked.remove(waiting)
        of_partition = self._by_partition[waiting.partition]
        entries = of_partition[waiting.peer]
        del entries[waiting.number]
        if not entries:
            del of_partition[waiting.peer]
        if not of_partition:
            del self._by_partition[waiting.partition]
