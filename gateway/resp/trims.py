"""Trimming streams: XTRIM, and MAXLEN and MINID of XADD.

Idea: exact trimming (`=`, as by default) is a request to the broker, and its reply waits for it. Trimming with `~`
removes whole hundreds of entries, or all, as Redis does; with XADD it runs beside the connection, after a hundred
entries of a place.

Contract: at most one trim per place runs beside connections. Entries that are trimmed leave their groups, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import Any, NamedTuple

from ...storage.errors import Error
from ...transport.messages import Trim, TrimmedTopic, TrimRule
from ..asking import ask
from ..link import BrokerLink, TopicPlace
from ..reading import offset_at
from .command import Command, RespSession
from .entries import EntryId, entry_id
from .places import find
from .refusals import SYNTAX, CommandRefused, whole
from .tickets import Ticket

log = logging.getLogger("penstock.gateway")

NODE = 100
"""Entries that are removed together by `~`."""

LIMIT = 100 * NODE
"""Entries that `~` removes at most, if not said otherwise."""

PLACES_MAX = 10_000


class TrimTerms(NamedTuple):
    """What stays: so many entries, or those from an id on. `limit`: the most that goes; None: exactly what has to."""

    keep: int | EntryId
    limit: int | None


def trim_terms(words: list[bytes]) -> tuple[TrimTerms, list[bytes]]:
    """The terms at the head of `words`, and the words behind. Raises CommandRefused."""
    strategy, *rest = words
    approximate = rest[:1] == [b"~"]
    if rest[:1] in ([b"~"], [b"="]):
        rest = rest[1:]
    if strategy.upper() not in (b"MAXLEN", b"MINID") or not rest:
        raise CommandRefused(SYNTAX)
    keep = whole(rest[0], "MAXLEN") if strategy.upper() == b"MAXLEN" else entry_id(rest[0], 0)
    limit, rest = LIMIT if approximate else None, rest[1:]
    if rest[:1] and rest[0].upper() == b"LIMIT" and len(rest) > 1:
        if not approximate:
            raise CommandRefused("syntax error, LIMIT cannot be used without the special ~ option")
        limit, rest = whole(rest[1], "LIMIT") or (1 << 62), rest[2:]
    return TrimTerms(keep, limit), rest


async def trim(link: BrokerLink, place: TopicPlace, terms: TrimTerms) -> int:
    """Trim a place, as it was just looked up. Returns how many entries went."""
    rule, value = TrimRule.OFFSET, 0
    if terms.limit is None and isinstance(terms.keep, int):
        rule, value = TrimRule.RECORDS, terms.keep
    else:
        first = place.end - terms.keep if isinstance(terms.keep, int) else await offset_at(link, place, *terms.keep)
        removed = max(first - place.first, 0)
        if terms.limit is not None:
            removed = min(removed, terms.limit)
            if removed < place.end - place.first:
                removed = removed // NODE * NODE
        if not removed:
            return 0
        value = place.first + removed
    topic = place.topic
    answer, _ = await ask(
        link.driver,
        lambda request: Trim(request, topic.topic, rule, value, place.partition),
        TrimmedTopic,
        f"trimming topic {topic.name}",
    )
    return sum(each.first - each.before for each in answer.partitions)


async def trim_behind(session: RespSession, key: bytes, terms: TrimTerms) -> None:
    """Trim a stream whose entries were just appended. They are there, so an error is for the log, not for a client."""
    try:
        place = await find(session, key, "manage")
        if place is not None:
            await trim(session.door.link, place, terms)
    except (CommandRefused, Error) as error:
        log.warning("a stream is not trimmed: %s", error)


async def xtrim(session: RespSession, arguments: list[bytes]) -> Any:
    """XTRIM."""
    terms, rest = trim_terms(arguments[1:])
    if rest:
        raise CommandRefused(SYNTAX)
    place = await find(session, arguments[0], "manage")
    return 0 if place is None else await trim(session.door.link, place, terms)


class TrimsBeside:
    """Trims that run beside connections, after every `NODE` entries that were added to a key with them."""

    def __init__(self) -> None:
        self._added: OrderedDict[bytes, int] = OrderedDict()  # since the last trim of a key began
        self._running: dict[bytes, asyncio.Task[None]] = {}
        self._newest: dict[bytes, _Wanted] = {}  # of keys with a trim that runs: what came meanwhile

    def added(self, session: RespSession, key: bytes, terms: TrimTerms, count: int, ticket: Ticket) -> None:
        """Note entries that are on their way to a key, of which `ticket` has the last."""
        self._added[key] = self._added.get(key, 0) + count
        wanted = _Wanted(session, terms, ticket)
        if key in self._running:
            self._newest[key] = wanted
        elif self._added[key] >= NODE:
            self._begin(key, wanted)
        elif len(self._added) > PLACES_MAX:
            self._added.popitem(last=False)

    def _begin(self, key: bytes, wanted: _Wanted) -> None:
        del self._added[key]
        self._running[key] = asyncio.get_running_loop().create_task(self._trim(key, wanted))

    async def _trim(self, key: bytes, wanted: _Wanted) -> None:
        """Trim a stream once entries are there, and with them those before."""
        try:
            await wanted.ticket.settled()
            await trim_behind(wanted.session, key, wanted.terms)
        finally:
            del self._running[key]
            newest = self._newest.pop(key, None)
        if newest is not None and self._added.get(key, 0) >= NODE:
            self._begin(key, newest)


class _Wanted(NamedTuple):
    """A trim as the newest command with one wants it, once the entries of `ticket` are there."""

    session: RespSession
    terms: TrimTerms
    ticket: Ticket


COMMANDS = [
    Command(
        "XTRIM", -4, xtrim, "streams", "XTRIM key MAXLEN|MINID [=|~] threshold [LIMIT n]",
        "Removes the first entries, for groups too; with ~ by whole hundreds. Answers how many", "manage", (1, 1, 1),
        ("write",),
    ),
]  # fmt: skip
