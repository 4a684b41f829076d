"""What consumers of groups have and have not acknowledged: XPENDING."""

from __future__ import annotations

from typing import Any

from ...broker.errors import UnknownGroup, UnknownTopic
from ..leases import held, workers
from ..link import BrokerLink, TopicPlace
from ..reading import append_time_ms, offset_at
from .command import Command, RespSession
from .entries import FIRST, LAST, EntryId, id_text, lower_bound, upper_bound
from .groups import no_group
from .names import group_of_name, worker_of_name
from .places import find
from .refusals import SYNTAX, CommandRefused, whole

LISTED_MAX = 100_000
"""Entries of one answer."""


async def xpending(session: RespSession, arguments: list[bytes]) -> Any:
    """XPENDING."""
    key, name, *words = arguments
    place, link, group = await find(session, key, "read"), session.door.link, group_of_name(name)
    try:
        if place is not None:
            return await (_listed(link, place, group, words) if words else _summary(link, place, group))
    except (UnknownGroup, UnknownTopic):
        pass
    raise no_group(key, name)


async def _summary(link: BrokerLink, place: TopicPlace, group: str) -> Any:
    """How many, the first and the last, and how many each consumer has."""
    found = await workers(link, place, group)
    here = next((each for each in found.partitions if each.partition == place.partition), None)
    if here is None or not here.pending:
        return [0, None, None, None]
    ends = [await id_of(link, place, offset) for offset in (here.lowest, here.highest)]
    return [here.pending, *ends, [[each.name, b"%d" % each.pending] for each in found.workers if each.pending]]


async def _listed(link: BrokerLink, place: TopicPlace, group: str, words: list[bytes]) -> Any:
    """[IDLE ms] start end count [consumer]: ids, consumers, for how long, and how often delivered."""
    idle_ms = 0
    if words[0].upper() == b"IDLE" and len(words) > 1:
        idle_ms, words = whole(words[1], "IDLE"), words[2:]
    if len(words) not in (3, 4):
        raise CommandRefused(SYNTAX)
    count = min(whole(words[2], "count", -(1 << 63)), LISTED_MAX)
    start, end = await _offset(link, place, lower_bound(words[0])), await _offset(link, place, upper_bound(words[1]))
    worker = worker_of_name(words[3]) if len(words) == 4 else None
    if count <= 0 or (0 <= end <= start):
        return []
    found, now_us = await held(link, place, group, count, start=start, end=end, worker=worker, min_idle_ms=idle_ms)
    return [
        [await id_of(link, place, each.offset), each.worker, max(now_us - each.given_us, 0) // 1000, each.attempt]
        for each in found
    ]


async def _offset(link: BrokerLink, place: TopicPlace, id_: EntryId) -> int:
    """The offset of a bound, -1 for that of all ids. Records that are gone have no place in between."""
    if id_ in (FIRST, LAST):
        return 0 if id_ == FIRST else -1
    return await offset_at(link, place, *id_)


async def id_of(link: BrokerLink, place: TopicPlace, offset: int) -> bytes:
    """The id of a record."""
    return id_text(await append_time_ms(link, place, offset), offset)


COMMANDS = [
    Command(
        "XPENDING", -3, xpending, "groups", "XPENDING key group [[IDLE ms] start end count [consumer]]",
        "What consumers have not acknowledged: how much each has; or a list with how long, and how often delivered",
        "read", (1, 1, 1), ("readonly",),
    ),
]  # fmt: skip
