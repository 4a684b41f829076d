"""Requests about dead letters: redrive, discard.

Idea: redriving and discarding are effects on what is in the table of dead letters. Large requests run in portions, each
in its own state batch, so that a million dead letters neither delay other requests nor make a large batch.

Contract: counts are of committed portions. A request that fails half-way is answered with a Failure and keeps its
finished portions; repeating it continues with the rest. Must not know how records are chosen for workers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from itertools import count
from typing import TYPE_CHECKING

from .....storage.errors import Error
from .....transport.queue_messages import Counted, DiscardDead, RedriveDead
from ....errors import InvalidRequest
from ...logs.topics import Topic, Topics
from ...ports import Handlers, Now, Payload, Peer, Port, Work
from ...tables import effects as fx
from ...tables.producers import Place
from ...turns.replies import failure
from ..topic_queues import check_serves, find, unknown

if TYPE_CHECKING:
    from ...logs.clock import LogTime
    from ...logs.partition import Partition
    from ...tables.queues.queue import Queue
    from ..wakeups import Watching

PORTION = 2000
"""Records of one effect: a millisecond or two."""

LOOKS = 32
"""Dead letters looked at in one step."""

Make = Callable[[list[int]], fx.TasksRedriven | fx.TasksDiscarded]
"""The effect on a portion of offsets."""


class DeadLetterRequests:
    """Handlers of RedriveDead and DiscardDead."""

    def __init__(self, topics: Topics, port: Port, time: LogTime, watching: Watching) -> None:
        self.handlers: Handlers = {RedriveDead: self.redrive, DiscardDead: self.discard}
        self._topics = topics
        self._port = port
        self._time = time
        self._watching = watching

    def redrive(self, peer: Peer, message: RedriveDead, payload: Payload, now: Now) -> Work:
        """Move dead letters back to retrying. Raises UnknownGroup, InvalidRequest, Poisoned, Unavailable."""
        if message.per_s and not 1e-6 <= message.per_s <= 1e9:
            raise InvalidRequest(f"per_s={message.per_s} is no rate: 0 for all at once, or 1e-6 to 1e9 a second")
        start_us, numbers = self._time.read(now), count()
        step_us = 1e6 / message.per_s if message.per_s else 0.0

        def make(offsets: list[int]) -> fx.TasksRedriven:
            times = [start_us + round(next(numbers) * step_us) for _ in offsets]
            return fx.TasksRedriven(message.group, _timed(offsets, times))

        yield from self._work_through(peer, message, make)

    def discard(self, peer: Peer, message: DiscardDead, payload: Payload, now: Now) -> Work:
        """Discard dead letters. Raises UnknownGroup, Poisoned, Unavailable."""

        def make(offsets: list[int]) -> fx.TasksDiscarded:
            return fx.TasksDiscarded(message.group, ranges(offsets))

        yield from self._work_through(peer, message, make)

    def _work_through(self, peer: Peer, message: RedriveDead | DiscardDead, make: Make) -> Work:
        topic = self._topics.get(message.topic)
        chosen = yield from _chosen(topic, message)
        for partition, _ in chosen:
            check_serves(partition)

        def finish(counted: int) -> None:
            self._port.reply(peer, Counted(message.request, counted))

        def refuse(error: Error) -> None:
            self._port.reply(peer, failure(message.request, error))

        RedrivePortions(message.group, chosen, make, self._watching, finish, refuse).go_on()


class RedrivePortions:
    """One request over dead letters, portion by portion: the next one follows the commit of the one before."""

    def __init__(
        self,
        group: str,
        chosen: list[tuple[Partition, list[int]]],
        make: Make,
        watching: Watching,
        finish: Callable[[int], None],
        refuse: Callable[[Error], None],
    ) -> None:
        self._group = group
        self._portions = _cut(chosen)
        self._make = make
        self._watching = watching
        self._finish = finish
        self._refuse = refuse
        self._count = 0

    def go_on(self) -> None:
        """Propose the next portion, as far as it is still dead; answer after the last one."""
        for partition, offsets in self._portions:
            queue = find(partition, self._group)
            still = [offset for offset in offsets if offset in queue.dead_letters] if queue is not None else []
            if still:
                self._count += len(still)
                partition.propose(self._make(still), self)
                self._watching.watch(partition, self._group)
                return
        self._finish(self._count)

    def committed(self, place: Place) -> None:
        self.go_on()

    def failed(self, error: Error) -> None:
        self._refuse(error)


def ranges(offsets: list[int]) -> list[tuple[int, int]]:
    """Ascending offsets as (first, how many)."""
    return [(first, many) for first, many, _ in _timed(offsets, [0] * len(offsets))]


def _timed(offsets: list[int], times: list[int]) -> list[tuple[int, int, int]]:
    """Ascending offsets as (first, how many, time), those of one time and without a gap together."""
    runs: list[list[int]] = []
    for offset, time_us in zip(offsets, times, strict=True):
        if runs and runs[-1][0] + runs[-1][1] == offset and runs[-1][2] == time_us:
            runs[-1][1] += 1
        else:
            runs.append([offset, 1, time_us])
    return [(first, many, time_us) for first, many, time_us in runs]


def _chosen(
    topic: Topic, message: RedriveDead | DiscardDead
) -> Generator[int | None, None, list[tuple[Partition, list[int]]]]:
    """The dead letters of a request, by partition. Raises UnknownGroup, UnknownPartition, Unavailable."""
    named: dict[int, set[int]] = {}
    for looks, (number, offset) in enumerate(message.offsets, 1):
        named.setdefault(number, set()).add(offset)
        if looks % LOOKS == 0:
            yield
    partitions = [topic.partition(number) for number in sorted(named)] if named else topic.readable
    found: list[tuple[Partition, list[int]]] = []
    known = False
    for partition in partitions:
        queue = find(partition, message.group)
        if queue is not None:
            known = True
            wanted = list[int]()
            for looks, at in enumerate(list(named.get(partition.number, queue.dead_letters)), 1):
                if _matches(queue, at, message.reason):
                    wanted.append(at)
                if looks % LOOKS == 0:
                    yield
            found.append((partition, sorted(wanted)))
    if not known:
        raise unknown(f"topic {topic.name}", message.group)
    return found


def _matches(queue: Queue, offset: int, reason: str) -> bool:
    dead = queue.dead_letters.get(offset)
    return dead is not None and reason in dead.reason


def _cut(chosen: list[tuple[Partition, list[int]]]) -> Iterator[tuple[Partition, list[int]]]:
    for partition, offsets in chosen:
        for first in range(0, len(offsets), PORTION):
            yield partition, offsets[first : first + PORTION]
