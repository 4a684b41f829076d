"""Leases of queue groups for doors: records for a worker that is known by its name alone.

Idea: a door keeps no lease. It hands records out under the name of a worker, and settles them by their offsets
(decision 61), for any connection that names them.

Contract: what was leased for a caller that is gone by then is released, and the attempt does not count. A caller that
wants records of several places waits for all of them at once, and gets what the first ones have; the requests to
the others are recalled. Unreadable records are dead-lettered, or released where they cannot be decoded here.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import NamedTuple

from msgspec import structs

from ..clients.connection.question import expect
from ..clients.errors import TimedOut
from ..clients.queues.claiming import ClaimPlan
from ..clients.queues.claiming import claim as claim_pages
from ..storage.errors import Error, InvalidBatch
from ..transport.messages import Answer
from ..transport.queue_messages import (
    NOWHERE,
    Claim,
    Counted,
    Lease,
    Leased,
    ListPending,
    ListWorkers,
    PendingRecords,
    Settle,
    Settled,
    SettleRecords,
    SettleTasks,
    SetWorker,
    Verb,
    Workers,
)
from .asking import Asked, ask
from .link import BrokerLink, TopicPlace

WAIT_S = 30.0
"""The longest that one request waits at the broker."""

LEASE_RECORDS_MAX = 100_000
"""As the broker has it."""

SETTLED_MAX = 1 << 14
"""Ranges that one request settles; more go in several."""


class LeaseTerms(NamedTuple):
    """Records that a worker wants of a place, or of any partition of its topic: `most` records, and about `max_bytes`.

    `lease_ms` 0: for as long as the group says. `start`: where a group begins that is not there yet (see Lease).
    `takes`: without a lease, so that records are done when they are given. `remember`: the worker is listed, also while
    there is nothing for it.
    """

    place: TopicPlace
    group: str
    worker: str
    most: int
    max_bytes: int
    lease_ms: int = 0
    start: int = NOWHERE
    takes: bool = False
    remember: bool = False


class Taken(NamedTuple):
    """A lease of some. `runs`: first offset, how many, and attempt; `payload`: batches that hold them, and others."""

    wanted: LeaseTerms
    partition: int
    token: int
    until_us: int
    runs: Sequence[tuple[int, int, int]]
    payload: bytes


async def take(
    link: BrokerLink, wanted: Sequence[LeaseTerms], wait_s: float, check: Callable[[], object]
) -> list[Taken | None]:
    """Lease records of each place, or wait for some of any, `wait_s` at most. None stands for places without any.

    `check` raises when the caller may not lease any more: rights end while it waits. What came then is put back.
    Raises UnknownTopic, UnknownGroup, TimedOut ...
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + wait_s
    while True:
        left_s = max(until - loop.time(), 0.0)
        found = await _take(link, wanted, min(left_s, WAIT_S), check)
        if any(found) or loop.time() >= until:
            return found


async def _take(
    link: BrokerLink, wanted: Sequence[LeaseTerms], wait_s: float, check: Callable[[], object]
) -> list[Taken | None]:
    asked = [_asked(link, each, wait_s) for each in wanted]
    try:
        answers = await _answers(link, wanted, asked, wait_s)
    except BaseException:
        _give_up(link, wanted, asked)
        raise
    try:
        leased = [(expect(answer, Leased), payload) for answer, payload in answers]
        check()
    except Exception:
        for each, (answer, _) in zip(wanted, answers, strict=True):
            _put_back(link, each, answer)
        raise
    return [
        Taken(each, lease.partition, lease.token, lease.until_us, lease.runs, payload) if lease.runs else None
        for each, (lease, payload) in zip(wanted, leased, strict=True)
    ]


def _asked(link: BrokerLink, wanted: LeaseTerms, wait_s: float) -> Asked:
    place, clock = wanted.place, link.driver.connection.clock
    by = clock() + wait_s

    def make(request: int) -> Lease:
        return Lease(
            request, place.topic.topic, wanted.group, wanted.worker, wanted.most, place.partition, wanted.max_bytes,
            wanted.lease_ms, max(round((by - clock()) * 1000), 0) if wait_s else 0, start=wanted.start,
            takes=wanted.takes, remember=wanted.remember,
        )  # fmt: skip

    return Asked(link.driver, make, partial(_put_back, link, wanted))


