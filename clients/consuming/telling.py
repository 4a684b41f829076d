"""Telling an application which partitions its consumer was given, and which are taken.

Idea: the application is told in its own calls, before a record of a new partition is handed out and before a
revoked one is released, so it may seek in the former and commit the latter. A step that finds something untold
raises `Untold`; the shell calls the application without the client's lock, and begins the step again.

Contract: what is told is the difference to what was told before, once, whatever the application raises; but an
interrupt, which may have come before its first line, has it told again. A session that is lost and joined again with
the same partitions is no change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...transport.consumer_session import ConsumerSession
from ..descriptions import AssignmentChange

OnAssignment = Callable[[AssignmentChange], object]


class Untold(Exception):
    """Interrupts a step until the application was told of a change. Never leaves the client."""


class AssignmentNews:
    """What the application knows of the assignment of one consumer."""

    def __init__(self, topic: str, callback: OnAssignment) -> None:
        self.callback = callback
        self.known: set[int] = set()
        self._topic = topic
        self._seen = (0, 0)  # the session, and how often its partitions had changed, when nothing was untold

    def check(self, session: ConsumerSession | None) -> None:
        """Raise Untold if the application has to be told of something."""
        if session is None or self._seen == (session.session, session.changes):
            return
        if _present(session) != self.known:
            raise Untold
        self._seen = session.session, session.changes

    @contextmanager
    def whole(self) -> Iterator[None]:
        """A block in which the application is told. After Ctrl-C, or a cancelled task, it is told again."""
        known = self.known
        try:
            yield
        except Exception:
            raise
        except BaseException:
            self.known, self._seen = known, (0, 0)
            raise

    def change(self, session: ConsumerSession | None) -> AssignmentChange:
        """What the application is to be told now; it counts as told. Without a session all partitions are taken."""
        present = set[int]() if session is None else _present(session)
        given, taken = sorted(present - self.known), sorted(self.known - present)
        self.known = present
        return AssignmentChange(self._topic, given, taken)


def _present(session: ConsumerSession) -> set[int]:
    return {view.partition for view in session.partitions.values() if not view.revoked}
