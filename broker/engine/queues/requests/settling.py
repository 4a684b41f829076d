"""Settling: requests that settle leased records, and that extend leases.

Idea: a worker settles records under the token of their lease. Others, who know only the records, settle them under
whichever lease holds each; what is not leased then stays as it is.

Contract: a refused Settle does not affect the others in its request. The answer leaves when all others are committed.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

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
from ...tables.queues.leases import Range, apart
from ...tables.queues.outcomes import check_settle
from ...turns.replies import Gather, failure
from .. import verbs
from ..topic_queues import check_length, check_serves, find, having, queue_settings

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

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
"""Runs of leased records that are found in one step. Looking for them takes as long as `LOOK` of them."""

LOOK = 8

TOGETHER = 256
"""Records of one lease that are settled by their offsets in one step, or ranges."""

PART = 4
"""Steps that so many ranges count as: each is taken out of a mask of up to 100,000 bits, twice."""

CHEAP = 8
"""Records without a gap that cost as much as one where they are acked without results."""

RECALLED = 16
"""Waiting requests that are answered in one step."""


_first = itemgetter(0)


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

        def finish() -> bool:
            self._port.reply(peer, Settled(message.request, refused))
            return True

        def refuse(error: Error) -> None:
            self.failed(topic, message.group, (settle.partition for settle in message.settles))
            self._port.reply(peer, failure(message.request, error))

        gather = Gather(finish, refuse, ahead=lambda _: finish())
        refused += yield from self.propose(topic, message.group, message.settles, now, gather)
        if message.recalled:
            yield from self.recall(peer, message.recalled)
        gather.ready()

    def settle_records(self, peer: Peer, message: SettleRecords, payload: Payload, now: Now) -> Work:
        """Settle records under whichever lease each is, and count them.

        Raises InvalidRequest, UnknownGroup, UnknownPartition, Unavailable, Poisoned.
        """
        topic, group, now_us = self._topics.get(message.topic), message.group, self._time.read(now)
        which: list[tuple[int, int, int]] = []
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

        def finish() -> None:
            told = which if message.tells else []
            self._port.reply(peer, Counted(message.request, sum([count for _, _, count in which]), told))

        gather = Gather(finish, refuse)
        for partition, (ranges, results) in named.items():
            cheap = message.verb == Verb.ACK and not results
            for token, held in (yield from _by_lease(partition, group, ranges)).items():
                for some in _portions(held, CHEAP if cheap else 1):
                    said = {} if cheap else {at: results[at] for at in _each(some) if at in results}
                    settle = structs.replace(outcome, token=token, ranges=some, results=list(said.items()))
                    done = verbs.settle_held(partition, group, settle, now_us, self.chance)
                    which += [(partition.number, *each) for each in done]
                    partition.barrier(gather.one())  # each portion is in a write of its own, which may fail
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
        waiting = [demand for demand in parked.of(peer) if demand.message.request in recalled]
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
                if len(settle.ranges) > TOGETHER:
                    yield from self._in_parts(partition, group, settle, now_us, gather)
                else:
                    verbs.settle(partition, group, settle, now_us, self.chance)
            except Error as error:
                refused.append(Refusal(index, error.code, error.message))
                continue
            partition.barrier(gather.one())
            self._watching.watch(partition, group)
        return refused

    def _in_parts(
        self, partition: Partition, group: str, settle: Settle, now_us: int, gather: Gather
    ) -> Generator[int | None, None, None]:
        """Propose one that has many ranges, some in each step. All of it is judged before."""
        for at in range(0, max(len(settle.ranges), len(settle.results)), TOGETHER):
            ranges, results = settle.ranges[at : at + TOGETHER], settle.results[at : at + TOGETHER]
            verbs.judge_settle(partition, group, structs.replace(settle, ranges=ranges, results=results))
            yield
        for part in _parts(settle):
            verbs.settle(partition, group, part, now_us, self.chance)
            partition.barrier(gather.one())  # each is in a write of its own, which may fail
            yield PART

    def failed(self, topic: Topic, group: str, partitions: Iterable[int]) -> None:
        """The proposals failed: the leases are as they were."""
        numbers = set(partitions)
        for partition in topic.readable:
            if partition.number in numbers:
                self._watching.watch(partition, group)

    def chance(self) -> float:
        return int.from_bytes(self._randomness(4), "little") / 2**32


class _Named(NamedTuple):
    """Records of one partition that a request names, and the results of some."""

    ranges: list[Range]
    results: dict[int, bytes]


def _records_by_partition(
    topic: Topic, message: SettleRecords
) -> Generator[int | None, None, dict[Partition, _Named]]:  # fmt: skip
    """What a request names, by partition. Raises UnknownPartition, Unavailable."""
    named: dict[Partition, _Named] = {}
    places = chain(((number, offset, 1) for number, offset in message.offsets), message.ranges)
    for looks, (number, first, count) in enumerate(places, 1):
        _add(named.setdefault(topic.partition(number), _Named([], {})).ranges, first, count)
        if looks % SORTED == 0:
            yield
    for looks, (number, offset, result) in enumerate(message.results, 1):
        partition = topic.partition(number)
        if partition in named:
            named[partition].results[offset] = result
        if looks % SORTED == 0:
            yield
    return named


def _by_lease(
    partition: Partition, group: str, ranges: Iterable[Range]
) -> Generator[int | None, None, dict[int, list[Range]]]:
    """Those of some records that are leased, by the token of their lease."""
    held: dict[int, list[Range]] = {}
    lease, weight = None, 0
    for first, count in ranges:
        at, end = first, first + count
        while 0 <= at < end:
            if weight >= HELD:
                yield
                lease, weight = None, 0  # it may have ended meanwhile
            if count == 1 and lease is not None and lease.attempt(at):
                _add(held[lease.token], at, 1)
                at, weight = end, weight + 1
                continue
            queue = find(partition, group)
            runs, at = ([], -1) if queue is None else queue.leases.from_offset(at, end)
            weight += LOOK + len(runs)
            for offset, many, _, lease in runs:
                _add(held.setdefault(lease.token, []), offset, many)
    return held


def _add(ranges: list[Range], first: int, count: int) -> None:
    """One more range, as part of the last one where it goes on with that."""
    if ranges and sum(ranges[-1]) == first:
        ranges[-1] = ranges[-1][0], ranges[-1][1] + count
    else:
        ranges.append((first, count))


def _each(ranges: Iterable[Range]) -> Iterator[int]:
    """The offsets of ranges."""
    return chain.from_iterable(range(first, first + count) for first, count in ranges)


def _portions(ranges: Iterable[Range], cheap: int) -> Iterator[list[Range]]:
    """Ranges, as many at a time as one step settles; `cheap` records without a gap cost as much as one."""
    portion: list[Range] = []
    room = TOGETHER
    for first, count in ranges:
        while count:
            taken = min(count, room * cheap)
            portion.append((first, taken))
            first, count, room = first + taken, count - taken, room - -(-taken // cheap)
            if not room:
                yield portion
                portion, room = [], TOGETHER
    if portion:
        yield portion


def _parts(settle: Settle) -> Iterator[Settle]:
    """A settle by as many ranges as one step settles, each with the results of its records."""
    ranges, results = apart(settle.ranges), sorted(settle.results, key=_first)
    for at in range(0, len(ranges), TOGETHER):
        some = ranges[at : at + TOGETHER]
        count = bisect_left(results, some[-1][1], key=_first)
        named = [(first, end - first) for first, end in some]
        yield structs.replace(settle, ranges=named, results=results[:count])
        results = results[count:]


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
