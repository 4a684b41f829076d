"""Asking again: a client waits for as long as the broker says.

Contract: the broker did nothing when it refused a request this way, so that request does not count as sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ...transport.messages import Failure
from .steps import Pause, Steps

if TYPE_CHECKING:
    from collections.abc import Callable

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
