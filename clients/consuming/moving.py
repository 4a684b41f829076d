"""Moves within the partitions of a consumer: seek, pause, resume.

Idea: all three are the same request, which begins a partition anew at an offset, under a new epoch. So what is on its
way of the old place is dropped by its epoch, whichever way it travels. A paused partition keeps its member and its
position, and the broker sends nothing of it.

Contract: as ConsumerCore, whose session these change. A pause holds for the consumer's present assignment of the
partition, also in a later session.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ...broker.errors import Fenced, UnknownSession
from ...transport.consumer_session import ConsumerSession
from ...transport.messages import Done, FindOffsets, Offsets
from ..connection.steps import Steps
from .places import seek_to, some_assigned, targets

if TYPE_CHECKING:
    from .core import ConsumerCore


def seek(core: ConsumerCore, place: int, is_time: bool, partition: int | None, deadline: float) -> Steps[None]:
    """Continue elsewhere: at an offset, a time, or an end."""
    offsets: list[int] | None = None
    if is_time:
        found = yield from core.connection.ask(
            lambda request: FindOffsets(request, core.topic.topic, place), Offsets, deadline=deadline, what="seeking"
        )
        offsets = [offset for offset, _ in found.offsets]
    yield from core.in_a_session(
        lambda session: _begin_at(core, session, targets(session, place, offsets, partition), deadline), deadline
    )


def pause(core: ConsumerCore, partition: int | None, deadline: float) -> Steps[None]:
    """Hand out nothing of a partition, or of all of them, until `resume`."""

    def act(session: ConsumerSession) -> Steps[None]:
        chosen = some_assigned(session, partition)
        for number in chosen:
            core.let_go(number)
            core.paused.add(number)
            session.pause(number)
        yield from _stay(core, session, chosen, deadline)

    yield from core.in_a_session(act, deadline)


def resume(core: ConsumerCore, partition: int | None, deadline: float) -> Steps[None]:
    """Hand out its records again, from where the application is."""

    def act(session: ConsumerSession) -> Steps[None]:
        chosen = [number for number in some_assigned(session, partition) if number in core.paused]
        core.paused.difference_update(chosen)
        try:
            yield from _stay(core, session, chosen, deadline)
        finally:
            views = session.partitions
            core.paused.update(number for number in chosen if number in views and views[number].paused)

    yield from core.in_a_session(act, deadline)


def _stay(core: ConsumerCore, session: ConsumerSession, chosen: list[int], deadline: float) -> Steps[None]:
    """Begin anew where the application is. The group's cursor is known as before."""
    for number in chosen:
        view = session.partitions.get(number)
        if view is None or view.revoked:
            continue
        with suppress(Fenced):  # it is being taken: nothing more is handed out of it
            yield from _begin_at(core, session, {number: view.position}, deadline)
        begun = session.partitions.get(number)
        if begun is not None:
            begun.committed = view.committed


def _begin_at(core: ConsumerCore, session: ConsumerSession, offsets: dict[int, int], deadline: float) -> Steps[None]:
    for number, offset in offsets.items():
        core.let_go(number)
        message = partial(seek_to, session.session, number, offset, number in core.paused)
        try:
            yield from core.connection.ask(message, Done, deadline=deadline, what=f"seeking in partition {number}")
        except Fenced:
            view = session.partitions.get(number)
            if view is not None and not view.revoked and core.session is session:
                raise
            # it is being taken: nothing more is handed out of it
        if core.session is not session:  # asked again over another connection, and answered in what we have lost
            raise UnknownSession(f"the session was lost while seeking in partition {number}")
