"""What consumers have not acknowledged: XPENDING lists it, XCLAIM and XAUTOCLAIM give it to others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import structs

from ...broker.errors import UnknownGroup, UnknownTopic
from ...transport.queue_messages import Claim, Leased
from ..leases import LeaseTerms, claim, held, workers
from ..link import BrokerLink, TopicPlace
from ..reading import append_time_ms, offset_at
from .command import Command, RespSession, may
from .entries import FIRST, LAST, EntryId, entry_id, id_text, lower_bound, upper_bound
from .groups import REPLY_BYTES, entries_of, no_group
from .id_runs import id_runs
from .names import group_of_name, worker_of_name
from .places import find, offsets_of
from .refusals import SYNTAX, CommandRefused, whole
from .replies import Encoded

LISTED_MAX = 100_000
"""Entries of one answer."""


async def xpending(session: RespSession, arguments: list[bytes]) -> Any:
    """XPENDING."""
    key, name, *words = arguments
    place, link, group = await find(session, key, "read"), session.door.link, group_of_name(name)
    try:
        if place is not None:
            may(session, "read", place.topic.name, group)
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


# -- claiming ----------------------------------------------------------------------------------------------


async def xclaim(session: RespSession, arguments: list[bytes]) -> Any:
    """XCLAIM."""
    key, name, consumer, idle, *words = arguments
    named = next((at for at, word in enumerate(words) if not word[:1].isdigit()), len(words))
    ids, (terms, just_ids) = id_runs(words[:named]), _claim_options(words[named:])

    async def run(link: BrokerLink, place: TopicPlace, wanted: Claim) -> Any:
        offsets = await offsets_of(link, place, ids)
        if not offsets:
            return []
        wanted = structs.replace(wanted, offsets=sorted(offsets), **terms)
        found = await claim(link, place, wanted, len(offsets))
        return (await _claimed(link, place, wanted, found, just_ids))[0]

    return await _claiming(session, key, name, consumer, idle, run)


async def xautoclaim(session: RespSession, arguments: list[bytes]) -> Any:
    """XAUTOCLAIM."""
    key, name, consumer, idle, start, *words = arguments
    lowest, count, just_ids = lower_bound(start), 100, False
    while words:
        option = words.pop(0).upper()
        if option == b"COUNT" and words:
            count = min(whole(words.pop(0), "COUNT", 1), LISTED_MAX)
        elif option == b"JUSTID":
            just_ids = True
        else:
            raise CommandRefused(SYNTAX)

    async def run(link: BrokerLink, place: TopicPlace, wanted: Claim) -> Any:
        terms = {"attempt": 0, "max_bytes": 0} if just_ids else {}
        offset = max(await _offset(link, place, lowest), 0)
        found = await claim(link, place, structs.replace(wanted, offset=offset, **terms), count, REPLY_BYTES)
        entries, gone = await _claimed(link, place, wanted, found, just_ids)
        following = found[-1][0].next_offset if found else -1
        return [b"0-0" if following < 0 else await id_of(link, place, following), entries, gone]

    return await _claiming(session, key, name, consumer, idle, run)


async def _claiming(
    session: RespSession, key: bytes, name: bytes, consumer: bytes, idle: bytes,
    run: Callable[[BrokerLink, TopicPlace, Claim], Awaitable[Any]],
) -> Any:  # fmt: skip
    group, worker, idle_ms = group_of_name(name), worker_of_name(consumer), whole(idle, "min-idle-time", -(1 << 63))
    place = await find(session, key, "read")
    try:
        if place is not None:
            may(session, "read", place.topic.name, group)
            wanted = Claim(0, place.topic.topic, group, worker, place.partition, min_idle_ms=max(idle_ms, 0))
            return await run(session.door.link, place, wanted)
    except (UnknownGroup, UnknownTopic):
        pass
    raise no_group(key, name)


def _claim_options(words: list[bytes]) -> tuple[dict[str, Any], bool]:
    """Options of XCLAIM as fields of a Claim, and whether only ids are wanted."""
    terms: dict[str, Any] = {}
    just_ids = False
    while words:
        option = words.pop(0).upper()
        if option == b"FORCE":
            terms["force"] = True
        elif option == b"JUSTID":
            just_ids = True
            terms = {"attempt": 0, "max_bytes": 0, **terms}
        elif option in (b"IDLE", b"TIME", b"RETRYCOUNT", b"LASTID") and words:
            terms |= _claim_term(option, words.pop(0))
        else:
            raise CommandRefused(SYNTAX)
    return terms, just_ids


def _claim_term(option: bytes, text: bytes) -> dict[str, Any]:
    if option == b"LASTID":
        entry_id(text, 0)  # of replication, in Redis
        return {}
    number = whole(text, option.decode())
    if option == b"RETRYCOUNT":
        return {"attempt": max(number, 1)}
    return {"given_us": -number * 1000 if option == b"IDLE" else number * 1000}


async def _claimed(
    link: BrokerLink, place: TopicPlace, wanted: Claim, found: list[tuple[Leased, bytes]], just_ids: bool
) -> tuple[list[Any], list[bytes]]:
    """What was claimed, and the ids of what is not there any more."""
    entries: list[Any] = []
    gone: list[bytes] = []
    terms = LeaseTerms(place, wanted.group, wanted.worker, 0, 0)
    for answer, payload in found:
        gone += [await id_of(link, place, offset) for offset in answer.gone]
        if just_ids:
            offsets = [at for first, count, _ in answer.runs for at in range(first, first + count)]
            entries += [await id_of(link, place, offset) for offset in offsets]
        else:
            entries += map(Encoded, await entries_of(link, terms, answer, payload))
    return entries, gone


COMMANDS = [
    Command(
        "XCLAIM", -6, xclaim, "groups",
        "XCLAIM key group consumer min-idle id [id ...] [IDLE ms] [TIME ms] [RETRYCOUNT n] [FORCE] [JUSTID]",
        "Gives entries that other consumers have to this one, if they have had them for so long", "write", (1, 1, 1),
        ("write", "fast"),
    ),
    Command(
        "XAUTOCLAIM", -6, xautoclaim, "groups", "XAUTOCLAIM key group consumer min-idle start [COUNT n] [JUSTID]",
        "The same for all from an id on, 100 if not said otherwise. Answers with which id to go on, too", "write",
        (1, 1, 1), ("write", "fast"),
    ),
    Command(
        "XPENDING", -3, xpending, "groups", "XPENDING key group [[IDLE ms] start end count [consumer]]",
        "What consumers have not acknowledged: how much each has; or a list with how long, and how often delivered",
        "read", (1, 1, 1), ("readonly",),
    ),
]  # fmt: skip
