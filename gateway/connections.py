"""The open connections of a door: how many there may be, and when they are closed.

Idea: each connection knows until when its peer has to go on, and the door looks at all of them once a second.

Contract: at most `most` connections, those that have yet to finish the handshake of TLS among them, and over all doors
as many as the gateway has descriptors for (AllConnections). A further one reads `refusal`, and is closed; of those,
`REFUSED_MAX` at a time. Strangers, whose peers have not authenticated where they have to, are `strangers_most` at most:
a further one takes the place of the oldest. A connection says `opened`, `known` and `closed` of itself.
"""

from __future__ import annotations

import asyncio
import gc
import select
import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakSet

from ..broker.system import return_free_memory
from .lingering import linger
from .refused import RefusedCounts

SWEEP_S = 1.0
"""How often connections are looked through for those that are overdue."""

REFUSED_MAX = 100
"""Refused connections that may still read why; further ones are closed at once."""

SWEPT = 1000
"""Closed connections of all doors after which what they leave is collected. They are freed without that (`teller`,
`_forget`), but what a request leaves that failed is not, and the collector is calm for the sake of latency."""


FLOOD = 1000
"""Connections of all doors that are many: once half of them have left, their memory goes back to the system."""


class DoorConnection(Protocol):
    """A connection, as its door sees it."""

    def overdue(self, now: float) -> bool:
        """Whether the peer has used up its time."""
        ...

    def cut(self) -> None:
        """Close at once."""
        ...

    def drain(self) -> None:
        """Close once everything that was received is answered."""
        ...


Opened = TypeVar("Opened", bound=DoorConnection)


class AllConnections:
    """The connections of all doors together."""

    def __init__(self, most: int, refused: RefusedCounts | None = None) -> None:
        self.most = most
        self.refused = refused or RefusedCounts()
        self.doors: list[Connections[Any]] = []
        self._closed = 0
        self._peak = 0  # since memory was given back

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(map(len, self.doors))

    @property
    def full(self) -> bool:
        """Whether there are as many as there may be."""
        return self.count >= self.most

    def look(self) -> None:
        """Give memory back after a flood, of which the C library would keep all."""
        count = self.count
        self._peak = max(self._peak, count)
        if self._peak >= FLOOD and count <= self._peak // 2:
            self._peak = count
            return_free_memory()

    def closed(self) -> None:
        """Know of one that is open no longer."""
        self._closed += 1
        if self._closed % SWEPT == 0:
            gc.collect()


class Connections(Generic[Opened]):
    """See the module.

    Invariant: `_begun` are those that were accepted and are neither open nor gone; asyncio says nothing of a handshake
    that fails, but forgets its connection.
    """

    def __init__(self, most: int, every: AllConnections, refusal: bytes, strangers_most: int | None = None) -> None:
        """`strangers_most`: None where peers need not authenticate."""
        self.most = min(most, every.most)
        self.refused = every.refused
        self._every = every
        self._refusal = refusal
        self._others: set[_Refused] = set()
        self._begun: WeakSet[Any] = WeakSet()
        self._open: dict[Opened, None] = {}
        self._strangers_most = strangers_most
        self._strangers: dict[Opened, None] = {}  # the oldest first
        self._empty: asyncio.Future[None] | None = None
        every.doors.append(self)

    def __len__(self) -> int:
        return len(self._open) + len(self._begun)

    def __iter__(self) -> Iterator[Opened]:
        return iter(list(self._open))

    def accept(self, make: Callable[[], Opened]) -> Any:
        """The protocol of a socket that was accepted."""
        if len(self) >= self.most or self._every.full:
            self.refused.add("connections")
            return _Refused(self._refusal, self._others)
        made = make()
        self._begun.add(made)
        return made

    def opened(self, connection: Opened) -> None:
        """Know of an open connection."""
        self._begun.discard(connection)
        self._open[connection] = None
        if self._strangers_most is not None:
            self._strangers[connection] = None
            if len(self._strangers) > self._strangers_most:
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                self.refused.add("connections")
                oldest.cut()
        if self._empty is not None:
            connection.cut()

    def known(self, connection: Opened) -> None:
        """Know that a peer has authenticated."""
        self._strangers.pop(connection, None)

    def closed(self, connection: Opened) -> None:
        """Know of one that is open no longer."""
        self._open.pop(connection, None)
        self._strangers.pop(connection, None)
        self._every.closed()
        if not self._open and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    def look(self) -> None:
        """Cut off those that are overdue."""
        self._every.look()
        now = time.monotonic()
        for connection in self:
            if connection.overdue(now):
                self.refused.add("slow")
                connection.cut()

    async def drain(self, seconds: float) -> None:
        """Close every connection once it is answered, and after `seconds` at the latest."""
        self._empty = asyncio.get_running_loop().create_future()
        for connection in self:
            connection.drain()
        if self._open:
            await asyncio.wait([self._empty], timeout=seconds)
        for connection in (*self, *self._others):
            connection.cut()


def has_closed(transport: Any) -> bool:
    """Whether a peer has closed its end, also behind bytes that are not read."""
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), select.POLLRDHUP)
    return bool(poll.poll(0))


class _Refused(asyncio.Protocol):
    """A connection above the limit."""

    def __init__(self, refusal: bytes, others: set[_Refused]) -> None:
        self._refusal = refusal
        self._others = others
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.write(self._refusal)
        if len(self._others) < REFUSED_MAX:
            self._others.add(self)
            linger(transport, self)
        else:
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._others.discard(self)

    def cut(self) -> None:
        """See DoorConnection."""
        self._transport.abort()
