"""Pauses, and seeks to before the cursor, outlive the session in which they began.

Contract: both end with the assignment of their partition. The broker of a new session is told again; what comes before
it heard of that is dropped here.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

from ...broker.errors import Fenced, UnknownSession
from ...transport.messages import Failure
from ..connection.question import Question
from .places import seek_to

if TYPE_CHECKING:
    from ...transport.consumer_session import ConsumerSession
    from ...transport.messages import Answer
    from ..connection.connection import Connection
    from .session_life import SessionLife

log = logging.getLogger("penstock.clients.consumers")


def hold(
    connection: Connection,
    life: SessionLife,
    paused: set[int],
    sought: Collection[int],
    session: ConsumerSession,
    *,
    is_new: bool,
) -> list[Question]:
    """Keep paused what was, of the partitions that are still ours, and have `sought` ones delivered from their
    positions. Until what this asks is answered, the broker may refuse their epochs."""
    asked: list[Question] = []
    paused.intersection_update(session.partitions)
    for number in paused.union(sought):
        session.pause(number)
        if is_new or number in sought:
            message = partial(seek_to, session.session, number, session.partitions[number].position, number in paused)
            then = None if number in paused else partial(_told, life, session, number)
            asked.append(Question(connection, message, then))
            connection.post(asked[-1])
    return asked


def _told(life: SessionLife, session: ConsumerSession, number: int, answer: Answer) -> None:
    """Where the broker cannot go back to the place of a seek, go on at the first record that is left, or the cursor.

    The place is kept for the next session where it only could not now.
    """
    view = session.partitions.get(number)
    if not isinstance(answer, Failure) or life.session is not session or view is None or view.revoked:
        return
    if not (answer.retry or answer.code in (Fenced.code, UnknownSession.code)):
        log.warning(
            "reading partition %d of topic %s goes on elsewhere than at %d, where it was before the session was lost: "
            "%s", number, life.topic.name, view.position, answer.message,
        )  # fmt: skip
        view.position = view.fetched = answer.offset if answer.offset >= 0 else view.cursor
    life.try_again(answer)
