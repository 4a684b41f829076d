"""Redis Streams on topics: appending and reading, without groups."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from ...broker.errors import UnknownTopic
from ...broker.rights import Operation
from ...transport.messages import DeleteRecords
from ...transport.queue_messages import Counted
from ..asking import ask
from ..link import BrokerLink, TopicPlace
from ..reading import PlaceReading, deleted, news, offset_at
from .appends import append
from .command import Command, RespSession
from .entries import (
    FIRST,
    EntryId,
    encoded_entries,
    entry_id,
    following,
    lower_bound,
    upper_bound,
)
from .fields import EntryColumns, records_of
from .id_runs import id_runs
from .places import find, offsets_of
from .read_options import read_options
from .refusals import SYNTAX, CommandRefused, whole
from .replies import NULL_ARRAY, Encoded, array
from .tickets import EntryTicket, Tickets
from .trims import TrimTerms, trim_behind, trim_terms

REPLY_BYTES_MAX = 64 << 20
"""Of entries in one reply; more are to be asked for with COUNT."""

FETCH_BYTES = 1 << 20
FEW = 100
FEW_BYTES = 64 << 10
"""Of one question to the broker: for many entries, and where a client wants `FEW` at most."""

WINDOW = 1_000
"""Entries read at a time where they are wanted from the last one on."""

APPEND_AND_TRIM: tuple[Operation, ...] = ("write", "manage")
"""What XADD with MAXLEN or MINID needs: both are asked for before anything is appended."""

WAIT_S = 5.0
"""A question that waits for records is asked again after so long, so that those of closed connections end."""

LOOK_S = 0.25
"""How often a topic that is not there yet is looked for."""


# -- appending -------------------------------------------------------------------------------------------


def _before_fields(words: list[bytes]) -> int:
    """How many words an XADD has before its fields: all where there is no `*`."""
    return words.index(b"*", 2) + 1 if b"*" in words[2:] else len(words)


def xadd(session: RespSession, shared: list[bytes], columns: list[Sequence[bytes]]) -> Any:
    """XADD."""
    key, *words = shared
    create, terms = True, None
    while words and words[0] != b"*":
        option = words[0].upper()
        if option == b"NOMKSTREAM":
            create, words = False, words[1:]
        elif option in (b"MAXLEN", b"MINID") and terms is None:
            terms, words = trim_terms(words)
        else:
            _refuse_id(words[0])
    records = records_of(columns)
    if terms is not None and terms.limit is None:
        return _add_and_trim(session, key, records, terms, create)
    added = None if terms is None else partial(session.door.trims.added, session, key, terms, len(records.values))
    needs = ("write",) if terms is None else APPEND_AND_TRIM
    return append(session, key, records, EntryTicket, create=create, added=added, needs=needs)


async def _add_and_trim(session: RespSession, key: bytes, records: EntryColumns, terms: TrimTerms, create: bool) -> Any:
    """Add entries, and trim the stream when they are there."""
    found = append(session, key, records, EntryTicket, create=create, needs=APPEND_AND_TRIM)
    tickets = found if isinstance(found, Tickets) else await found
    if not isinstance(tickets, Tickets):
        return tickets
    for ticket in tickets:
        await ticket.settled()
    added = [ticket.reply() for ticket in tickets]
    if any(reply.startswith(b"$") for reply in added):
        await trim_behind(session, key, terms)
    return Encoded(b"".join(added))


def _refuse_id(word: bytes) -> None:
    if word.endswith(b"-*"):
        entry_id(word[:-2], 0)
    elif entry_id(word, 0) == FIRST:
        raise CommandRefused("The ID specified in XADD must be greater than 0-0")
    raise CommandRefused("the id has to be *: it says when and where the broker appended the entry")


# -- reading ---------------------------------------------------------------------------------------------


async def xlen(session: RespSession, arguments: list[bytes]) -> Any:
    """XLEN."""
    place = await find(session, arguments[0], "read")
    return 0 if place is None else await length(session.door.link, place)


async def length(link: BrokerLink, place: TopicPlace) -> int:
    """How many entries there are."""
    return place.end - place.first - sum(map(len, await deleted(link, place, place.first, place.end)))


async def entries(session: RespSession, place: TopicPlace, start: int, end: int, count: int | None) -> list[bytes]:
    """The entries from offset `start` on and below `end`, `count` at most, encoded."""
    link, found = session.door.link, list[bytes]()
    size = 0
    end = min(end, place.end)
    hidden = await deleted(link, place, start, end)
    async for batch in PlaceReading(
        link, place, start, end, FETCH_BYTES if count is None or count > FEW else FEW_BYTES
    ):
        some = encoded_entries(batch, start, end, None if count is None else count - len(found), hidden)
        found += some
        some_bytes = sum(map(len, some))
        session.hold(some_bytes)
        if len(found) == count:
            return found
        size += some_bytes
        if size > REPLY_BYTES_MAX:
            raise CommandRefused(f"the entries are over {REPLY_BYTES_MAX} bytes: ask for fewer with COUNT")
    return found


async def last_entries(session: RespSession, place: TopicPlace, start: int, end: int, count: int | None) -> list[bytes]:
    """As `entries`, from the last one on."""
    found: list[bytes] = []
    while end > start and (count is None or len(found) < count):
        window = WINDOW if count is None else min(WINDOW, count - len(found))
        begin = max(start, end - window)
        found += reversed(await entries(session, place, begin, end, None))
        if sum(map(len, found)) > REPLY_BYTES_MAX:
            raise CommandRefused(f"the entries are over {REPLY_BYTES_MAX} bytes: ask for fewer with COUNT")
        end = begin
    return found


def _count(words: list[bytes]) -> int | None:
    """COUNT of a range; None without one."""
    if not words:
        return None
    if len(words) != 2 or words[0].upper() != b"COUNT":
        raise CommandRefused(SYNTAX)
    return max(whole(words[1], "COUNT", -(1 << 63)), 0)


async def xdel(session: RespSession, arguments: list[bytes]) -> Any:
    """XDEL."""
    ids, link = id_runs(arguments[1:]), session.door.link
    place = await find(session, arguments[0], "manage")
    if place is None:
        return 0
    offsets = [offset for offset in await offsets_of(link, place, ids) if place.first <= offset < place.end]
    where, topic = [(place.partition, offset) for offset in offsets], place.topic
    answer, _ = await ask(
        link.driver,
        lambda request: DeleteRecords(request, topic.topic, where),
        Counted,
        f"deleting records of topic {topic.name}",
    )
    return answer.count


async def _range(
    session: RespSession, key: bytes, lowest: bytes, highest: bytes, words: list[bytes], *, backwards: bool
) -> Any:
    lower, upper, count = lower_bound(lowest), upper_bound(highest), _count(words)
    place = await find(session, key, "read")
    if place is None or count == 0:
        return []
    link = session.door.link
    start, end = await offset_at(link, place, *lower), await offset_at(link, place, *upper)
    found = last_entries if backwards else entries
    return Encoded(array(await found(session, place, start, end, count)))


async def xrange(session: RespSession, arguments: list[bytes]) -> Any:
    """XRANGE."""
    key, lowest, highest, *words = arguments
    return await _range(session, key, lowest, highest, words, backwards=False)


async def xrevrange(session: RespSession, arguments: list[bytes]) -> Any:
    """XREVRANGE."""
    key, highest, lowest, *words = arguments
    return await _range(session, key, lowest, highest, words, backwards=True)


class _Reading(NamedTuple):
    """One stream of an XREAD: entries from `start` on, an offset; None while there is no topic."""

    key: bytes
    start: int | None


def xread(session: RespSession, arguments: list[bytes]) -> Any:
    """XREAD."""
    keys, texts, count, block_s, _ = read_options("xread", arguments, "an ID, '+', or '$'")
    ids = [None if text in (b"$", b"+") else following(entry_id(text, 0)) for text in texts]
    waits = None if session.executing else block_s  # EXEC does not wait
    return _xread(session, keys, texts, ids, count, waits)


async def _xread(
    session: RespSession, keys: list[bytes], texts: list[bytes], ids: list[EntryId | None], count: int | None,
    block_s: float | None,
) -> Any:  # fmt: skip
    link, loop = session.door.link, asyncio.get_running_loop()
    until = loop.time() + (0.0 if block_s is None else block_s or float("inf"))
    starts: dict[int, tuple[bytes, int]] = {}  # by number of the stream, once it is known: its topic, and an offset
    while True:
        places = [await find(session, key, "read") for key in keys]
        found: list[tuple[bytes, Any]] = []
        for number, place in enumerate(places):
            topic, known = b"" if place is None else place.topic.topic, starts.get(number)
            if place is not None and known is None:
                starts[number] = topic, await _start(link, place, texts[number], ids[number])
            elif known is None or known[0] != topic:
                starts[number] = topic, 0  # everything of a topic that came meanwhile, or came anew
            if place is None:
                continue
            read_ = await entries(session, place, starts[number][1], place.end, count)
            if read_:
                found.append((keys[number], Encoded(array(read_))))
        if found:
            return dict(found) if session.version >= 3 else found
        left_s = until - loop.time()  # read once: a second look may find that the time is up
        if left_s <= 0.0:
            return NULL_ARRAY
        session.blocks(True)
        try:
            await _wait(link, places, min(left_s, WAIT_S))
        finally:
            session.blocks(False)


async def _start(link: BrokerLink, place: TopicPlace, text: bytes, id_: EntryId | None) -> int:
    """The offset from which an XREAD reads."""
    if id_ is not None:
        return await offset_at(link, place, *id_)
    return place.end if text == b"$" else max(place.end - 1, place.first)


async def _wait(link: BrokerLink, places: list[TopicPlace | None], seconds: float) -> None:
    there = [place for place in places if place is not None]
    if len(there) < len(places):
        seconds = min(seconds, LOOK_S)
    try:
        if there:
            await news(link, there, seconds)
        else:
            await asyncio.sleep(seconds)
    except UnknownTopic:
        await asyncio.sleep(0)  # deleted meanwhile: it is looked for again


COMMANDS = [
    Command(
        "XADD", -5, xadd, "streams",
        "XADD key [NOMKSTREAM] [MAXLEN|MINID [=|~] threshold [LIMIT n]] * field value [field value ...]",
        "Appends an entry and answers its id; the topic is made if it is not there", "write", (1, 1, 1),
        ("write", "fast"), shared=_before_fields,
    ),
    Command(
        "XDEL", -3, xdel, "streams", "XDEL key id [id ...]",
        "Deletes entries for Redis clients and all groups. Answers how many", "manage", (1, 1, 1), ("write",),
    ),
    Command(
        "XLEN", 2, xlen, "streams", "XLEN key", "How many entries can be read", "read", (1, 1, 1), ("readonly", "fast"),
    ),
    Command(
        "XRANGE", -4, xrange, "streams", "XRANGE key start end [COUNT n]",
        "Entries from one id to another: `-`, `+`, an id, milliseconds, or `(` before an id to leave it out", "read",
        (1, 1, 1), ("readonly",),
    ),
    Command(
        "XREVRANGE", -4, xrevrange, "streams", "XREVRANGE key end start [COUNT n]", "The same, from the last one on",
        "read", (1, 1, 1), ("readonly",),
    ),
    Command(
        "XREAD", -4, xread, "streams", "XREAD [COUNT n] [BLOCK ms] STREAMS key [key ...] id [id ...]",
        "Entries behind an id; `$` is the end as it is now, `+` the last entry", "read", flags=("readonly", "blocking"),
    ),
]  # fmt: skip
