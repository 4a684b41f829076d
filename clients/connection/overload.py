"""What a client does when the broker says that a quota is used up: nothing, for as long as it says.

Contract: what was refused so was not done, so it may be asked again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ...transport.messages import Failure
from .steps import Pause, Steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...transport.messages import Answer


class ClockedWait(Protocol):
    """What is asked of a connection."""

    clock: Callable[[], float]

    def check(self, deadline: float, what: str) -> None:
        """Raise if waiting is over."""
        ...


def sat_out(connection: ClockedWait, answer: Answer, deadline: float) -> Steps[bool]:
    """Wait until a request that got this answer may be asked again. False if it may not, or not before `deadline`.

    Raises what ends every wait of the connection.
    """
    after_s = answer.after_ms / 1000 if isinstance(answer, Failure) else 0.0
    until = connection.clock() + after_s
    if not after_s or until >= deadline:
        return False
    while connection.clock() < until:
        connection.check(deadline, "waiting for a quota")
        yield Pause(until)
    return True