async def _answers(
    link: BrokerLink, wanted: Sequence[LeaseTerms], asked: Sequence[Asked], wait_s: float
) -> list[tuple[Answer, bytes]]:
    """The answers to all, of which some are recalled once one is an error or brings records."""
    try:
        async with asyncio.timeout(wait_s + link.driver.connection.timeout):
            if len(asked) > 1 and wait_s:
                waiting = {question.arrived for question in asked}
                while waiting and not any(_tells(question) for question in asked):
                    _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                _recall(link, wanted, asked)
            return [await question.arrived for question in asked]
    except TimeoutError:
        raise TimedOut(f"timed out: leasing records: {link.driver.connection.state}") from None


def _tells(question: Asked) -> bool:
    """Whether an answer is here that says more than that there is nothing."""
    if not question.arrived.done():
        return False
    answer = question.arrived.result()[0]
    return not isinstance(answer, Leased) or bool(answer.runs)


def _give_up(link: BrokerLink, wanted: Sequence[LeaseTerms], asked: Sequence[Asked]) -> None:
    """Want none of the answers any more."""
    for each, question in zip(wanted, asked, strict=True):
        if question.arrived.done() and not question.arrived.cancelled():
            _put_back(link, each, question.arrived.result()[0])
        question.arrived.cancel()
        if not question.times_sent:
            question.cancel()
    _recall(link, wanted, asked)


def _recall(link: BrokerLink, wanted: Sequence[LeaseTerms], asked: Sequence[Asked]) -> None:
    """Have requests that wait at the broker answered at once."""
    for each, question in zip(wanted, asked, strict=True):
        if question.answer is None and question.times_sent:
            topic, waiting = each.place.topic.topic, [question.request]
            Asked(link.driver, partial(_recalling, topic, each.group, waiting))


def _recalling(topic: bytes, group: str, waiting: list[int], request: int) -> SettleTasks:
    return SettleTasks(request, topic, group, [], waiting)


def _put_back(link: BrokerLink, wanted: LeaseTerms, answer: Answer) -> None:
    """Release what came for a caller that is gone."""
    if isinstance(answer, Leased) and answer.runs and not wanted.takes:
        settle = Settle(answer.partition, answer.token, Verb.RELEASE)
        topic = wanted.place.topic.topic
        Asked(link.driver, lambda request: SettleTasks(request, topic, wanted.group, [settle]))


# -- settling ----------------------------------------------------------------------------------------------


async def pass_over(link: BrokerLink, taken: Taken, bad: Iterable[tuple[int, Error]]) -> None:
    """Dead-letter records of a lease that are damaged; release those that only cannot be decoded here."""
    settles: list[Settle] = []
    for offset, error in bad:
        verb = Verb.REJECT if isinstance(error, InvalidBatch) else Verb.RELEASE
        reason = f"it cannot be read: {error.message}" if verb == Verb.REJECT else ""
        settles.append(Settle(taken.partition, taken.token, verb, [(offset, 1)], reason=reason))
    topic, group = taken.wanted.place.topic.topic, taken.wanted.group
    with suppress(Error):  # they stay with the worker
        await ask(link.driver, lambda request: SettleTasks(request, topic, group, settles), Settled, "settling records")


Range = tuple[int, int]
"""First offset, how many."""


async def settle(
    link: BrokerLink, place: TopicPlace, group: str, named: Sequence[Sequence[Range]], verb: Verb
) -> list[int]:  # fmt: skip
    """Settle records of a place under whichever leases they are, for several commands, of which each names some.

    Returns how many were leased of those that each names. A record that two name counts for the first of them.
    """
    ranges, count, settled = [(place.partition, *each) for each in chain(*named)], 0, list[Range]()
    for at in range(0, len(ranges), SETTLED_MAX):
        part = ranges[at : at + SETTLED_MAX]
        make = partial(_settling, place.topic.topic, group, verb, part, len(named) > 1)
        answer, _ = await ask(link.driver, make, Counted, f"settling records of topic {place.topic.name}")
        count += answer.count
        settled += [(first, many) for _, first, many in answer.ranges]
    if len(named) == 1:
        return [count]
    sizes = [sum([many for _, many in each]) for each in named]
    return sizes if sum(sizes) == count else _shares(named, settled)


