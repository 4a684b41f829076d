"""XINFO: what there is to say about a stream and its groups."""

from __future__ import annotations

from typing import Any

from ...broker.errors import UnknownGroup
from ...clients.queues.descriptions import Queue
from ...transport.queue_messages import QueueWorker
from ..leases import held, workers
from ..link import BrokerLink, TopicPlace
from .command import Command, RespSession, may, sees
from .groups import no_group
from .names import group_of_name, name_of_group
from .pending import LISTED_MAX, id_of
from .places import existing
from .refusals import SYNTAX, CommandRefused, whole
from .replies import Encoded
from .streams import entries, last_entries, length

FULL_COUNT = 10
"""Entries of each list of XINFO STREAM FULL, if not said otherwise."""


async def xinfo(session: RespSession, arguments: list[bytes]) -> Any:
    """XINFO."""
    what, rest = arguments[0].upper(), arguments[1:]
    about = _ABOUT.get(what)
    if about is None or not rest:
        raise CommandRefused("XINFO is XINFO STREAM key [FULL [COUNT n]], GROUPS key or CONSUMERS key group here")
    return await about(session, await existing(session, rest[0], "read"), rest)


# -- streams -----------------------------------------------------------------------------------------------


async def _stream(session: RespSession, place: TopicPlace, words: list[bytes]) -> Any:
    link = session.door.link
    first = await entries(session, place, place.first, place.end, 1)
    last = await last_entries(session, place, place.first, place.end, 1)
    ids = [_id_of(entry[0]) if entry else b"0-0" for entry in (first, last)]
    facts = {
        "length": await length(link, place), "radix-tree-keys": 1, "radix-tree-nodes": 2,
        "last-generated-id": ids[1], "max-deleted-entry-id": b"0-0", "entries-added": place.end,
        "recorded-first-entry-id": ids[0],
    }  # fmt: skip
    queues = await _queues(session, place)
    if len(words) > 1:
        return {**facts, **await _full(session, place, queues, _count(words[1:]))}
    ends = [Encoded(each[0]) if each else None for each in (first, last)]
    return {**facts, "groups": len(queues), "first-entry": ends[0], "last-entry": ends[1]}


def _count(words: list[bytes]) -> int:
    """COUNT of FULL: 0 for all."""
    if words[0].upper() != b"FULL" or len(words) not in (1, 3) or (len(words) == 3 and words[1].upper() != b"COUNT"):
        raise CommandRefused(SYNTAX)
    return whole(words[2], "COUNT") or LISTED_MAX if len(words) == 3 else FULL_COUNT


async def _full(session: RespSession, place: TopicPlace, queues: list[Queue], count: int) -> Any:
    found = await entries(session, place, place.first, place.end, count)
    return {
        "entries": [Encoded(each) for each in found],
        "groups": [await _full_group(session, place, queue, count) for queue in queues],
    }


async def _full_group(session: RespSession, place: TopicPlace, queue: Queue, count: int) -> Any:
    link = session.door.link
    may(session, "read", place.topic.name, queue.name)
    facts = await _group(link, place, queue)
    pending, _ = await held(link, place, queue.name, count)
    consumers = [
        await _full_consumer(link, place, queue.name, each, count)
        for each in (await workers(link, place, queue.name)).workers
    ]
    return {
        "name": facts["name"], "last-delivered-id": facts["last-delivered-id"], "entries-read": facts["entries-read"],
        "lag": facts["lag"], "pel-count": facts["pending"],
        "pel": [
            [await id_of(link, place, each.offset), each.worker, max(each.given_us, 0) // 1000, each.attempt]
            for each in pending
        ],
        "consumers": consumers,
    }  # fmt: skip


async def _full_consumer(link: BrokerLink, place: TopicPlace, group: str, worker: QueueWorker, count: int) -> Any:
    pending = (await held(link, place, group, count, worker=worker.name))[0] if worker.pending else []
    seen_us, active_us = _times(worker)
    return {
        "name": worker.name, "seen-time": max(seen_us, 0) // 1000, "active-time": active_us // 1000,
        "pel-count": worker.pending,
        "pel": [
            [await id_of(link, place, each.offset), max(each.given_us, 0) // 1000, each.attempt] for each in pending
        ],
    }  # fmt: skip


def _id_of(entry: bytes) -> bytes:
    """The id of an encoded entry."""
    return entry.split(b"\r\n", 3)[2]


# -- groups and consumers ----------------------------------------------------------------------------------


async def _groups(session: RespSession, place: TopicPlace, words: list[bytes]) -> Any:
    link = session.door.link
    return [await _group(link, place, queue) for queue in await _queues(session, place)]


async def _queues(session: RespSession, place: TopicPlace) -> list[Queue]:
    """The queue groups of a topic that the session may know of."""
    found = await session.door.link.client.queues(place.topic.name)
    return [queue for queue in found if sees(session, place.topic.name, queue.name)]


async def _group(link: BrokerLink, place: TopicPlace, queue: Queue) -> dict[str, Any]:
    """One group. What it has not had yet is the end of the stream."""
    counts = next((each for each in queue.partitions if each.partition == place.partition), None)
    lag = 0 if counts is None else counts.ready + counts.delayed + counts.retrying
    had = place.end - lag  # the offset of the first one that it has not had
    last = b"0-0" if had <= place.first else await id_of(link, place, had - 1)
    count = link.entries_read.count(place.topic.name, queue.name, had)
    consumers = len((await workers(link, place, queue.name)).workers)
    return {
        "name": name_of_group(queue.name), "consumers": consumers, "pending": counts.in_flight if counts else 0,
        "last-delivered-id": last, "entries-read": count or None, "lag": place.end - count,
    }  # fmt: skip


async def _consumers(session: RespSession, place: TopicPlace, words: list[bytes]) -> Any:
    if len(words) != 2:
        raise CommandRefused(SYNTAX)
    link, group = session.door.link, group_of_name(words[1])
    may(session, "read", place.topic.name, group)
    try:
        found = await workers(link, place, group)
    except UnknownGroup:
        raise no_group(words[0], words[1]) from None
    return [_consumer(each, found.now_us) for each in found.workers]


def _consumer(worker: QueueWorker, now_us: int) -> dict[str, Any]:
    """One consumer: idle since it was made or got something last, inactive since it got something; -1: it never did."""
    seen_us, active_us = _times(worker)
    idle_ms, inactive_ms = (max(now_us - time_us, 0) // 1000 for time_us in (seen_us, active_us))
    return {
        "name": worker.name, "pending": worker.pending, "idle": idle_ms,
        "inactive": inactive_ms if active_us >= 0 else -1,
    }  # fmt: skip


def _times(worker: QueueWorker) -> tuple[int, int]:
    """When a consumer was seen last, and when it last got something: -1 if it never did."""
    return max(worker.first_us, worker.last_us), worker.last_us


_ABOUT = {b"STREAM": _stream, b"GROUPS": _groups, b"CONSUMERS": _consumers}

COMMANDS = [
    Command(
        "XINFO", -2, xinfo, "streams", "XINFO STREAM key [FULL [COUNT n]] | GROUPS key | CONSUMERS key group",
        "Length, first and last entry; or what each group has had; or what each of its consumers has", "read",
        (2, 2, 1), ("readonly",),
    ),
]  # fmt: skip
