"""Settling: requests that settle leased records, and that extend leases.

Contract: a refused Settle does not affect the others in its request. The answer leaves when all others are committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .....storage.errors import Error
from .....transport.messages import Extended, ExtendLeases, Refusal, Settle, Settled, SettleTasks
from .....transport.queue_messages import PROGRESS_BYTES_MAX
from ....errors import InvalidRequest
from ...tables.names import check_name
from ...turns.replies import Gather, failure
from .. import verbs
from ..topic_queues import check_length, having, queue_settings

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from ...logs.clock import LogTime
    from ...logs.partition import Partition
    from ...logs.topics import Topic, Topics
    from ...ports import Handlers, Now, Payload, Peer, Port, Randomness, Work
    from ..lines import Lines
    from ..wakeups import Watching

SETTLED = 4
"""Settles that are judged in one step, where none has ranges."""

SORTED = 32
"""Leases or records that are told apart by partition in one step."""

EXTENDED = 8
"""Leases of one partition that are extended in one step."""


RECALLED = 16
"""Waiting requests that are answered in one step."""


class SettleRequests:
    """Handlers of SettleTasks and ExtendLeases."""

    def __init__(
        self, topics: Topics, port: Port, time: LogTime, randomness: Randomness, lines: Lines, watching: Watching
    ) -> None:
        self.handlers: Handlers = {SettleTasks: self.settle, ExtendLeases: self.extend}
        self._topics = topics
        self._port = port
        self._time = time
        self._randomness = randomness
        self._lines = lines
        self._watching = watching

    def settle(self, peer: Peer, message: SettleTasks, payload: Payload, now: Now) -> Work:
        """Settle valid leases, refuse the rest."""
        topic = self._topics.get(message.topic)
        check_name("group", message.group)
        refused: list[Refusal] = []

        def finish() -> None:
            self._port.reply(peer, Settled(message.request, refused))

        def refuse(error: Error) -> None:
            self.failed(topic, message.group, message.settles)
            self._port.reply(peer, failure(message.request, error))

        gather = Gather(finish, refuse)
        refused += yield from self.propose(topic, message.group, message.settles, now, gather)
        yield from self.recall(peer, message.recalled)
        gather.ready()

    def extend(self, peer: Peer, message: ExtendLeases, payload: Payload, now: Now) -> Work:
        """Keep leases, and say which are lost and what was cancelled. Raises UnknownGroup, InvalidRequest."""
        topic, group = self._topics.get(message.topic), message.group
        having(topic, group)
        check_length(topic, group, message.lease_ms)
        asked = yield from _by_partition(topic, message)
        start_us = max((verbs.log_time(partition, self._time.read(now)) for partition in asked), default=0)
        until_us = queue_settings(topic, group).lease_end(start_us, message.lease_ms)
        lost, cancelled = list[tuple[int, int]](), list[tuple[int, int]]()
        answer = Extended(message.request, until_us, lost, cancelled, (until_us - start_us) // 1000)
        gather = Gather.reply(self._port, peer, message.request, answer)
        for partition, (tokens, progress) in asked.items():
            own = set(tokens)
            for at in range(0, max(len(tokens), len(progress)), EXTENDED):
                here = slice(at, at + EXTENDED)
                extension = verbs.extend(partition, group, tokens[here], until_us, progress[here], own)
                partition.barrier(gather.one())
                lost += [(partition.number, token) for token in extension.lost]
                cancelled += [(partition.number, offset) for offset in extension.cancelled]
                yield
            self._watching.watch(partition, group)
        gather.ready()

    def recall(self, peer: Peer, requests: Sequence[int]) -> Work:
        """Answer these requests for leases of a connection now, as far as they wait: their worker ends."""
        recalled, parked = frozenset(requests), self._lines.parked
        waiting = [demand for demand in parked.of(peer) if demand.message.request in recalled] if recalled else []
        for answered, demand in enumerate(waiting, 1):
            if demand in parked:
                self._lines.give_up(demand)
            if answered % RECALLED == 0:
                yield

    def propose(
        self, topic: Topic, group: str, settles: Sequence[Settle], now: Now, gather: Gather
    ) -> Generator[int | None, None, list[Refusal]]:
        """Propose each; `gather` waits for them. Returns what was refused."""
        now_us, refused, weight = self._time.read(now), list[Refusal](), 0
        for index, settle in enumerate(settles):
            if weight >= SETTLED:
                weight = 0
                yield
            weight += 1 + (len(settle.ranges) + len(settle.results)) // SETTLED
            try:
                partition = topic.partition(settle.partition)
                verbs.settle(partition, group, settle, now_us, self.chance)
            except Error as error:
                refused.append(Refusal(index, error.code, error.message))
                continue
            partition.barrier(gather.one())
            self._watching.watch(partition, group)
        return refused

    def failed(self, topic: Topic, group: str, settles: Sequence[Settle]) -> None:
        """The proposals failed: the leases are as they were."""
        numbers = {settle.partition for settle in settles}
        for partition in topic.readable:
            if partition.number in numbers:
                self._watching.watch(partition, group)

    def chance(self) -> float:
        return int.from_bytes(self._randomness(4), "little") / 2**32


def _by_partition(
    topic: Topic, message: ExtendLeases
) -> Generator[int | None, None, dict[Partition, tuple[list[int], list[verbs.Progress]]]]:
    """Tokens and progress of a request by partition. Raises UnknownPartition, Unavailable, InvalidRequest."""
    asked: dict[Partition, tuple[list[int], list[verbs.Progress]]] = {}
    for looks, (number, token) in enumerate(message.leases, 1):
        asked.setdefault(topic.partition(number), ([], []))[0].append(token)
        if looks % SORTED == 0:
            yield
    for looks, (number, offset, value) in enumerate(message.progress, 1):
        if looks % SORTED == 0:
            yield
        if len(value) > PROGRESS_BYTES_MAX:
            raise InvalidRequest(
                f"progress of {len(value)} bytes is not allowed: {PROGRESS_BYTES_MAX} at most; say where there is more"
            )
        asked.setdefault(topic.partition(number), ([], []))[1].append((offset, value))
    return asked
