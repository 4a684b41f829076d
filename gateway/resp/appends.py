"""Appends the records of commands, in the order in which they came.

Idea: where the topic is known and its window has room, the records of a run of commands are taken at once and leave
tickets. Otherwise the connection is held until both are so, so that no later record comes before them. A run that
finds room is taken as a whole: the window is exceeded by what one read of one connection brings, at most.

Contract: all records of a run are taken, or none where one is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...broker.rights import Operation
from ..appending import Appender
from ..link import TopicPlace
from .command import RespSession
from .fields import EntryColumns
from .places import find, remembered
from .replies import Encoded, encode
from .tickets import Ticket, Tickets

Added = Callable[[Ticket], None]
"""Hears of the last ticket of records that were taken."""


def append(
    session: RespSession, key: bytes, records: EntryColumns, ticket: type[Ticket], *, create: bool = True,
    added: Added | None = None, needs: Sequence[Operation] = ("write",),
) -> Any:  # fmt: skip
    """Append records to the topic of a key, which is made if `create`. `needs`: all that the command will do to it.

    Returns Tickets, or a coroutine of them; or of nulls where the topic is not to be made. Raises CommandRefused,
    RecordTooLarge ...
    """
    place = remembered(session, key, *needs)
    if place is not None and not _appender(session, place).jammed:
        return _take(session, place, records, ticket, added)
    return _take_later(session, key, records, ticket, create, added, place, needs)


async def _take_later(
    session: RespSession, key: bytes, records: EntryColumns, ticket: type[Ticket], create: bool,
    added: Added | None, place: TopicPlace | None, needs: Sequence[Operation],
) -> Any:  # fmt: skip
    place = place or await find(session, key, *needs, create=create)
    if place is None:
        return Encoded(encode(None, session.version) * len(records.values))
    while _appender(session, place).jammed:
        await _appender(session, place).room()
    return _take(session, place, records, ticket, added)


def _appender(session: RespSession, place: TopicPlace) -> Appender:
    assert session.principal is not None, "it may write"
    return session.door.link.appender(session.principal, place.topic)


def _take(
    session: RespSession, place: TopicPlace, records: EntryColumns, ticket: type[Ticket], added: Added | None
) -> Tickets:
    runs = _appender(session, place).append_run(*records, place.partition, session.teller)
    tickets = Tickets(ticket(*run) for run in runs)
    if added is not None:
        added(tickets[-1])
    return tickets
