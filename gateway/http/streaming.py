"""Server-sent events: messages as they come, and stats at intervals.

Idea: an event with an id says how far the client has got in every partition, so that a client that comes back
(`Last-Event-ID`) gets what it missed. The id stands on the last event of each round: after a break some messages may
come again.

Contract: a stream ends when its client leaves, when the gateway drains, and with an event `error` when the broker
refuses it. What the client does not read is not read from the broker either.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from ...broker.rights import Principal, authorize
from ...storage.errors import Error
from ...transport.messages import Topic
from ..consumers import take_some
from ..link import BrokerLink, TopicPlace
from ..reading import news
from .operation import HttpCall, HttpOperation, Streamed
from .problems import Refusal, problem_of
from .shapes import stored
from .task_shapes import ServiceStats, group_info

EVENTS = "text/event-stream"

ROUND = 500
"""Messages read at a time."""

SILENCE_S = 15.0
"""After so long without an event a comment is sent, so that proxies and clients see that the stream lives."""

FRESH_S = 0.4
"""All viewers of a stream of stats share what was asked of the broker so lately."""

_encode = msgspec.json.Encoder().encode


class TailQuery(Struct, forbid_unknown_fields=True):
    """Where a stream begins, for a client that does not come back."""

    start: Annotated[Literal["earliest", "latest"], Meta(description="The first message, or the next one.")] = "latest"


class StatsQuery(Struct, forbid_unknown_fields=True):
    """How often stats come."""

    interval_s: Annotated[float, Meta(ge=0.5, le=60.0)] = 2.0


# -- messages ---------------------------------------------------------------------------------------------


async def tail(call: HttpCall) -> Streamed:
    name, link = call.path["queue"], call.link
    call.may("read", name)
    topic = (await link.driver.run(link.verbs.topics([name])))[0]
    seen = call.headers.get(b"last-event-id")
    if seen is None:
        places = [TopicPlace(topic, number) for number in range(len(topic.partitions))]
        starts = {place.partition: place.first if call.asked.start == "earliest" else place.end for place in places}
    else:
        starts = _offsets(seen)
    return Streamed(_events(call, topic, starts), EVENTS)


def _offsets(text: bytes) -> dict[int, int]:
    try:
        found = [int(part) for part in text.decode("ascii").split(".")[:10_000]]
    except ValueError:
        raise Refusal(400, "invalid_request", "Last-Event-ID is none that this stream gave") from None
    return {number: max(offset, 0) for number, offset in enumerate(found)}


async def _events(call: HttpCall, topic: Topic, starts: dict[int, int]) -> AsyncGenerator[bytes, None]:
    link = call.link
    yield b"retry: 2000\n\n"
    try:
        while not call.ends and not call.has_left and authorize(call.principal, "read", f"topic:{topic.name}"):
            for number, partition in enumerate(topic.partitions):
                starts[number] = min(starts.get(number, partition.first), partition.end)
            wanted = {number: starts[number] for number in range(len(topic.partitions))}
            parts, starts = await take_some(link, topic, wanted, ROUND)
            lines = [b"data: %b\n" % _encode(stored(record)) for part in parts for record in part.records()]
            if lines:
                lines[-1] += b"id: %b\n" % ".".join(map(str, starts.values())).encode()
                yield b"\n".join(lines) + b"\n"
            else:
                await call.wait(news(link, [TopicPlace(topic, 0)], SILENCE_S))
            found = (await link.driver.run(link.verbs.topics([topic.name])))[0]
            if not lines and found == topic:
                yield b":\n\n"
            topic = found
    except Error as error:
        yield b"event: error\ndata: %b\n\n" % _encode(problem_of(error))


# -- stats ------------------------------------------------------------------------------------------------


class SampledStats:
    """What the broker said lately of itself and of its queue groups, asked once for all viewers."""

    def __init__(self, link: BrokerLink) -> None:
        self._link = link
        self._at = -FRESH_S
        self._found = ServiceStats({}, [])
        self._turn = asyncio.Lock()

    async def seen_by(self, principal: Principal, old_s: float) -> ServiceStats:
        """The stats, with queue groups that a principal may see, at most so old. Raises what the broker refuses."""
        clock = asyncio.get_running_loop().time
        async with self._turn:
            if clock() - self._at >= old_s:
                queues = [group_info(queue) for queue in await self._link.client.queues()]
                self._found, self._at = ServiceStats(await self._link.client.stats(), queues), clock()
            found = self._found
        mine = [each for each in found.queues if authorize(principal, "see", f"group:{each.queue}/{each.group}")]
        return ServiceStats(found.broker, mine)


async def stats(call: HttpCall) -> ServiceStats:
    call.may("see", "")
    return await call.door.stats.seen_by(call.principal, 0.0)


async def stats_events(call: HttpCall) -> Streamed:
    call.may("see", "")
    return Streamed(_stats_events(call), EVENTS)


async def _stats_events(call: HttpCall) -> AsyncGenerator[bytes, None]:
    try:
        while not call.ends and not call.has_left and call.allows("see", ""):
            yield b"data: %b\n\n" % _encode(await call.door.stats.seen_by(call.principal, FRESH_S))
            await call.wait(asyncio.sleep(call.asked.interval_s))
    except Error as error:
        yield b"event: error\ndata: %b\n\n" % _encode(problem_of(error))


OPERATIONS = [
    HttpOperation(
        method="GET", path="/api/v1/queues/{queue}/tail", name="tail", tag="messages", handler=tail, query=TailQuery,
        summary="Messages as they come, as server-sent events", also_gives=(EVENTS,),
        about="Each event is a message as JSON. A client that comes back with `Last-Event-ID` gets what it missed; "
        "some messages may come again.",
        headers=(("Last-Event-ID", "The id of the last event that was seen."),),
    ),
    HttpOperation(
        method="GET", path="/stats", name="stats", tag="groups", handler=stats, gives=ServiceStats,
        summary="Queue groups with their tasks by state, and the broker's counters",
    ),
    HttpOperation(
        method="GET", path="/stats/events", name="statsEvents", tag="groups", handler=stats_events, query=StatsQuery,
        summary="The same at intervals, as server-sent events", also_gives=(EVENTS,),
    ),
]  # fmt: skip
