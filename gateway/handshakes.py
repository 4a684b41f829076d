"""Connections whose peers have yet to finish the handshake of TLS: how many there may be, and for how long.

Idea: such a peer takes 50 KiB before the door has read a byte of it, and a stranger who sends nothing takes it all the
same. asyncio accepts as many as there are descriptors, so sockets are accepted here. A further one takes the place of
the oldest: a handshake is a matter of milliseconds, so in a flood it is silent peers that lose theirs.

Contract: at most `most` at a time, and none where the gateway has as many connections as it may, but in place of
another; `HANDSHAKE_S` for each. The door hears of a connection once its handshake is over.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any

from .connections import AllConnections

log = logging.getLogger("penstock.gateway")

HANDSHAKES_MAX = 1000
"""Of one door, which take 50 MiB."""

HANDSHAKE_S = 10.0
"""For a peer to finish the handshake, and to answer when the connection closes."""

ACCEPTED_MOST = 100
"""Connections before what else there is has its turn."""

PAUSE_S = 1.0
"""Until the next try to accept where there was no descriptor for it."""


class Handshakes:
    """See the module. `connected` makes the protocol of a connection."""

    def __init__(
        self, context: ssl.SSLContext, connected: Callable[[], Any], every: AllConnections, most: int = HANDSHAKES_MAX
    ) -> None:
        self._context = context
        self._connected = connected
        self._every = every
        self._most = most
        self._waiting: dict[asyncio.Task[None], socket.socket] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, accepted: socket.socket) -> None:
        """Take a connection, in place of the oldest if there are too many."""
        if len(self._waiting) >= self._most or (self._waiting and self._every.full):
            self._every.refused.add("connections")
            self._drop(next(iter(self._waiting)))
        task = asyncio.get_running_loop().create_task(self._shake_hands(accepted))
        self._waiting[task] = accepted
        task.add_done_callback(lambda task: self._waiting.pop(task, None))

    async def _shake_hands(self, accepted: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._connected, accepted, ssl=self._context, ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=HANDSHAKE_S,
            )  # fmt: skip
        except OSError as error:
            self._failed(error)
            error.__traceback__ = None  # its frames name the future that has it, and wait for the collector with all

    def _failed(self, error: OSError) -> None:
        if isinstance(error, ssl.SSLError):
            self._every.refused.add("protocol")
        elif isinstance(error, ConnectionAbortedError):
            self._every.refused.add("slow")
        else:
            log.debug("a peer left in its handshake: %s", error)

    def close(self) -> None:
        """Drop all."""
        for task in list(self._waiting):
            self._drop(task)

    def _drop(self, task: asyncio.Task[None]) -> None:
        accepted = self._waiting.pop(task)
        if inspect.getcoroutinestate(task.get_coro()) == inspect.CORO_CREATED:  # type: ignore[arg-type]
            accepted.close()  # or the loop does
        task.cancel()


async def listen(host: str | None, port: int, backlog: int, handshakes: Handshakes) -> list[SecureListener]:
    """Listen at all addresses of a host. Raises OSError."""
    loop, made = asyncio.get_running_loop(), list[SecureListener]()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    try:
        for family, *_, place in found:
            sock = socket.create_server(place, family=family, backlog=backlog)
            made.append(SecureListener(sock, handshakes))
    except OSError:
        for each in made:
            each.close()
        raise
    return made


class SecureListener:
    """A listening socket whose connections begin with a handshake, in place of asyncio's server."""

    def __init__(self, sock: socket.socket, handshakes: Handshakes) -> None:
        self.sockets = (sock,)  # as asyncio's server names it
        self._handshakes = handshakes
        self._loop = asyncio.get_running_loop()
        self._later: asyncio.TimerHandle | None = None
        sock.setblocking(False)
        self._listen()

    def _listen(self) -> None:
        self._loop.add_reader(self.sockets[0].fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_MOST):
            try:
                accepted, _ = self.sockets[0].accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("no connection can be accepted: %s", error.strerror)
                self._loop.remove_reader(self.sockets[0].fileno())
                self._later = self._loop.call_later(PAUSE_S, self._listen)
                return
            accepted.setblocking(False)
            self._handshakes.begin(accepted)

    def close(self) -> None:
        """Stop listening. Repeating it does nothing."""
        if self._later is not None:
            self._later.cancel()
        if self.sockets[0].fileno() >= 0:
            self._loop.remove_reader(self.sockets[0].fileno())
            self.sockets[0].close()