def _settling(
    topic: bytes, group: str, verb: Verb, part: list[tuple[int, int, int]], tells: bool, request: int
) -> SettleRecords:
    return SettleRecords(request, topic, group, verb, [], ranges=part, tells=tells)


def _shares(named: Sequence[Sequence[Range]], settled: Sequence[Range]) -> list[int]:
    """How many of what was settled each named, as the first one."""
    left, shares = _offsets(settled), list[int]()
    for ranges in named:
        own = _offsets(ranges) & left
        left.difference_update(own)
        shares.append(len(own))
    return shares


def _offsets(ranges: Sequence[Range]) -> set[int]:
    return set(chain.from_iterable(range(first, first + count) for first, count in ranges))


# -- what workers have -------------------------------------------------------------------------------------


class Holding(NamedTuple):
    """A record that a worker has. `given_us` is since when, -1 if that is not known."""

    offset: int
    worker: str
    given_us: int
    attempt: int


async def held(
    link: BrokerLink, place: TopicPlace, group: str, most: int, *, start: int = 0, end: int = -1,
    worker: str | None = None, min_idle_ms: int = 0,
) -> tuple[list[Holding], int]:  # fmt: skip
    """The first records of a place that workers have, and the broker's time in microseconds. Raises UnknownGroup.

    `start` and `end` (-1: all) are offsets; `worker` and `min_idle_ms` choose.
    """
    found: list[Holding] = []
    topic, now_us = place.topic, 0
    while start >= 0 and len(found) < most:
        wanted = ListPending(
            0, topic.topic, group, place.partition, most - len(found), start, end, worker, min_idle_ms
        )  # fmt: skip
        answer, _ = await ask(
            link.driver, partial(_numbered, wanted), PendingRecords, f"listing leased records of topic {topic.name}"
        )
        for run in answer.runs:
            offsets = range(run.offset, run.offset + run.count)
            found += [Holding(offset, run.worker, run.given_us, run.attempt) for offset in offsets]
        start, now_us = answer.next_offset, answer.now_us
    return found, now_us


async def set_worker(link: BrokerLink, place: TopicPlace, group: str, worker: str, *, known: bool) -> int:
    """Remember a worker, or forget it and ack what it has. Raises UnknownGroup.

    Returns: whether it is new, or how much it had.
    """
    topic = place.topic
    answer, _ = await ask(
        link.driver, lambda request: SetWorker(request, topic.topic, group, worker, known, Verb.ACK), Counted,
        f"setting worker {worker} of group {group} of topic {topic.name}",
    )  # fmt: skip
    return answer.count


async def workers(link: BrokerLink, place: TopicPlace, group: str) -> Workers:
    """The workers of a group, and what each has. Raises UnknownGroup."""
    return (
        await ask(
            link.driver,
            lambda request: ListWorkers(request, place.topic.topic, group),
            Workers,
            f"listing the workers of group {group} of topic {place.topic.name}",
        )
    )[0]


async def claim(
    link: BrokerLink, place: TopicPlace, wanted: Claim, most: int, most_bytes: int = sys.maxsize
) -> list[tuple[Leased, bytes]]:
    """Lease records of a place that workers have to one of them, `most` at most, unless `wanted` names them.

    Returns the answers, with their batches: none is asked for once these have `most_bytes`. Raises UnknownGroup.
    """
    found: list[tuple[Leased, bytes]] = []
    named = {place.partition: list(wanted.offsets)} if wanted.offsets else None
    plan = ClaimPlan(wanted, named, (place.partition, wanted.offset), most, place.partition + 1, most_bytes)
    steps = claim_pages(
        link.driver.connection, place.topic.name, plan, lambda answer, payload, _: found.append((answer, payload))
    )
    await link.driver.run(steps)
    return found


def _numbered(wanted: ListPending, request: int) -> ListPending:
    return structs.replace(wanted, request=request)
