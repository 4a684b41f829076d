"""Where a key's records are: one partition of one topic.

Idea: a key is a topic with one partition; `key:3` is the partition 3 of a topic `key` that has several.

Contract: `find` asks the broker, `remembered` does not. Both check what the session may do. Raises CommandRefused for
keys that stand for no one partition.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...broker.errors import UnknownTopic
from ...transport.messages import INT64_MAX
from ..authorization import Operation
from ..link import BrokerLink, TopicPlace
from ..reading import append_time_ms
from .command import RespSession, may
from .entries import EntryId
from .names import numbered, topic_of_key
from .refusals import CommandRefused

T = TypeVar("T")

NO_KEY = CommandRefused("no such key")


def remembered(session: RespSession, key: bytes, operation: Operation) -> TopicPlace | None:
    """The place of a key as it was when the gateway last looked; None if it has not."""
    found = session.door.link.remembered(key)
    if found is not None:
        may(session, operation, found.topic.name)
    return found


async def find(session: RespSession, key: bytes, operation: Operation, *, create: bool = False) -> TopicPlace | None:
    """The place of a key as it is now; None if there is no such topic, which `create` makes."""
    link = session.door.link
    split = numbered(key)
    if split is not None:
        several = await link.topic(topic_of_key(split[0]))
        if several is not None and len(several.partitions) > 1:
            may(session, operation, several.name)
            if split[1] >= len(several.partitions):
                raise CommandRefused(f"topic {several.name} has {len(several.partitions)} partitions, numbered from 0")
            return link.remember(key, TopicPlace(several, split[1]))
    name = topic_of_key(key)
    may(session, operation, name)
    topic = await link.topic(name)
    if topic is None and create:
        if not session.door.may_create:
            raise CommandRefused(f"there is no topic {name}, and this gateway makes none: CREATE it")
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


async def offsets_of(link: BrokerLink, place: TopicPlace, ids: list[EntryId]) -> list[int]:
    """The offsets of ids, without those of other times. A record that is not there any more is taken at its word."""
    known, where, found = link.append_times, (place.topic.topic, place.partition), dict[int, None]()
    first = end = said = -1  # of the records that were appended with the one before
    for time_ms, offset in ids:
        if not first <= offset < end:
            first, end, said = known.span(where, offset)
            if said < 0 and offset <= INT64_MAX:
                said = await append_time_ms(link, place, offset)
        if said in (time_ms, -1):
            found[offset] = None
    return [offset for offset in found if offset <= INT64_MAX]
