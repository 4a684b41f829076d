"""Messages set aside: what came from peers that are held, where a socket cannot be told to leave it unread.

Idea: one ROUTER hands out the messages of all its connections. Those of a held peer are taken from it and kept,
undecoded and in order, so that others behind them are heard.

Contract: no message is lost, doubled or overtaken by a later one of its peer. At most MESSAGES_MAX of a peer and
BYTES_MAX of all are kept: above that, each message that comes pushes out the oldest of its peer, held or not.
Knows no sockets.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

MESSAGES_MAX = 128
BYTES_MAX = 64 << 20

Message = TypeVar("Message")


class SetAside(Generic[Message]):
    """See the module."""

    def __init__(self) -> None:
        self._held: dict[bytes, deque[tuple[Message, int]]] = {}
        self._resumed: dict[bytes, deque[tuple[Message, int]]] = {}
        self._bytes = 0

    @property
    def ready(self) -> bool:
        """Whether `take` has a message."""
        return bool(self._resumed)

    def hold(self, peer: bytes) -> None:
        """Set aside what comes from a peer, until `resume`."""
        if peer not in self._held:
            self._held[peer] = self._resumed.pop(peer, deque())

    def resume(self, peer: bytes) -> None:
        """Hand out what was set aside of a peer."""
        waiting = self._held.pop(peer, None)
        if waiting:
            self._resumed[peer] = waiting

    def drop(self, peer: bytes) -> None:
        """Drop all messages of a peer."""
        self.resume(peer)
        self._bytes -= sum(size for _, size in self._resumed.pop(peer, ()))

    def instead(self, peer: bytes, message: Message, size: int) -> Message | None:
        """The message to hand out after one has come: it, an older one of its peer, or none."""
        held = self._held.get(peer)
        waiting = self._resumed.get(peer) if held is None else held
        if waiting is None:
            return message
        waiting.append((message, size))
        self._bytes += size
        if held is not None and len(held) <= MESSAGES_MAX and self._bytes <= BYTES_MAX:
            return None
        return self._oldest(waiting)

    def take(self) -> Message | None:
        """A message of a peer that is heard again, peers in turn; None when nothing is left."""
        for peer, waiting in self._resumed.items():
            oldest = self._oldest(waiting)
            del self._resumed[peer]
            if waiting:
                self._resumed[peer] = waiting  # behind the others
            return oldest
        return None

    def _oldest(self, waiting: deque[tuple[Message, int]]) -> Message:
        message, size = waiting.popleft()
        self._bytes -= size
        return message
