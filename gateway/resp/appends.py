"""Appends the records of commands, in the order in which they came.

Idea: where the topic is known and its window has room, a record is taken at once and its command leaves a ticket.
Otherwise the connection is held until both are so, so that no later record comes before it.
"""

from __future__ import annotations

from typing import Any

from ..link import TopicPlace
from .command import RespSession
from .entries import RecordParts
from .places import find, remembered
from .tickets import Ticket


def append(session: RespSession, key: bytes, parts: RecordParts, ticket: type[Ticket], *, create: bool = True) -> Any:
    """Append a record to the topic of a key, which is made if `create`. Raises CommandRefused, RecordTooLarge ..."""
    place = remembered(session, key, "write")
    if place is not None:
        assert session.principal is not None, "it may write"
        appender = session.door.link.appender(session.principal, place.topic)
        if not appender.jammed:
            return ticket(*appender.append(*parts, place.partition, session.teller))
    return _append_later(session, key, parts, ticket, create, place)


async def _append_later(
    session: RespSession, key: bytes, parts: RecordParts, ticket: type[Ticket], create: bool, place: TopicPlace | None
) -> Any:
    place = place or await find(session, key, "write", create=create)
    if place is None:
        return None
    assert session.principal is not None, "it may write"
    appender = session.door.link.appender(session.principal, place.topic)
    while appender.jammed:
        await appender.room()
    return ticket(*appender.append(*parts, place.partition, session.teller))
