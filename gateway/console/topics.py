"""Topics and consumer groups: lists, and a page of each."""

from __future__ import annotations

from typing import Literal

from ...clients.descriptions import Topic
from ..http.operation import HttpCall, Reply
from .making import ListQuery, Notice, PageMaker, groups_of, listed, queues_of, topics_of

PARTITIONS_MOST = 500


class TopicQuery(ListQuery, forbid_unknown_fields=True):
    """Which topics, and in which order."""

    sort: Literal["name", "rate", "records", "size"] = "name"


async def topics(maker: PageMaker, call: HttpCall) -> Reply:
    asked: TopicQuery = call.asked
    seen = await maker.sampler.look()
    by = {
        "rate": lambda topic: seen.latest(f"topic:{topic.name}") or 0.0,
        "records": lambda topic: topic.records,
        "size": lambda topic: topic.size_bytes,
    }
    found = topics_of(seen, call)
    if asked.sort != "name":
        found.sort(key=by[asked.sort], reverse=True)
    listing = listed(found, asked, lambda topic: topic.name)
    return await maker.page(call, "topics.html", "/console/topics", seen, listing=listing, sort=asked.sort)


async def topic(maker: PageMaker, call: HttpCall) -> Reply:
    name = call.path["topic"]
    call.may("see", name)
    seen = await maker.sampler.look()
    found: Topic = await maker.link.client.topic(name)
    return await maker.page(
        call, "topic.html", f"/console/topics/{name}", seen, topic=found, partitions_most=PARTITIONS_MOST,
        groups=[each for each in groups_of(seen, call) if each.topic == name],
        queues=[each for each in queues_of(seen, call) if each.topic == name],
        may_read=call.allows("read", name),
    )  # fmt: skip


async def groups(maker: PageMaker, call: HttpCall) -> Reply:
    seen = await maker.sampler.look()
    listing = listed(groups_of(seen, call), call.asked, lambda each: f"{each.topic}/{each.name}")
    return await maker.page(call, "groups.html", "/console/groups", seen, listing=listing)


async def group(maker: PageMaker, call: HttpCall, notice: Notice | None = None) -> Reply:
    topic, name = call.path["topic"], call.path["group"]
    call.may("see", topic, "group", name)
    found = await maker.link.client.group(topic, name)
    return await maker.page(
        call, "group.html", f"/console/groups/{topic}/{name}", group=found, notice=notice,
        may_seek=call.allows("read", topic) and call.allows("read", topic, "group", name),
    )  # fmt: skip
