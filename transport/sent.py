"""What became of a send, over whatever kind of socket."""

from __future__ import annotations

from enum import Enum


class Sent(Enum):
    """True only when the message was taken."""

    TAKEN = "taken"
    FULL = "full"  # cannot be taken now: not connected yet, or it reads too slowly
    GONE = "gone"  # no such peer

    def __bool__(self) -> bool:
        return self is Sent.TAKEN
