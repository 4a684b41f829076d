"""Rounds of heartbeats that prove leadership to readers. Pure.

Idea: a read is answered with the commit of its moment, once a majority has acknowledged a heartbeat that left after
the read arrived. Requests of one turn share one round: a round stays open until its heartbeats leave. Rounds are
numbered, and an acknowledgement of one is also an acknowledgement of those before it.

Invariant: numbers in `waiting` and indexes in it ascend.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

import msgspec

from .quorum import jointly_committed


class ReadRequest(msgspec.Struct, frozen=True):
    """A read of this node, or of another one that asked the leader."""

    node: int
    context: bytes


class ReadState(msgspec.Struct, frozen=True):
    """A read that may be served once entry `index` is applied."""

    index: int
    context: bytes


class ReadRounds:
    """The reads of one leader in one term."""

    __slots__ = ("_acknowledged", "_open", "early", "number", "waiting")

    def __init__(self) -> None:
        self.number = 0
        self.early: list[ReadRequest] = []  # came before the term's first commit
        self.waiting: deque[tuple[int, int, ReadRequest]] = deque()
        self._acknowledged: dict[int, int] = {}
        self._open = False

    def add(self, request: ReadRequest, commit: int, node: int) -> bool:
        """A request arrived at the leader `node`; True when a round begins with it."""
        begins = not self._open
        if begins:
            self.number += 1
            self._open = True
            self._acknowledged[node] = self.number
        self.waiting.append((self.number, commit, request))
        return begins

    def pending(self) -> int:
        """The round that heartbeats ask to confirm; 0 when no read waits."""
        return self.number if self.waiting else 0

    def close(self) -> None:
        """The heartbeats of the open round leave; later requests need another."""
        self._open = False

    def acknowledge(self, node: int, number: int) -> None:
        """A member confirmed a round and all before it."""
        self._acknowledged[node] = max(self._acknowledged.get(node, 0), number)

    def confirmed(self, incoming: Collection[int], outgoing: Collection[int]) -> list[tuple[int, ReadRequest]]:
        """Take out the requests that a quorum has confirmed, with their index."""
        done = jointly_committed(incoming, outgoing, lambda voter: self._acknowledged.get(voter, 0))
        found = []
        while self.waiting and self.waiting[0][0] <= done:
            _, index, request = self.waiting.popleft()
            found.append((index, request))
        return found
