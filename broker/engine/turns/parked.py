"""Parked: waiting requests, by connection and by deadline.

Contract: each is here once, under its number, until it is removed. Limited per connection and in total. One whose time
is up is handed to its owner, once, by the alarm of the earliest deadline; the owner decides what becomes of it.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ...errors import LimitReached

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..ports import Peer
    from .alarms import Alarms

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
    """Requests of one kind."""

    def __init__(self, what: str, deadlines: Alarms[float], overdue: Callable[[R], None]) -> None:
        """`what` names them for people; `overdue` gets each whose time is up, in `deadlines` of monotonic seconds."""
        self._what = what
        self._deadlines = deadlines
        self._overdue = overdue
        self.standing: dict[int, R] = {}
        """By number, for others only to see whether there are any."""
        self._by_peer: dict[Peer, dict[int, R]] = {}
        self._due: list[tuple[float, int]] = []

    def __contains__(self, request: R) -> bool:
        return request.number in self.standing

    def check(self, peer: Peer) -> None:
        """Raise LimitReached when no more may wait."""
        each, count = len(self._by_peer.get(peer, ())), len(self.standing)
        if each >= EACH_MAX or count >= ALL_MAX:
            whose = f"{each} {self._what} of this connection" if each >= EACH_MAX else f"{count} {self._what}"
            raise LimitReached(f"{whose} wait, which is the limit: wait for answers first, or ask with wait_ms=0")

    def add(self, request: R) -> None:
        """Park a request."""
        self.standing[request.number] = request
        self._by_peer.setdefault(request.peer, {})[request.number] = request
        heappush(self._due, (request.deadline_s, request.number))
        if len(self._due) > 2 * len(self.standing) + SLACK:
            self._due = [(each.deadline_s, each.number) for each in self.standing.values()]
            heapify(self._due)
        self._deadlines.set(self, request.deadline_s, self._ring)

    def remove(self, request: R) -> None:
        """Remove a request that is answered, or whose peer is gone."""
        del self.standing[request.number]
        of_peer = self._by_peer[request.peer]
        del of_peer[request.number]
        if not of_peer:
            del self._by_peer[request.peer]

    def of(self, peer: Peer) -> list[R]:
        """The parked requests of a connection."""
        return list(self._by_peer.get(peer, {}).values())

    def _ring(self, now_s: float) -> None:
        for request in self._take_due(now_s):
            self._overdue(request)
        if self._due:
            self._deadlines.set(self, self._due[0][0], self._ring)

    def _take_due(self, now_s: float) -> list[R]:
        """Requests whose time is up, at most as many as one turn answers."""
        found: list[R] = []
        while self._due and len(found) < DUE_MAX:
            deadline_s, number = self._due[0]
            request = self.standing.get(number)
            if request is not None and deadline_s > now_s:
                break
            heappop(self._due)
            if request is not None:
                found.append(request)
        return found
