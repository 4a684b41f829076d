"""Requests that wait for a partition: for more records, or for cold pages.

Idea: a request that cannot be answered yet is parked with its partition and retried. Its owner decides what becomes
of it when its time is up.

Contract: connections are answered in turn. Unreadable bytes fail the request and mark the partition damaged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ....storage.errors import Corrupt, Error, ReadFailed
from .parked import Parked
from .replies import failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..ports import Peer, Port, Work
    from .alarms import Alarms
    from .portions import Portions


class Awaited(Protocol):
    """A partition."""

    def met(self, damage: Corrupt) -> object:
        """Say that it is damaged."""


class AwaitingRequest(Protocol):
    """A request that was not answered yet. `cold`: its pages are on their way."""

    number: int
    peer: Peer
    deadline_s: float
    partition: Any  # an Awaited
    message: Any  # with its number, `request`
    cold: bool


A = TypeVar("A", bound=AwaitingRequest)


class AwaitingRequests(Generic[A]):
    """Requests of one kind. `parked` has them by connection and by deadline."""

    def __init__(
        self,
        what: str,
        port: Port,
        wakes: Portions,
        deadlines: Alarms[float],
        *,
        answer: Callable[[A], bool],
        overdue: Callable[[A], None],
        looks: int,
    ) -> None:
        """`what` names them for people, `answer` says whether it answered, `overdue` gets each whose time is up, and
        `wakes` tries them in portions: each step has one that is answered, or `looks` that are not."""
        self.parked = Parked[A](what, deadlines, overdue)
        self._port = port
        self._wakes = wakes
        self._answer = answer
        self._looks = looks
        self._by_partition: dict[Awaited, dict[Peer, dict[int, A]]] = {}
        self._telling: dict[tuple[Awaited, Peer], bool] = {}  # and whether there is more since

    def add(self, request: A) -> None:
        """Park a request."""
        self.parked.add(request)
        self._by_partition.setdefault(request.partition, {}).setdefault(request.peer, {})[request.number] = request

    def forget(self, request: A) -> None:
        """Remove a request that is answered, or whose connection is gone."""
        self.parked.remove(request)
        of_partition = self._by_partition[request.partition]
        known = of_partition[request.peer]
        del known[request.number]
        if not known:
            del of_partition[request.peer]
        if not of_partition:
            del self._by_partition[request.partition]

    def attempt(self, request: A) -> bool:
        """Whether it is answered now, be it by a failure."""
        try:
            return self._answer(request)
        except Error as error:
            self.fail(request, error)
        except OSError as error:
            self.fail(request, ReadFailed.of(request.partition, error))
        return True

    def fail(self, request: A, error: Error) -> None:
        """Answer with an error."""
        if isinstance(error, Corrupt):
            request.partition.met(error)
        self._port.reply(request.peer, failure(request.message.request, error))

    def more(self, partition: Awaited) -> None:
        """A partition has more: try what awaits it, connections in turn."""
        for peer in self._by_partition.get(partition, ()):
            if (partition, peer) not in self._telling:
                self._wakes.add(peer, self._tell(partition, peer))
            self._telling[partition, peer] = True

    def _tell(self, partition: Awaited, peer: Peer) -> Work:
        """Try what one connection awaits of one partition, until there is no more."""
        while self._telling[partition, peer]:
            self._telling[partition, peer] = False
            for looks, request in enumerate(list(self._by_partition.get(partition, {}).get(peer, {}).values()), 1):
                if self._again(request) or looks % self._looks == 0:
                    yield
        del self._telling[partition, peer]

    def warmed(self, request: A) -> None:
        """Pages are in memory now."""
        if request.cold:
            request.cold = False
            self._again(request)

    def _again(self, request: A) -> bool:
        """Try a request that may have been answered meanwhile; whether it was answered now."""
        answered = request in self.parked and not request.cold and self.attempt(request)
        if answered:
            self.forget(request)
        return answered

    def disconnect(self, peer: Peer) -> None:
        """Drop what a connection waits for."""
        for key in [key for key in self._telling if key[1] == peer]:
            del self._telling[key]
        for request in self.parked.of(peer):
            self.forget(request)

    def close(self, partition: Awaited, error: Error) -> None:
        """Fail what awaits a partition that is gone."""
        for of_peer in list(self._by_partition.get(partition, {}).values()):
            for request in list(of_peer.values()):
                self.forget(request)
                self.fail(request, error)
