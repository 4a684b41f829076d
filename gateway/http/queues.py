"""Topics as queues of messages with named consumers: reading, committing, seeking.

Idea: the gateway keeps no state of a consumer. Reading answers messages and the offsets behind them, and committing
takes these, so that any gateway answers any request.

Contract: reading does not move a consumer. What waits is answered with no messages when its time is up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from msgspec import Meta, Struct

from ...clients.descriptions import Group, Topic
from ...transport import messages
from ..consumers import move, positions, start, take_some
from ..link import TopicPlace
from ..reading import news
from .formats import ARROW, LINES, reply_of
from .operation import JSON, HttpCall, HttpOperation, Reply
from .shapes import (
    CommitBody,
    ConsumerInfo,
    ConsumerList,
    ConsumerOffsets,
    ConsumerPlace,
    Offset,
    Partition,
    QueueInfo,
    QueueList,
    SeekBody,
    StoredMessages,
    start_of,
)

MESSAGES_MAX = 10_000
TIMEOUT_MS_MAX = 60_000

Most = Annotated[int, Meta(ge=1, le=MESSAGES_MAX, description="Messages in one answer.")]
Timeout = Annotated[int, Meta(ge=0, le=TIMEOUT_MS_MAX, description="How long to wait for the first message.")]


class ConsumeQuery(Struct, forbid_unknown_fields=True):
    """How much to read, and for how long to wait."""

    timeout_ms: Timeout = 0
    max_messages: Most = 1


class BrowseQuery(Struct, forbid_unknown_fields=True):
    """What to read without a consumer."""

    partition: Partition = 0
    offset: Annotated[Offset, Meta(description="The first one; without it, the first that there is.")] | None = None
    timeout_ms: Timeout = 0
    max_messages: Most = 1


# -- queues -----------------------------------------------------------------------------------------------


async def list_queues(call: HttpCall) -> QueueList:
    """Those that the principal may read."""
    topics = await call.link.client.topics()
    return QueueList([queue_info(topic) for topic in topics if call.sees(topic.name)])


async def get_queue(call: HttpCall) -> QueueInfo:
    call.may("see", call.path["queue"])
    return queue_info(await call.link.client.topic(call.path["queue"]))


def queue_info(topic: Topic) -> QueueInfo:
    """A topic as a queue."""
    return QueueInfo(
        topic.name, topic.id, len(topic.partitions), sum(partition.end for partition in topic.partitions),
        topic.records, topic.size_bytes,
        all(partition.state == "ok" and not partition.unavailable for partition in topic.partitions),
    )  # fmt: skip


NO_NOTES: Mapping[int, str] = MappingProxyType({})


# -- consumers --------------------------------------------------------------------------------------------


async def list_consumers(call: HttpCall) -> ConsumerList:
    call.may("see", queue := call.path["queue"])
    groups = [each for each in await call.link.client.groups(queue) if call.sees(queue, "group", each.name)]
    return ConsumerList(sorted(map(_consumer_info, groups), key=lambda each: each.name))


async def get_consumer(call: HttpCall) -> ConsumerInfo:
    name, consumer, client = call.path["queue"], call.path["consumer"], call.link.client
    call.may("read", name, "group", consumer)
    group, committed = await client.group(name, consumer), await client.committed(name, consumer)
    return _consumer_info(group, {number: place.note for number, place in committed.items()})


def _consumer_info(group: Group, notes: Mapping[int, str] = NO_NOTES) -> ConsumerInfo:
    places = [
        ConsumerPlace(each.partition, max(each.cursor, each.first), each.lag, notes.get(each.partition, ""))
        for each in group.partitions
    ]
    return ConsumerInfo(group.name, group.lag, [member.name for member in group.members], places)


async def delete_consumer(call: HttpCall) -> None:
    call.may("manage", call.path["queue"], "group", call.path["consumer"])
    await call.link.client.delete_group(call.path["queue"], call.path["consumer"])


async def commit(call: HttpCall) -> ConsumerOffsets:
    topic = await _topic(call, call.path["consumer"])
    await move(call.link, topic, call.path["consumer"], call.body.next, call.body.note)
    return await _position(call, topic)


async def seek(call: HttpCall) -> ConsumerOffsets:
    topic = await _topic(call, call.path["consumer"])
    offsets = await call.link.client.offsets(topic.name, start_of(call.body.to))
    await move(call.link, topic, call.path["consumer"], offsets)
    return await _position(call, topic)


async def _position(call: HttpCall, topic: messages.Topic) -> ConsumerOffsets:
    return ConsumerOffsets(await positions(call.link, topic, call.path["consumer"]))


async def _topic(call: HttpCall, consumer: str | None = None) -> messages.Topic:
    """The queue of a request, which may be read, by a consumer if one is named. Raises UnknownTopic, Refusal."""
    name, link = call.path["queue"], call.link
    call.may("read", name)
    if consumer is not None:
        call.may("read", name, "group", consumer)
    return (await link.driver.run(link.verbs.topics([name])))[0]


# -- messages ---------------------------------------------------------------------------------------------


async def consume(call: HttpCall) -> Reply | StoredMessages:
    topic = await _topic(call, call.path["consumer"])
    starts = await positions(call.link, topic, call.path["consumer"])
    return await _read(call, topic, starts, call.asked.timeout_ms, call.asked.max_messages, call.path["consumer"])


async def browse(call: HttpCall) -> Reply | StoredMessages:
    topic, asked = await _topic(call), call.asked
    starts = {asked.partition: start(topic, asked.partition, asked.offset)}
    return await _read(call, topic, starts, asked.timeout_ms, asked.max_messages)


async def _read(
    call: HttpCall,
    topic: messages.Topic,
    starts: dict[int, int],
    timeout_ms: int,
    most: int,
    consumer: str | None = None,
) -> Reply | StoredMessages:
    """Messages from `starts` on; when there are none, those that come within the time."""
    loop = asyncio.get_running_loop()
    until = loop.time() + timeout_ms / 1000
    while True:
        found, starts = await take_some(call.link, topic, starts, most)
        left = until - loop.time()
        if found or left <= 0 or call.ends:
            return reply_of(call, topic, found, starts)
        await call.wait(news(call.link, [TopicPlace(topic, 0)], left))
        topic = await _topic(call, consumer)  # it may have lost the right meanwhile


OPERATIONS = [
    HttpOperation(
        method="GET", path="/api/v1/queues/{queue}/consumers/{consumer}/messages", name="consume", tag="consumers",
        handler=consume, summary="The next messages of a consumer, which stays where it is", query=ConsumeQuery,
        about="Waits up to `timeout_ms` for the first one. Commit the `next` of the answer once the messages are done: "
        "until then the same ones come again, to this consumer's every reader.",
        gives=StoredMessages, also_gives=(LINES, ARROW),
    ),
    HttpOperation(
        method="POST", path="/api/v1/queues/{queue}/consumers/{consumer}/commit", name="commit", tag="consumers",
        handler=commit, summary="Move a consumer behind the messages that are done", takes=(JSON,), body=CommitBody,
        about="A new consumer is made. Offsets may also go back.", gives=ConsumerOffsets,
    ),
    HttpOperation(
        method="POST", path="/api/v1/queues/{queue}/consumers/{consumer}/seek", name="seek", tag="consumers",
        handler=seek, summary="Move a consumer to an end or to a time", takes=(JSON,), body=SeekBody,
        gives=ConsumerOffsets,
    ),
    HttpOperation(
        method="GET", path="/api/v1/queues/{queue}/consumers", name="listConsumers", tag="consumers",
        handler=list_consumers, summary="The consumers of a queue", gives=ConsumerList,
    ),
    HttpOperation(
        method="GET", path="/api/v1/queues/{queue}/consumers/{consumer}", name="getConsumer", tag="consumers",
        handler=get_consumer, summary="Where a consumer is", gives=ConsumerInfo,
    ),
    HttpOperation(
        method="DELETE", path="/api/v1/queues/{queue}/consumers/{consumer}", name="deleteConsumer", tag="consumers",
        handler=delete_consumer, summary="Forget a consumer; the messages stay", status=204,
    ),
    HttpOperation(
        method="GET", path="/api/v1/queues/{queue}/messages", name="browse", tag="messages", handler=browse,
        summary="Messages of a partition from an offset on, without a consumer", query=BrowseQuery,
        gives=StoredMessages, also_gives=(LINES, ARROW),
    ),
    HttpOperation(
        method="GET", path="/api/v1/queues", name="listQueues", tag="messages", handler=list_queues,
        summary="All queues", gives=QueueList,
    ),
    HttpOperation(
        method="GET", path="/api/v1/queues/{queue}", name="getQueue", tag="messages", handler=get_queue,
        summary="One queue", gives=QueueInfo,
    ),
]  # fmt: skip
