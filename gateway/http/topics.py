"""Administration of topics: making, changing and deleting them.

Contract: settings are those of `penstock topic create`, and the broker checks them.
"""

from __future__ import annotations

from typing import Any

from ...clients.descriptions import Topic
from ...clients.errors import InvalidArgument
from .operation import JSON, HttpCall, HttpOperation
from .shapes import NewTopic, PartitionInfo, TopicChange, TopicInfo, TrimBody, TrimmedBody, start_of


async def list_topics(call: HttpCall) -> list[TopicInfo]:
    """Those that the principal may read."""
    topics = await call.link.client.topics()
    return [topic_info(topic) for topic in topics if call.sees(topic.name)]


async def create_topic(call: HttpCall) -> TopicInfo:
    wanted: NewTopic = call.body
    call.may("manage", wanted.name)
    steps = call.link.verbs.create_topic(wanted.name, wanted.partitions, wanted.if_missing, _given(wanted.settings))
    await call.link.driver.run(steps)
    return topic_info(await call.link.client.topic(wanted.name))


async def get_topic(call: HttpCall) -> TopicInfo:
    call.may("see", call.path["topic"])
    return topic_info(await call.link.client.topic(call.path["topic"]))


async def alter_topic(call: HttpCall) -> TopicInfo:
    name, change = call.path["topic"], call.body
    call.may("manage", name)
    await call.link.driver.run(call.link.verbs.alter_topic(name, change.partitions or 0, _given(change.settings)))
    topic = await call.link.client.topic(name)
    call.link.forget(bytes.fromhex(topic.id))
    return topic_info(topic)


async def delete_topic(call: HttpCall) -> None:
    name = call.path["topic"]
    call.may("manage", name)
    topic = await call.link.client.topic(name)
    call.link.forget(bytes.fromhex(topic.id))
    await call.link.client.delete_topic(name)


async def trim_topic(call: HttpCall) -> list[TrimmedBody]:
    wanted: TrimBody = call.body
    call.may("manage", call.path["topic"])
    if wanted.before is not None and wanted.before_offset is not None:
        raise InvalidArgument("before and before_offset both say which messages go: give one of them")
    if wanted.before_offset is not None and wanted.partition is None:
        raise InvalidArgument("before_offset is an offset of one partition: give partition, too")
    if (wanted.records, wanted.before, wanted.before_offset) == (None, None, None):
        raise InvalidArgument("a trim needs one rule: records, how many stay, before, a time, or before_offset")
    before = wanted.before_offset if wanted.before is None else start_of(wanted.before)
    found = await call.link.client.trim(call.path["topic"], wanted.partition, records=wanted.records, before=before)
    return [TrimmedBody(each.partition, each.before, each.first, each.lost) for each in found]


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    return dict(settings)


def topic_info(topic: Topic) -> TopicInfo:
    """A topic as a reply has it."""
    partitions = [
        PartitionInfo(each.partition, each.first, each.end, each.size_bytes, each.unavailable or each.state)
        for each in topic.partitions
    ]
    return TopicInfo(topic.name, topic.id, topic.settings, partitions)


OPERATIONS = [
    HttpOperation(
        method="GET", path="/api/v1/topics", name="listTopics", tag="topics", handler=list_topics,
        summary="All topics, with their settings and partitions", gives=list[TopicInfo],
    ),
    HttpOperation(
        method="POST", path="/api/v1/topics", name="createTopic", tag="topics", handler=create_topic,
        summary="Make a topic", takes=(JSON,), body=NewTopic, gives=TopicInfo, status=201,
    ),
    HttpOperation(
        method="GET", path="/api/v1/topics/{topic}", name="getTopic", tag="topics", handler=get_topic,
        summary="One topic", gives=TopicInfo,
    ),
    HttpOperation(
        method="PATCH", path="/api/v1/topics/{topic}", name="alterTopic", tag="topics", handler=alter_topic,
        summary="Change settings of a topic, or add partitions", takes=(JSON,), body=TopicChange, gives=TopicInfo,
    ),
    HttpOperation(
        method="DELETE", path="/api/v1/topics/{topic}", name="deleteTopic", tag="topics", handler=delete_topic,
        summary="Delete a topic with its messages and consumers", status=204,
    ),
    HttpOperation(
        method="POST", path="/api/v1/topics/{topic}/trim", name="trimTopic", tag="topics", handler=trim_topic,
        summary="Remove the oldest messages, whatever groups still have to do with them", takes=(JSON,), body=TrimBody,
        gives=list[TrimmedBody],
    ),
]  # fmt: skip
