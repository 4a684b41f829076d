"""What the clients of all doors make the gateway hold in memory, with one bound over all of it.

Idea: a request of HTTP takes what its body and its answer need, and gives it back. Of a connection of Redis clients it
is known how much it holds: commands that are not complete, and replies that are not read; of a stream of events, what
its client has yet to read. Where there is too much, those that hold the most are closed, as their peers are slow or do
not read; the others are served.

Contract: `take` says whether there was room. A connection that holds less than `LEAST` is not counted.
"""

from __future__ import annotations

import logging
from typing import Protocol

from .refused import RefusedCounts

log = logging.getLogger("penstock.gateway")

HELD_BYTES_MAX = 256 << 20

LEAST = 4 << 10
"""What a connection may hold beside."""

TOO_MUCH = "the gateway holds as many bytes of its clients as it may"


class ByteHolder(Protocol):
    """A connection that holds bytes."""

    def held(self) -> int:
        """How many."""
        ...

    def shed(self) -> bool:
        """Close, to make room for others. Returns whether it could."""
        ...


class HeldBytes:
    """See the module.

    Invariant: `_left` is `most` without what was taken and what `_holders` hold; below 0 if none could close.
    """

    def __init__(self, most: int = HELD_BYTES_MAX, refused: RefusedCounts | None = None) -> None:
        self._left = most
        self._refused = refused or RefusedCounts()
        self._holders: dict[ByteHolder, int] = {}

    def take(self, size: int) -> bool:
        """Hold so much more, if there is room. Returns whether there was."""
        self._make_room(size)
        if size > self._left:
            self._refused.add("memory")
            return False
        self._left -= size
        return True

    def give(self, size: int) -> None:
        """Hold so much less."""
        self._left += size

    def holds(self, holder: ByteHolder, size: int) -> None:
        """Know that a connection holds so much, in place of what it did."""
        size = size if size >= LEAST else 0
        self._left += self._holders.pop(holder, 0) - size
        if size:
            self._holders[holder] = size
            self._make_room(0)

    def look(self) -> None:
        """Know what the connections hold by now: peers read without a word."""
        for holder in list(self._holders):
            self.holds(holder, holder.held())

    def _make_room(self, size: int) -> None:
        if size <= self._left:
            return
        for holder in sorted(self._holders, key=self._holders.__getitem__, reverse=True):
            if size <= self._left:
                return
            if holder.shed():
                self._refused.add("memory")
                self._left += self._holders.pop(holder, 0)
