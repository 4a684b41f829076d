"""Fetching from many partitions: batches of each in one answer, at once or when there are enough of them.

Idea: as `ends.py`: a fetch that is not answered stands with its partitions. What moves one of them stirs it. What was
found so far is counted and let go, and it is read again for the answer: so a fetch that waits for much holds nothing.

An answer that leaves out what is there waits for no more.

Contract: only committed batches leave. A partition that cannot be read is said to be so, and the others are answered;
its error ends the wait. One batch at least is in an answer where there is any; batches that are not in memory are left
out while others are there. Memory: the places of waiting fetches, up to a limit.
"""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import TYPE_CHECKING, Literal

from ....storage.errors import Corrupt, Error, ReadFailed
from ....transport.messages import FetchedFrom, FetchedMany, FetchFrom, FetchMany
from ...errors import InvalidRequest, LimitReached
from ..ports import COLD, Cold
from ..turns.parked import Parked
from ..turns.replies import failure
from .reading import answer_bytes

if TYPE_CHECKING:
    from collections.abc import Buffer, Generator  # pyright: ignore[reportAttributeAccessIssue]

    from ....storage.reader import Chunk
    from ..logs.partition import Partition
    from ..logs.topics import Topics
    from ..ports import Handlers, NodeConfig, Now, Payload, Peer, Port, Work
    from ..turns.alarms import Alarms
    from ..turns.portions import Portions
    from .reading import Read, Reads

LOOKS = 16
"""Places that are looked at in one step; one that is read is a step."""

PLACES_MAX = 1 << 16
"""Partitions of the fetches of one connection that are under way, counted for each."""

COUNT_BYTES = 1 << 20
"""Read at once of what is only counted."""


class FetchedPlace:
    """One partition of a fetch: where it is to be read from, or why it cannot be."""

    __slots__ = ("error", "message", "partition", "read")

    def __init__(self, message: FetchFrom) -> None:
        self.message = message
        self.partition: Partition | None = None
        self.read: Read | None = None  # where counting goes on; None before it was found, and after an error
        self.error: Error | None = None


class ManyFetch:
    """One that waits, or is about to."""

    __slots__ = (
        "by_partition", "cold", "counted", "deadline_s", "is_over", "max_bytes", "message", "min_bytes", "number",
        "peer", "places", "stirred", "working",
    )  # fmt: skip

    def __init__(self, peer: Peer, message: FetchMany, max_bytes: int, deadline_s: float, number: int) -> None:
        self.peer = peer
        self.message = message
        self.places: list[FetchedPlace] = []
        self.by_partition: dict[Partition, FetchedPlace] = {}  # under which it stands
        self.max_bytes = max_bytes
        self.min_bytes = min(message.min_bytes, max_bytes)
        self.deadline_s = deadline_s
        self.number = number
        self.counted = 0  # bytes found and let go
        self.is_over = not message.wait_ms  # answer with what there is
        self.cold = False  # at its last look, what there is was being brought into memory
        self.stirred = True  # since it was looked at
        self.working = True  # it is being looked at


