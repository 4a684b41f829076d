"""Asking again: after a lost connection, and when the broker says so, as long after as it says.

Contract: the broker did nothing when it refused a request with a time, so that request does not count as sent. One
whose answer was lost with the connection may have been done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ...transport.messages import Done, Failure
from .steps import Pause, Steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...storage.errors import Error
    from ...transport.messages import Answer


class AskedAgain(Protocol):
    """What is asked of a question."""

    answer: Answer | None
    times_sent: int


class ClockedWait(Protocol):
    """What is asked of a connection."""

    clock: Callable[[], float]

    def check(self, deadline: float, what: str) -> None:
        """Raise if waiting is over."""
        ...

    def post(self, question: Any) -> None:
        """Ask."""
        ...

    def wait_for(self, question: Any, kind: type[Any], *, deadline: float, what: str) -> Steps[Any]:
        """Ask, and wait for the answer."""
        ...


def sat_out(connection: ClockedWait, question: AskedAgain, deadline: float) -> Steps[bool]:
    """Wait until a question may be asked again, and ask. False if its answer stands, or the wait ends after `deadline`.

    Raises what ends every wait of the connection.
    """
    after_s = question.answer.after_ms / 1000 if isinstance(question.answer, Failure) else 0.0
    until = connection.clock() + after_s
    if not after_s or until >= deadline:
        return False
    while connection.clock() < until:
        connection.check(deadline, "waiting to ask again")
        yield Pause(until)
    question.answer = None
    question.times_sent -= 1
    connection.post(question)
    return True


def gone(
    connection: ClockedWait, question: AskedAgain, missing: type[Error], *, deadline: float, what: str
) -> Steps[None]:
    """Wait until something is deleted. What is missing when that is sent again went the first time."""
    try:
        yield from connection.wait_for(question, Done, deadline=deadline, what=what)
    except missing:
        if question.times_sent < 2:
            raise
