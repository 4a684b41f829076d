"""Settling: requests that settle leased records, and that extend leases.

Idea: a worker settles records under the token of their lease. Others, who know only the records, settle them under
whichever lease holds each; what is not leased then stays as it is.

Contract: a refused Settle does not affect the others in its request. The answer leaves when all others are committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from .....storage.errors import Error
from .....transport.messages import (
    Counted,
    Extended,
    ExtendLeases,
    Refusal,
    Settle,
    Settled,
    SettleRecords,
    SettleTasks,
)
from .....transport.queue_messages import PROGRESS_BYTES_MAX, Verb
from ....errors import InvalidRequest
from ...tables.names import check_name
from ...tables.queues.outcomes import check_settle
from ...turns.replies import Gather, failure
from .. import verbs
from ..topic_queues import check_length, check_serves, find, having, queue_settings

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

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


HELD = 64
"""Records that are looked for in one step, where the lease of the one before has them. Looking for another lease takes
as long as `LOOK` of them."""

LOOK = 8

TOGETHER = 256
"""Records of one lease that are settled by their offsets in one step."""

RECALLED = 16
"""Waiting requests that are answered in one step."""


class SettleRequests:
    """Handlers of SettleTasks and ExtendLeases."""

    def __init__(
        self, topics: Topics, port: Port, time: LogTime, randomness: Randomness, lines: Lines, watching: Watching
    ) -> None:
        self.handlers: Handlers = {
            SettleTasks: self.settle, ExtendLeases: self.extend, SettleRecords: self.settle_records,
        }  # fmt: skip
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
            self.failed(topic, message.group, (settle.partition for settle in message.settles))
            self._port.reply(peer, failure(message.request, error))

        gather = Gather(finish, refuse)
        refused += yield from self.propose(topic, message.group, message.settles, now, gather)
        yield from self.recall(peer, message.recalled)
        gather.ready()

    def settle_records(self, peer: Peer, message: SettleRecords, payload: Payload, now: Now) -> Work:
        """Settle records under whichever lease each is, and count them.

        Raises InvalidRequest, UnknownGroup, UnknownPartition, Unavailable, Poisoned.
        """
        topic, group, now_us, count = self._topics.get(message.topic), message.group, self._time.read(now), 0
        outcome = Settle(0, 0, message.verb, delay_ms=message.delay_ms, reason=message.reason)
        check_settle(structs.replace(outcome, results=[(offset, result) for _, offset, result in message.results]))
        if message.results and message.verb != Verb.ACK:
            raise InvalidRequest("results are of acked records: leave them out")
        having(topic, group)
        named = yield from _records_by_partition(topic, message)
        for partition in named:
            check_serves(partition)

        def refuse(error: Error) -> None:
            self.failed(topic, group, (partition.number for partition in named))
            self._port.reply(peer, failure(message.request, error))

        gather = Gather(lambda: self._port.reply(peer, Counted(message.request, count)), refuse)
        for partition, records in named.items():
            for token, held in (yield from _by_lease(partition, group, records)).items():
                for at in range(0, len(held), TOGETHER):
                    some = held[at : at + TOGETHER]
                    results = [(offset, result) for offset in some if (result := records[offset]) is not None]
                    settle = structs.replace(outcome, token=token, ranges=_ranges(some), results=results)
                    count += verbs.settle_held(partition, group, settle, now_us, self.chance)
                    yield
            partition.barrier(gather.one())
            self._watching.watch(partition, group)
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

    def failed(self, topic: Topic, group: str, partitions: Iterable[int]) -> None:
        """The proposals failed: the leases are as they were."""
        numbers = set(partitions)
        for partition in topic.readable:
            if partition.number in numbers:
                self._watching.watch(partition, group)

    def chance(self) -> float:
        return int.from_bytes(self._randomness(4), "little") / 2**32


def _records_by_partition(
    topic: Topic, message: SettleRecords
) -> Generator[int | None, None, dict[Partition, dict[int, bytes | None]]]:
    """The result of each record of a request, by partition and offset. Raises UnknownPartition, Unavailable."""
    named: dict[Partition, dict[int, bytes | None]] = {}
    for looks, (number, offset) in enumerate(message.offsets, 1):
        named.setdefault(topic.partition(number), {})[offset] = None
        if looks % SORTED == 0:
            yield
    for looks, (number, offset, result) in enumerate(message.results, 1):
        records = named.get(topic.partition(number), {})
        if offset in records:
            records[offset] = result
        if looks % SORTED == 0:
            yield
    return named


def _by_lease(
    partition: Partition, group: str, offsets: Iterable[int]
) -> Generator[int | None, None, dict[int, list[int]]]:
    """Those of some records that are leased, by the token of their lease."""
    held: dict[int, list[int]] = {}
    lease, weight = None, 0
    for offset in offsets:
        if weight >= HELD:
            yield
            lease, weight = None, 0  # it may have ended meanwhile
        weight += 1
        if lease is None or not lease.attempt(offset):
            queue = find(partition, group)
            lease = None if queue is None else queue.lease_of(offset)
            weight += LOOK
        if lease is not None:
            held.setdefault(lease.token, []).append(offset)
    return held


def _ranges(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Offsets as ranges: the first one, and how many."""
    found: list[tuple[int, int]] = []
    for offset in sorted(offsets):
        if found and sum(found[-1]) == offset:
            found[-1] = found[-1][0], found[-1][1] + 1
        else:
            found.append((offset, 1))
    return found


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