class FetchingMany:
    """Handler of FetchMany, and the fetches that wait."""

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
        self.handlers: Handlers = {FetchMany: self.fetch}
        self._topics = topics
        self._port = port
        self._config = config
        self._reads = reads
        self._wakes = wakes
        self._numbers = count(1)
        self._parked = Parked[ManyFetch]("fetches from many partitions", deadlines, self._overdue)
        self.standing: dict[Partition, dict[int, ManyFetch]] = {}
        """By partition and number, for others only to see whether there are any."""
        self._places: Counter[Peer] = Counter()

    @property
    def waiting(self) -> int:
        """The number of waiting fetches."""
        return len(self._parked.standing)

    def fetch(self, peer: Peer, message: FetchMany, payload: Payload, now: Now) -> Work:
        """Answer, or wait. Raises InvalidRequest, LimitReached."""
        if self._places[peer] + len(message.places) > PLACES_MAX:
            raise LimitReached(
                f"fetches of this connection are about {self._places[peer]} partitions, and {PLACES_MAX} is the limit: "
                "wait for answers first, or fetch from fewer"
            )
        wait_s = min(message.wait_ms / 1000, self._config.wait_max_s)
        size = answer_bytes(message.max_bytes, self._config)
        fetch = ManyFetch(peer, message, size, now.monotonic_s + wait_s, next(self._numbers))
        self._places[peer] += len(message.places)
        try:
            yield from self._stand(fetch)
            if not (yield from self._attempts(fetch)):
                self._parked.check(peer)
                self._parked.add(fetch)
        finally:
            if fetch not in self._parked:
                self._leave(fetch)

    def end_moved(self, partition: Partition) -> None:
        """Look at the fetches that read from a partition which has new records."""
        for fetch in self.standing.get(partition, {}).values():
            self._stir(fetch)

    def topic_deleted(self, partition: Partition, error: Error) -> None:
        """Tell the fetches that read from a partition which is about to go."""
        for fetch in self.standing.get(partition, {}).values():
            fetch.by_partition[partition].error = error
            self._stir(fetch)

    def warmed(self, fetch: ManyFetch) -> None:
        """Pages are in memory now."""
        self._stir(fetch)

    def disconnect(self, peer: Peer) -> None:
        """Drop what a peer waits for."""
        for fetch in self._parked.of(peer):
            self._parked.remove(fetch)
            self._leave(fetch)

    # -- standing ---------------------------------------------------------------------------------------

    def _stand(self, fetch: ManyFetch) -> Work:
        """With its partitions, so that what moves from now on is noticed. Raises InvalidRequest."""
        for looks, wanted in enumerate(fetch.message.places, 1):
            fetch.places.append(place := FetchedPlace(wanted))
            try:
                partition = self._topics.partition(wanted.topic, wanted.partition)
            except Error as error:
                place.error = error
            else:
                if partition in fetch.by_partition:
                    raise InvalidRequest(f"{partition!r} is to be fetched from twice: name each partition once")
                place.partition = partition
                fetch.by_partition[partition] = place
                self.standing.setdefault(partition, {})[fetch.number] = fetch
            if looks % LOOKS == 0:
                yield

    def _leave(self, fetch: ManyFetch) -> None:
        self._places[fetch.peer] -= len(fetch.message.places)
        if not self._places[fetch.peer]:
            del self._places[fetch.peer]
        for partition in fetch.by_partition:
            waiting = self.standing[partition]
            del waiting[fetch.number]
            if not waiting:
                del self.standing[partition]

    def _overdue(self, fetch: ManyFetch) -> None:
        """Answer one whose time is up; one that waits for pages when they are there, since the data exists."""
        fetch.is_over = True
        if not fetch.cold:
            self._stir(fetch)

    def _stir(self, fetch: ManyFetch) -> None:
        """Look at a fetch again, which is looked at once at a time."""
        fetch.stirred = True
        if not fetch.working and fetch in self._parked:
            fetch.working = True
            self._wakes.add(fetch.peer, self._again(fetch))

    def _again(self, fetch: ManyFetch) -> Work:
        if (yield from self._attempts(fetch)):
            self._parked.remove(fetch)
            self._leave(fetch)

    # -- answers ----------------------------------------------------------------------------------------

    def _attempts(self, fetch: ManyFetch) -> Generator[int | None, None, bool]:
        """Look at it until nothing has moved meanwhile. Whether it was answered."""
        while fetch.stirred:
            fetch.stirred = False
            if not fetch.counted or (yield from self._count(fetch)):
                if (yield from self._collect(fetch)):
                    return True
        fetch.working = False
        return False

    def _count(self, fetch: ManyFetch) -> Generator[int | None, None, bool]:
        """Whether there may be enough by now: counts what has come since, and lets it go."""
        for looks, place in enumerate(fetch.places, 1):
            if looks % LOOKS == 0:
                yield
            while not fetch.is_over and fetch.counted < fetch.min_bytes:
                chunk = self._next(fetch, place, COUNT_BYTES)
                if place.error is not None or chunk is COLD:
                    return True
                if chunk is None:
                    break
                fetch.counted += len(chunk.buffer)
                yield
        return fetch.is_over or fetch.counted >= fetch.min_bytes

    def _collect(self, fetch: ManyFetch) -> Generator[int | None, None, bool]:
        """Read from where it begins, and answer if that is enough. Whether it was answered."""
        found: list[FetchedFrom] = []
        buffers: list[Buffer] = []
        ends: list[tuple[Read, Chunk]] = []
        size, is_cold, is_full, is_more = 0, False, False, False
        for looks, place in enumerate(fetch.places, 1):
            if fetch.counted:
                place.read = None
            chunk = None
            if not is_full:
                chunk = self._next(fetch, place, max(min(fetch.max_bytes - size, place.message.max_bytes), 1))
            if chunk is COLD:
                is_cold, chunk = True, None
            if chunk is not None and size and size + len(chunk.buffer) > fetch.max_bytes:
                place.read, chunk, is_full = None, None, True  # a batch that is longer than what is left
            if chunk is not None:
                assert place.read is not None, "its cursor gave the chunk"
                size += len(chunk.buffer)
                buffers.append(chunk.buffer)
                ends.append((place.read, chunk))
                is_full = size >= fetch.max_bytes
                is_more = is_more or place.read.offset < place.read.partition.end
            found.append(_found(place, chunk))
            if chunk is not None or looks % LOOKS == 0:
                yield
        enough = is_full or is_more or size >= fetch.min_bytes or any(place.error for place in fetch.places)
        if not (size if is_cold else enough or fetch.is_over):
            fetch.counted, fetch.cold = size, is_cold
            return False
        for read, chunk in ends:
            self._reads.remember(fetch.peer, read, chunk)
        self._port.reply(fetch.peer, FetchedMany(fetch.message.request, found), b"".join(buffers))
        return True

    def _next(self, fetch: ManyFetch, place: FetchedPlace, max_bytes: int) -> Chunk | Literal[Cold.COLD] | None:
        """The next chunk of a place, behind which it goes on; None at the end, and for one with an error."""
        if place.error is not None or place.partition is None:
            return None
        message = place.message
        try:
            if place.read is None:
                place.read = self._reads.begin(fetch.peer, place.partition, message.offset, message.term)
            chunk = self._reads.next(place.read, max_bytes, fetch)
        except Error as error:
            if isinstance(error, Corrupt):
                place.partition.met(error)
            place.error = error
        except OSError as error:
            place.error = ReadFailed.of(place.partition, error)
        else:
            if chunk is not None and chunk is not COLD:
                place.read.offset = chunk.next_offset
            return chunk
        return None


def _found(place: FetchedPlace, chunk: Chunk | None) -> FetchedFrom:
    """What is said of one partition."""
    first, end = (0, 0) if place.partition is None else (place.partition.first, place.partition.end)
    if place.error is not None:
        said = failure(0, place.error)
        return FetchedFrom(0, place.message.offset, first, end, said.code, said.message, said.retry, said.offset)
    if chunk is None:
        return FetchedFrom(0, place.message.offset, first, end)
    return FetchedFrom(len(chunk.buffer), chunk.next_offset, first, end)
