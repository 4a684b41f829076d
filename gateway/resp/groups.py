"""Groups of Redis Streams: queue groups whose leases last until they are settled (decision 072).

Idea: XREADGROUP leases records for a worker with the consumer's name, XACK settles them by their offsets. A group of a
topic with several partitions is one group, whichever partition names it.

Contract: what was delivered stays with its consumer until it is acknowledged. Of an id, the time has to be that of the
record, too: ids that were made up, or are of a deleted topic, acknowledge nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple, TypeVar

from ...broker.errors import UnknownGroup, UnknownTopic
from ...broker.rights import Operation
from ...clients.queues.picking import Unreadable, pick
from ...storage.batch import Batch
from ...storage.errors import Error
from ...transport.messages import EARLIEST, Done
from ...transport.queue_messages import Claim, Leased, ResetQueue, Verb
from ..asking import ask
from ..leases import LEASE_RECORDS_MAX, LeaseTerms, Taken, claim, pass_over, set_worker, settle, take
from ..link import BrokerLink, TopicPlace
from ..reading import append_time_ms, offset_at
from .command import Command, RespSession, may
from .entries import FIRST, EntryId, encoded, entry_id, following, id_text
from .id_runs import id_runs
from .names import group_of_name, topic_of_key, worker_of_name
from .places import at, find, ranges_of
from .read_options import ReadOptions, read_options
from .refusals import SYNTAX, CommandRefused, whole
from .replies import NULL_ARRAY, Encoded, Status, array, bulk, encode

T = TypeVar("T")

SETTINGS = {"lease_s": None, "max_attempts": None, "backoff_s": 0}
"""Of groups that are made here: a record is with its consumer until it is acknowledged (decision 59)."""

REPLY_BYTES = 16 << 20
"""About so many of records in one reply; a client has the others by its next XREADGROUP."""


def no_group(key: bytes, group: bytes) -> CommandRefused:
    """The error of a group that is not there, in words that clients know."""
    names = [name[:60].decode("utf-8", "replace") for name in (key, group)]
    return CommandRefused(f"No such key '{names[0]}' or consumer group '{names[1]}'", "NOGROUP")


# -- XGROUP ------------------------------------------------------------------------------------------------


def xgroup(session: RespSession, arguments: list[bytes]) -> Any:
    """XGROUP."""
    what, rest = arguments[0].upper(), arguments[1:]
    subcommand = _SUBCOMMANDS.get(what)
    if subcommand is None or len(rest) < subcommand.arity:
        shown = what[:32].decode("latin-1")
        raise CommandRefused(f"unknown subcommand or wrong number of arguments for 'XGROUP {shown}'")
    return subcommand.run(session, rest)


async def _create(session: RespSession, arguments: list[bytes]) -> Any:
    """CREATE key group id [MKSTREAM] [ENTRIESREAD n]."""
    key, name, start, *words = arguments
    makes, count = False, -1
    while words:
        option = words.pop(0).upper()
        if option == b"ENTRIESREAD" and words:
            count = whole(words.pop(0), "ENTRIESREAD", -1)
        elif option == b"MKSTREAM":
            makes = True
        else:
            raise CommandRefused(SYNTAX)
    group = group_of_name(name)
    id_ = None if start == b"$" else entry_id(start, 0)
    place, link = await find(session, key, "see"), session.door.link
    may(session, "manage", topic_of_key(key) if place is None else place.topic.name, group)
    if place is None and makes:
        place = await find(session, key, "see", create=True)
    if place is None:
        raise CommandRefused(
            "The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM "
            "option to create an empty stream automatically."
        )
    topic = place.topic.name
    if any(each.name == group for each in await link.client.queues(topic)):
        raise CommandRefused("Consumer Group name already exists", "BUSYGROUP")
    await link.client.set_queue(topic, group, start="latest" if id_ is None else "earliest", **SETTINGS)
    if id_ not in (None, FIRST):
        await _go_on_behind(link, place, group, id_)
    link.entries_read.set(topic, group, count)
    return Status("OK")


async def _set_id(session: RespSession, arguments: list[bytes]) -> Any:
    """SETID key group id [ENTRIESREAD n]."""
    key, name, start, *words = arguments
    if words and (len(words) != 2 or words[0].upper() != b"ENTRIESREAD"):
        raise CommandRefused(SYNTAX)
    count = whole(words[1], "ENTRIESREAD", -1) if words else -1
    id_, place = None if start == b"$" else entry_id(start, 0), await _existing(session, key, name)
    try:
        await _go_on_behind(session.door.link, place, group_of_name(name), id_)
    except UnknownGroup:
        raise no_group(key, name) from None
    session.door.link.entries_read.set(place.topic.name, group_of_name(name), count)
    return Status("OK")


async def _go_on_behind(link: BrokerLink, place: TopicPlace, group: str, id_: EntryId | None) -> None:
    """Let a group go on behind an id; None: behind all entries."""
    topic = place.topic
    offset = place.end if id_ is None else await offset_at(link, place, *following(id_))
    positions = [(place.partition, max(offset, place.first))]
    await ask(
        link.driver, lambda request: ResetQueue(request, topic.topic, group, EARLIEST, positions), Done,
        f"setting group {group} of topic {topic.name}",
    )  # fmt: skip


async def _destroy(session: RespSession, arguments: list[bytes]) -> Any:
    """DESTROY key group."""
    key, name = arguments
    place = await _existing(session, key, name)
    try:
        await session.door.link.client.delete_queue(place.topic.name, group_of_name(name))
    except UnknownGroup:
        return 0
    return 1


async def _create_consumer(session: RespSession, arguments: list[bytes]) -> Any:
    """CREATECONSUMER key group consumer."""
    return await _set_consumer(session, arguments, known=True)


async def _delete_consumer(session: RespSession, arguments: list[bytes]) -> Any:
    """DELCONSUMER key group consumer: what it has is done."""
    return await _set_consumer(session, arguments, known=False)


async def _set_consumer(session: RespSession, arguments: list[bytes], *, known: bool) -> int:
    key, name, consumer = arguments
    place, link = await _existing(session, key, name, "read"), session.door.link
    try:
        return await set_worker(link, place, group_of_name(name), worker_of_name(consumer), known=known)
    except UnknownGroup:
        raise no_group(key, name) from None


async def _existing(session: RespSession, key: bytes, name: bytes, operation: Operation = "manage") -> TopicPlace:
    """The place of a key, on whose group the session may do this."""
    place = await find(session, key, "read" if operation == "read" else "see")
    if place is None:
        raise CommandRefused("The XGROUP subcommand requires the key to exist.")
    may(session, operation, place.topic.name, group_of_name(name))
    return place


class _Subcommand(NamedTuple):
    arity: int
    run: Callable[[RespSession, list[bytes]], Awaitable[Any]]


_SUBCOMMANDS = {
    b"CREATE": _Subcommand(3, _create),
    b"DESTROY": _Subcommand(2, _destroy),
    b"SETID": _Subcommand(3, _set_id),
    b"CREATECONSUMER": _Subcommand(3, _create_consumer),
    b"DELCONSUMER": _Subcommand(3, _delete_consumer),
}


# -- XREADGROUP --------------------------------------------------------------------------------------------


def xreadgroup(session: RespSession, arguments: list[bytes]) -> Any:
    """XREADGROUP."""
    if arguments[0].upper() != b"GROUP":
        raise CommandRefused("Missing GROUP option for XREADGROUP")
    group, consumer = arguments[1], worker_of_name(arguments[2])
    options = read_options("xreadgroup", arguments[3:], "an ID or '>'", flags=[b"NOACK"])
    if any(id_ != b">" for id_ in options.ids):
        return _read_again(session, group, consumer, options)
    waits_s = None if session.executing else options.block_s  # EXEC does not wait
    return _read(session, group, consumer, options, waits_s)


async def _read(session: RespSession, name: bytes, consumer: str, options: ReadOptions, waits_s: float | None) -> Any:
    group, link = group_of_name(name), session.door.link
    count = min(options.most or LEASE_RECORDS_MAX, LEASE_RECORDS_MAX)
    wait_s = 0.0 if waits_s is None else waits_s or float("inf")

    async def take_from(places: list[TopicPlace]) -> list[Taken | None]:
        def check() -> None:
            for place in places:
                _may_work(session, place, group)

        check()
        most = REPLY_BYTES // len(places)
        wanted = [_terms(place, group, consumer, count, most, options) for place in places]
        return await take(link, wanted, wait_s, check)

    session.blocks(wait_s > 0.0)
    try:
        taken = await at(session, options.keys, "read", take_from)
    except (UnknownGroup, UnknownTopic):
        taken = None
    finally:
        session.blocks(False)
    if taken is None:
        raise no_group(options.keys[0], name)
    found: list[tuple[bytes, Any]] = []
    for key, each in zip(options.keys, taken, strict=True):
        if each is not None and (entries := await _entries(link, each)):
            found.append((key, Encoded(array(entries))))
    if not found:
        return NULL_ARRAY
    return dict(found) if session.version >= 3 else found


async def _read_again(session: RespSession, name: bytes, consumer: str, options: ReadOptions) -> Any:
    """Entries that the consumer has already, behind ids. Waits for nothing."""
    group, link, found = group_of_name(name), session.door.link, list[tuple[bytes, Any]]()
    most = min(options.most or LEASE_RECORDS_MAX, LEASE_RECORDS_MAX)
    places = [await _readable(session, key, name) for key in options.keys]
    for key, text, place in zip(options.keys, options.ids, places, strict=True):
        behind = None if text == b">" else following(entry_id(text, 0))
        try:
            terms = _terms(place, group, consumer, most, REPLY_BYTES // len(places), options)
            if behind is None:
                (taken,) = await take(link, [terms], 0.0, partial(_may_work, session, place, group))
                entries = [] if taken is None else await _entries(link, taken)
            else:
                offset = await offset_at(link, place, *behind)
                if offset <= place.first:  # entries that were trimmed may be pending
                    offset = min(max(behind.offset - 1, 0), offset)
                entries = await _own(link, terms, offset, session.version)
        except (UnknownGroup, UnknownTopic):
            raise no_group(key, name) from None
        if entries or behind is not None:
            found.append((key, Encoded(array(entries))))
    if not found:
        return NULL_ARRAY
    return dict(found) if session.version >= 3 else found


def _may_work(session: RespSession, place: TopicPlace, group: str) -> None:
    may(session, "read", place.topic.name)
    may(session, "read", place.topic.name, group)


async def _readable(session: RespSession, key: bytes, name: bytes) -> TopicPlace:
    """The place of a key whose group the session may read."""
    place = await find(session, key, "read")
    if place is None:
        raise no_group(key, name)
    may(session, "read", place.topic.name, group_of_name(name))
    return place


def _terms(
    place: TopicPlace, group: str, consumer: str, most: int, max_bytes: int, options: ReadOptions
) -> LeaseTerms:  # fmt: skip
    return LeaseTerms(place, group, consumer, most, max_bytes, takes=(b"NOACK" in options.flags), remember=True)


async def _own(link: BrokerLink, terms: LeaseTerms, offset: int, version: int) -> list[bytes]:
    """The entries of a consumer from an offset on. Delivering them again counts, as in Redis."""
    place, worker = terms.place, terms.worker
    wanted = Claim(0, place.topic.topic, terms.group, worker, place.partition, offset=offset, holder=worker)
    entries: list[bytes] = []
    for answer, payload in await claim(link, place, wanted, terms.most, terms.max_bytes):
        for gone in answer.gone:
            id_ = id_text(await append_time_ms(link, place, gone), gone)
            entries.append(array([bulk(id_), encode(NULL_ARRAY, version)]))
        entries += await entries_of(link, terms, answer, payload)
    if not entries:
        await set_worker(link, place, terms.group, worker, known=True)
    return entries


async def entries_of(link: BrokerLink, terms: LeaseTerms, answer: Leased, payload: bytes) -> list[bytes]:
    """The entries of a claim."""
    taken = Taken(terms, answer.partition, answer.token, answer.until_us, answer.runs, payload)
    return await _entries(link, taken) if answer.runs else []


async def _entries(link: BrokerLink, taken: Taken) -> list[bytes]:
    """The entries of a lease. Unreadable ones are passed over."""
    found: list[bytes] = []
    bad: list[tuple[int, Error]] = []
    place = taken.wanted.place
    for rows in pick(taken.payload, [(first, count) for first, count, _ in taken.runs], Batch.append_times):
        if isinstance(rows, Unreadable):
            bad += [(offset, rows.error) for offset in range(rows.offset, rows.offset + rows.count)]
            continue
        values, keys, headers, offsets, each_time = rows
        times = list(each_time)
        found += encoded(values, _some(keys), _some(headers), offsets, times)
        link.append_times.note((place.topic.topic, place.partition), offsets, times)
    if bad and taken.token:
        await pass_over(link, taken, bad)
    return found


def _some(column: Iterable[T]) -> Iterable[T] | None:
    """A column, None if it says the same of all records: that they have none."""
    return None if isinstance(column, repeat) else column


# -- XACK --------------------------------------------------------------------------------------------------


async def xack(session: RespSession, shared: list[bytes], columns: list[Sequence[bytes]]) -> Any:
    """XACK."""
    key, name = shared
    named = [id_runs(texts) for texts in zip(*columns, strict=True)]
    group, link = group_of_name(name), session.door.link

    async def acknowledge(places: list[TopicPlace]) -> list[int]:
        (place,) = places
        may(session, "read", place.topic.name, group)
        return await settle(link, place, group, [await ranges_of(link, place, ids) for ids in named], Verb.ACK)

    counts = None
    with suppress(UnknownGroup, UnknownTopic):
        counts = await at(session, [key], "read", acknowledge)
    return Encoded(b"".join([b":%d\r\n" % count for count in counts or [0] * len(named)]))


COMMANDS = [
    Command(
        "XGROUP", -2, xgroup, "groups",
        "XGROUP CREATE key group id|$ [MKSTREAM] [ENTRIESREAD n] | SETID key group id|$ [ENTRIESREAD n] "
        "| DESTROY key group | CREATECONSUMER key group consumer | DELCONSUMER key group consumer",
        "Makes a group of consumers, which begins behind an id or all entries; moves or deletes it; adds or ends "
        "a consumer",
        "manage",
        (2, 2, 1), ("write",),
    ),
    Command(
        "XREADGROUP", -7, xreadgroup, "groups",
        "XREADGROUP GROUP group consumer [COUNT n] [BLOCK ms] [NOACK] STREAMS key [key ...] >|id [>|id ...]",
        "Entries that no consumer has had, which are this one's until acknowledged; or, behind an id, those again",
        "write",
        flags=("write", "blocking"),
    ),
    Command(
        "XACK", -4, xack, "groups", "XACK key group id [id ...]",
        "Entries are done. Answers how many the group's consumers had", "write", (1, 1, 1), ("write", "fast"),
        shared=lambda words: 3,
    ),
]  # fmt: skip
