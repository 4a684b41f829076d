"""What the broker did lately, looked at once for all viewers.

Idea: a viewer gets the last look, or has a new one taken if that is old. So looks begin with the first viewer and end
with the last one, without a task. Two looks make rates, and each thing has a short history of one figure.

Contract: a broker that does not answer within `ANSWERS_S` is said to be away, and what was seen last stays. Memory:
`POINTS` figures of `THINGS_MOST` things at most. After `GAP_S` without a viewer the histories begin anew.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from ...broker.processes import Usage, usage
from ...clients.descriptions import Group, Topic
from ...clients.queues.descriptions import Queue
from ...storage.errors import Error
from ..link import BrokerLink

FRESH_S = 1.5
GAP_S = 15.0
ANSWERS_S = 3.0
POINTS = 150
THINGS_MOST = 2000

COUNTERS = {
    "records": "produce.records", "bytes": "produce.bytes", "requests": "requests", "failures": "failures",
    "sent": "sent.bytes",
}  # fmt: skip
"""Counters of `stats` that are shown as rates, by the name of their history."""


class Sample(Struct, frozen=True, kw_only=True):
    """One look at a broker."""

    at_s: float  # monotonic
    now: datetime
    took_s: float
    stats: Mapping[str, Any]
    topics: Sequence[Topic]
    groups: Sequence[Group]
    queues: Sequence[Queue]
    usage: Mapping[str, Usage]


class Seen(Struct, frozen=True, kw_only=True):
    """What viewers are shown. Without a sample the broker never answered; `problem` says why the last look failed."""

    sample: Sample | None
    before: Sample | None
    times: Sequence[float]  # of the points of histories: seconds since 1970
    history: Mapping[str, Sequence[float]]
    problem: str = ""

    def latest(self, thing: str) -> float | None:
        """The last figure of a thing's history; None before there is one."""
        found = self.history.get(thing)
        return found[-1] if found else None


class Sampler:
    """See the module."""

    def __init__(self, link: BrokerLink, supervisor: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = link.client
        self._supervisor = supervisor
        self._clock = clock
        self._turn = asyncio.Lock()
        self._times: deque[float] = deque(maxlen=POINTS)
        self._history: dict[str, deque[float]] = {}
        self._seen = Seen(sample=None, before=None, times=self._times, history=self._history)
        self._asked_s = -GAP_S

    async def look(self) -> Seen:
        """What there is to see, as of a moment ago."""
        async with self._turn:
            if self._clock() - self._asked_s >= FRESH_S:
                await self._look()
                self._asked_s = self._clock()
            return self._seen

    async def _look(self) -> None:
        begun_s = self._clock()
        try:
            async with asyncio.timeout(ANSWERS_S):
                client = self._client
                stats, topics = await client.stats(), await client.topics()
                groups, queues = await client.groups(), await client.queues()
        except (TimeoutError, Error) as error:
            problem = error.message if isinstance(error, Error) else "The broker does not answer."
            self._say(self._seen.sample, self._seen.before, problem)
            return
        now = Sample(
            at_s=self._clock(), now=datetime.now(UTC), took_s=self._clock() - begun_s, stats=stats, topics=topics,
            groups=groups, queues=queues, usage=usage(self._supervisor) if self._supervisor else {},
        )  # fmt: skip
        before = self._seen.sample
        if before is not None and now.at_s - before.at_s > GAP_S:
            before = None
        if before is None:
            self._times.clear()
            self._history.clear()
        else:
            self._note(figures_of(now, before), now.now.timestamp())
        self._say(now, before, "")

    def _say(self, sample: Sample | None, before: Sample | None, problem: str) -> None:
        self._seen = Seen(
            sample=sample, before=before, times=self._times, history=self._history, problem=problem
        )  # fmt: skip

    def _note(self, figures: Mapping[str, float], now_s: float) -> None:
        """Add a point to each history; things that are gone have none any more."""
        self._times.append(now_s)
        for thing in self._history.keys() - figures.keys():
            del self._history[thing]
        for thing, figure in figures.items():
            known = self._history.get(thing)
            if known is None and len(self._history) < THINGS_MOST:
                known = self._history[thing] = deque(maxlen=POINTS)
            if known is not None:
                known.append(figure)


def figures_of(now: Sample, before: Sample) -> dict[str, float]:
    """The figure of each thing: rates of the broker and of topics, the lag of groups, the depth of queues."""
    passed_s = max(now.at_s - before.at_s, 1e-9)
    found = {
        name: max(now.stats[counter] - before.stats[counter], 0) / passed_s
        for name, counter in COUNTERS.items()
        if counter in now.stats and counter in before.stats
    }
    ends = {topic.id: _end(topic) for topic in before.topics}
    found |= {
        f"topic:{topic.name}": max(_end(topic) - ends.get(topic.id, _end(topic)), 0) / passed_s for topic in now.topics
    }
    found |= {f"group:{group.topic}/{group.name}": float(group.lag) for group in now.groups}
    return found | {f"queue:{queue.topic}/{queue.name}": float(queue.depth) for queue in now.queues}


def _end(topic: Topic) -> int:
    return sum(partition.end for partition in topic.partitions)
