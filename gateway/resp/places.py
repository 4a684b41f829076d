"""Where a key's records are: one partition of one topic.

Idea: a key is a topic with one partition; `key:3` is the partition 3 of a topic `key` that has several.

Contract: `find` asks the broker, `remembered` does not. Both check what the session may do. Raises CommandRefused for
keys that stand for no one partition.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from itertools import chain
from typing import TypeVar

from ...broker.errors import UnknownTopic
from ...broker.rights import Operation
from ...transport.messages import INT64_MAX
from ..link import BrokerLink, TopicPlace
from ..reading import append_time_ms
from .command import RespSession, may
from .id_runs import IdRun
from .names import numbered, topic_of_key
from .refusals import CommandRefused

T = TypeVar("T")

NO_KEY = CommandRefused("no such key")


def remembered(session: RespSession, key: bytes, *operations: Operation) -> TopicPlace | None:
    """The place of a key as it was when the gateway last looked; None if it has not."""
    found = session.door.link.remembered(key)
    if found is not None:
        _may_all(session, operations, found.topic.name)
    return found


def _may_all(session: RespSession, operations: Iterable[Operation], topic: str) -> None:
    for operation in operations:
        may(session, operation, topic)


async def find(session: RespSession, key: bytes, *operations: Operation, create: bool = False) -> TopicPlace | None:
    """The place of a key as it is now; None if there is no such topic, which `create` makes.

    The session has to be allowed each of `operations`: a command names all that it will do, before it does anything.
    """
    link = session.door.link
    split = numbered(key)
    if split is not None:
        several = await link.topic(topic_of_key(split[0]))
        if several is not None and len(several.partitions) > 1:
            _may_all(session, operations, several.name)
            if split[1] >= len(several.partitions):
                raise CommandRefused(f"topic {several.name} has {len(several.partitions)} partitions, numbered from 0")
            return link.remember(key, TopicPlace(several, split[1]))
    name = topic_of_key(key)
    _may_all(session, operations, name)
    topic = await link.topic(name)
    if topic is None and create:
        if not session.door.may_create:
            raise CommandRefused(f"there is no topic {name}, and this gateway makes none: CREATE it")
        may(session, "manage", name)
        topic = await link.create(name)
    if topic is None:
        return None
    if len(topic.partitions) > 1:
        raise CommandRefused(
            f"topic {name} has {len(topic.partitions)} partitions, and an offset is of one of them: name it as in "
            f"{key[:60].decode('latin-1')}:0"
        )
    return link.remember(key, TopicPlace(topic, 0))


async def at(
    session: RespSession, keys: list[bytes], operation: Operation, use: Callable[[list[TopicPlace]], Awaitable[T]]
) -> T | None:
    """What `use` makes of the places of keys, which are asked for if one of them was not as remembered.

    None if one of them is not there.
    """
    known = [remembered(session, key, operation) for key in keys]
    places = [place for place in known if place is not None]
    if len(places) == len(keys):
        try:
            return await use(places)
        except UnknownTopic:
            for place in places:
                session.door.link.forget(place.topic.topic)
    places = [place for key in keys if (place := await find(session, key, operation)) is not None]
    return await use(places) if len(places) == len(keys) else None


async def existing(session: RespSession, key: bytes, operation: Operation) -> TopicPlace:
    """As `find`, for keys that have to be there."""
    found = await find(session, key, operation)
    if found is None:
        raise NO_KEY
    return found


async def ranges_of(link: BrokerLink, place: TopicPlace, runs: Iterable[IdRun]) -> list[tuple[int, int]]:
    """The records of ids as ranges (first offset, how many), without those of other times, in the order of ids.

    A record that is not there any more is taken at its word.
    """
    found: list[tuple[int, int]] = []
    for time_ms, first, many in runs:
        at, end = first, min(first + many, INT64_MAX + 1)
        while at < end:
            beyond, said = await _appended(link, place, at)
            beyond = min(beyond, end)
            if said in (time_ms, -1):
                found.append((at, beyond - at))
            at = beyond
    return found


async def _appended(link: BrokerLink, place: TopicPlace, offset: int) -> tuple[int, int]:
    """When a record was appended, -1 if it cannot be read, and the offset behind those that are known to be so."""
    _, beyond, said = link.append_times.span((place.topic.topic, place.partition), offset)
    return (beyond, said) if said >= 0 else (offset + 1, await append_time_ms(link, place, offset))


async def offsets_of(link: BrokerLink, place: TopicPlace, runs: Iterable[IdRun]) -> list[int]:
    """The offsets that `ranges_of` finds, each once."""
    ranges = await ranges_of(link, place, runs)
    return list(dict.fromkeys(chain.from_iterable(range(first, first + count) for first, count in ranges)))
