"""Pauses outlive the session in which they began.

Contract: a pause ends with the assignment of its partition. The broker of a new session is told again; what comes
before it heard of that is dropped here.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..connection.question import Question
from .places import seek_to

if TYPE_CHECKING:
    from ...transport.consumer_session import ConsumerSession
    from ..connection.connection import Connection


def hold(connection: Connection, paused: set[int], session: ConsumerSession, *, is_new: bool) -> None:
    """Keep paused what was, of the partitions that are still ours."""
    paused.intersection_update(session.partitions)
    for number in paused:
        session.pause(number)
        if is_new:
            message = partial(seek_to, session.session, number, session.partitions[number].position, True)
            connection.post(Question(connection, message))
