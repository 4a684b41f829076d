"""The end of a consumer: the last automatic commit, then it leaves its group.

Idea: what the application is done with is committed before anything of the session ends, so a session that is lost in
the middle, as when another node begins to lead, is joined again for that.

Contract: nothing is handed out from the first step on. It waits for LEAVE_PATIENCE_S at most. A close that was
interrupted is finished by the next.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ...broker.errors import Fenced, UnknownSession
from ...transport.messages import Done, Failure
from ..connection.steps import Pause, Steps

if TYPE_CHECKING:
    from .core import ConsumerCore

log = logging.getLogger("penstock.clients.consumers")

LEAVE_PATIENCE_S = 5.0
"""How long closing waits for the broker; a session that it did not hear of ends by its timeout."""

TRIES = 3
"""Of the last commit, which is refused where its session is over, or a partition was taken that it names."""


def leave(core: ConsumerCore, deadline: float, *, failed: bool) -> Steps[None]:
    """Commit if that is automatic (all but what is in hand if the application `failed`), then leave."""
    if core.ended:
        return
    again, connection = core.end_reading(), core.connection
    limit = min(deadline, connection.deadline(LEAVE_PATIENCE_S))
    if core.options.auto_commit_s is not None:
        yield from _commit_last(core, limit, failed)
    connection.parts.pop(core, None)  # before the session is lost: it would join again
    core.life.end()
    while connection.clock() < limit and not core.life.left:
        if not connection.channel.connected and not again:
            break  # unless an interrupt broke the connection off
        yield Pause(limit)
    core.life.forget()
    core.ended = True


def _commit_last(core: ConsumerCore, deadline: float, failed: bool) -> Steps[None]:
    """Commit what the application is done with. Of a session that is lost, that is not known where it `failed`."""
    life, connection = core.life, core.connection
    life.touched = connection.clock()
    for _ in range(TRIES):
        while not core.is_settled and not connection.is_over(deadline):
            knows_nothing = core.session is None and (failed or not core.kept.uncommitted)
            if life.ended or life.failure is not None or knows_nothing:
                return
            yield Pause(deadline)
        session = core.session
        if session is None:
            break
        done = core.done(session) if failed else core.all_done(session)
        if not done:
            return
        committing = core.commit_quietly(session, done)
        while committing.answer is None and not connection.is_over(deadline):
            yield Pause(deadline)
        committing.cancel()
        answer = committing.answer
        if isinstance(answer, Done):
            return
        code = answer.code if isinstance(answer, Failure) else ""
        if code == Fenced.code:
            connection.send(session.release(session.revoked))
        elif code == UnknownSession.code and core.session is session:
            life.rejoin()
    log.warning(
        "consumer %s of topic %s is closed without its last commit in group %s: records are read again",
        core.options.member, core.topic.name, core.options.group,
    )  # fmt: skip
