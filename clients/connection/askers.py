"""What a connection calls: askers of requests, receivers of unsolicited messages, and whatever needs turns.

Contract: all are called with the client's lock held, and never wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

    from ...transport.messages import Answer, Assigned, Deliver, Evicted


class Asker(Protocol):
    """A waiter for an answer."""

    def answered(self, answer: Answer) -> None:
        """Handle the answer to a request, which stays registered until this returns."""
        ...

    def lost(self) -> None:
        """Handle a new connection: the answer may never come. Requests are no longer registered."""
        ...

    def unanswered(self, now: float) -> None:
        """Called every LOOK_PERIOD_S while the answer is out."""
        ...


class ConnectionSession(Protocol):
    """A receiver of unsolicited messages."""

    def told(self, message: Assigned | Deliver | Evicted, payload: Buffer) -> None:
        """Handle a message to this session."""
        ...


class Part(Protocol):
    """A consumer, or a producer's sender with something to retry: whatever needs turns."""

    def turn(self, now: float) -> None:
        """Do the work that is possible now."""
        ...

    def due(self) -> float:
        """When to call `turn` at the latest."""
        ...

    def restored(self) -> None:
        """Handle a new connection: sessions of the old one hear nothing any more."""
        ...
