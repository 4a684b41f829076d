"""Answers that wait for a commit.

Idea: each proposal comes with a waiter; these are the waiters that answer a peer.
Contract: exactly one answer per waiter, whatever happens to what it waits for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from ....storage.errors import Error
from ....transport.messages import Answer, Failure, Produced
from ...errors import NotLeader
from ..ports import Peer, Port
from ..tables.producers import Place

if TYPE_CHECKING:
    from ..tables.state import PartitionState


def failure(request: int, error: Error) -> Failure:
    """An error as it travels."""
    offset = getattr(error, "next_offset", None)
    offset, after_ms = error.offset if offset is None else offset, math.ceil(error.retry_after * 1000)
    where, term = (error.where, error.term) if isinstance(error, NotLeader) else ("", 0)
    return Failure(request, error.code, error.message, error.retry, where, offset, after_ms, term)


def refusing(port: Port, peer: Peer, request: int) -> Callable[[Error], None]:
    """Answers one request with an error."""

    def refuse(error: Error) -> None:
        port.reply(peer, failure(request, error))

    return refuse


class ProduceReply(Struct, eq=False):
    """Answers one Produce."""

    port: Port
    peer: Peer
    request: int

    def committed(self, place: Place) -> None:
        self.port.reply(self.peer, Produced(self.request, place.offset, place.term, place.time_us))

    def answer_ahead(self, place: Place) -> bool:
        self.committed(place)
        return True

    def failed(self, error: Error) -> None:
        self.port.reply(self.peer, failure(self.request, error))


class KeyedReply(Struct, eq=False):
    """Answers one Produce of `count` records with dedup keys, and says which repeat a task.

    That stands in the state for as long as the records do: so a resend, also after a restart, is told the same.
    """

    reply: ProduceReply
    count: int
    state: PartitionState  # as committed

    def committed(self, place: Place) -> None:
        reply = self.reply
        repeats = self.state.voids.repeats(place.offset, self.count)
        reply.port.reply(reply.peer, Produced(reply.request, place.offset, place.term, place.time_us, repeats))

    def failed(self, error: Error) -> None:
        self.reply.failed(error)


class Gather:
    """Answers once when everything it was left with is committed, or with the first failure.

    Leave it with any number of proposals through `one`, then call `ready`; or with a single one as it is.
    """

    def __init__(
        self,
        finish: Callable[[], object],
        refuse: Callable[[Error], None],
        on_failure: Callable[[], object] | None = None,
        ahead: Callable[[Place], bool] | None = None,
    ) -> None:
        """`on_failure` is called at the first failure, when others may still be on their way.

        `ahead` answers as `finish` does, if that says nothing of the state, before what is waited for is applied.
        It returns whether it did: an answer that the peer does not take is one, too.
        """
        self._finish = finish
        self._refuse = refuse
        self._on_failure = on_failure
        self._ahead = ahead
        self._waiting = 1
        self._error: Error | None = None

    @classmethod
    def reply(cls, port: Port, peer: Peer, request: int, message: Answer) -> Gather:
        """Answers `peer` with `message`, or a Failure."""
        return cls.answering(port, peer, request, lambda: message)

    @classmethod
    def answering(cls, port: Port, peer: Peer, request: int, make: Callable[[], Answer]) -> Gather:
        """Answers `peer` with what `make` gives then, or a Failure."""
        return cls(lambda: port.reply(peer, make()), refusing(port, peer, request))

    def one(self) -> Gather:
        """Wait for one more proposal."""
        self._waiting += 1
        return self

    def ready(self) -> None:
        """No more proposals follow."""
        self._count()

    def committed(self, place: Place) -> None:
        self._count()

    def answer_ahead(self, place: Place) -> bool:
        """Answer, if nothing else is waited for."""
        ahead = self._ahead
        if ahead is None or self._waiting != 1 or self._error is not None or not ahead(place):
            return False
        self._forget()
        return True

    def failed(self, error: Error) -> None:
        first, self._error = self._error is None, self._error or error
        if first and self._on_failure is not None:
            self._on_failure()
        self._count()

    def _count(self) -> None:
        self._waiting -= 1
        if self._waiting:
            return
        finish, refuse, error = self._finish, self._refuse, self._error
        self._forget()
        if error is None:
            finish()
        else:
            refuse(error)

    def _forget(self) -> None:
        """Let go of what may lead back here."""
        self._finish, self._refuse, self._on_failure, self._ahead = _answered, _answered, None, None


def _answered(error: Error | None = None) -> None:
    raise AssertionError("a request is answered once")
