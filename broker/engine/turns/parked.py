"""Parked: waiting requests, by connection and by deadline.

Contract: each is here once, under its number, until it is removed. Limited per connection and in total. Decides
nothing.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ...errors import LimitReached

if TYPE_CHECKING:
    from ..ports import Peer

EACH_MAX = 5000
"""Requests of one kind that wait for one connection."""

ALL_MAX = 100_000
"""Requests of one kind that wait."""

DUE_MAX = 16
"""Requests past their deadline that are answered at once."""

SLACK = 64
"""Deadlines of requests that were answered are cleared away once they are more than the others and this."""


class Request(Protocol):
    """One that waits."""

    number: int
    peer: Peer
    deadline_s: float


R = TypeVar("R", bound=Request)


class Parked(Generic[R]):
    """Requests of one kind. `what` names them for people."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._standing: dict[int, R] = {}
        self._by_peer: dict[Peer, dict[int, R]] = {}
        self._due: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._standing)

    def __contains__(self, request: R) -> bool:
        return request.number in self._standing

    def check(self, peer: Peer) -> None:
        """Raise LimitReached when no more may wait."""
        each, count = len(self._by_peer.get(peer, ())), len(self._standing)
        if each >= EACH_MAX or count >= ALL_MAX:
            whose = f"{each} {self._what} of this connection" if each >= EACH_MAX else f"{count} {self._what}"
            raise LimitReached(f"{whose} wait, which is the limit: wait for answers first, or ask with wait_ms=0")

    def add(self, request: R) -> None:
        """Park a request."""
        self._standing[request.number] = request
        self._by_peer.setdefault(request.peer, {})[request.number] = request
        heappush(self._due, (request.deadline_s, request.number))
        if len(self._due) > 2 * len(self._standing) + SLACK:
            self._due = [(each.deadline_s, each.number) for each in self._standing.values()]
            heapify(self._due)

    def remove(self, request: R) -> None:
        """Remove a request that is answered, or whose peer is gone."""
        del self._standing[request.number]
        of_peer = self._by_peer[request.peer]
        del of_peer[request.number]
        if not of_peer:
            del self._by_peer[request.peer]

    def of(self, peer: Peer) -> list[R]:
        """The parked requests of a connection."""
        return list(self._by_peer.get(peer, {}).values())

    def due(self, now_s: float) -> list[R]:
        """Some requests whose time is up; each is returned once."""
        found: list[R] = []
        while self._due and len(found) < DUE_MAX:
            deadline_s, number = self._due[0]
            request = self._standing.get(number)
            if request is not None and deadline_s > now_s:
                break
            heappop(self._due)
            if request is not None:
                found.append(request)
        return found

    @property
    def next_s(self) -> float | None:
        """When to ask for what is due again."""
        return self._due[0][0] if self._due else None
