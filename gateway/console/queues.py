"""Queue groups: a list, and a page of each with its workers and dead letters."""

from __future__ import annotations

from ...clients.queues.descriptions import DeadTask
from ...storage.errors import Error
from ..http.operation import HttpCall, Reply
from .making import Notice, PageMaker, listed, queues_of

DEAD_MOST = 50
WORKERS_MOST = 200


async def queues(maker: PageMaker, call: HttpCall) -> Reply:
    seen = await maker.sampler.look()
    listing = listed(queues_of(seen, call), call.asked, lambda each: f"{each.topic}/{each.name}")
    return await maker.page(call, "queues.html", "/console/queues", seen, listing=listing)


async def queue(maker: PageMaker, call: HttpCall, notice: Notice | None = None) -> Reply:
    topic, name, client = call.path["topic"], call.path["group"], maker.link.client
    call.may("see", topic, "group", name)
    found = await client.queue(topic, name)
    may_read = call.allows("read", topic) and call.allows("read", topic, "group", name)
    workers = await client.workers(topic, name) if may_read else []
    return await maker.page(
        call, "queue.html", f"/console/queues/{topic}/{name}", queue=found, notice=notice, may_read=may_read,
        may_manage=call.allows("manage", topic, "group", name), workers=workers[:WORKERS_MOST],
        more_workers=max(len(workers) - WORKERS_MOST, 0),
        dead=await _dead(maker, topic, name) if may_read and found.dead_lettered else [],
    )  # fmt: skip


async def _dead(maker: PageMaker, topic: str, name: str) -> list[DeadTask]:
    """The first dead letters; none where they cannot be read now, so that the page is there all the same."""
    try:
        return await maker.link.client.dead_letters(topic, name, max_records=DEAD_MOST)
    except Error:
        return []
