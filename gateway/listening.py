"""The sockets of a door: where it listens, and what it leaves when it stops.

Contract: `open` returns the bound addresses; `close` stops listening and removes the paths of Unix sockets that are
still its own.
Connections that are open stay open.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import structs

from ..transport import ipc_paths
from ..transport.free_addresses import host_of, refused
from ..transport.url import Url
from .connections import AllConnections
from .handshakes import HANDSHAKES_MAX, Handshakes, SecureListener, listen

BACKLOG = 511


class Listeners:
    """The listening sockets of one door. `connected` makes the protocol of a connection; `tls` is for those addresses
    whose scheme is among `secure`, where `handshakes` may be under way at a time; `every`: what the process has
    descriptors for."""

    def __init__(
        self, connected: Callable[[], Any], every: AllConnections, tls: ssl.SSLContext | None = None,
        secure: tuple[str, ...] = ("tls",), *, handshakes: int = HANDSHAKES_MAX,
    ) -> None:  # fmt: skip
        self._connected = connected
        self._handshakes = None if tls is None else Handshakes(tls, connected, every, handshakes)
        self._secure = secure
        self._servers: list[asyncio.Server | SecureListener] = []
        self._bound: list[ipc_paths.Bound] = []

    async def open(self, urls: list[Url]) -> list[str]:
        """Listen. Returns the addresses, with the ports that were free. Raises AddressInUse, CannotListen."""
        bound = []
        for url in urls:
            servers = await self._listen(url)
            self._servers += servers
            port = servers[0].sockets[0].getsockname()[1] if url.has_port else 0
            bound.append(str(structs.replace(url, port=port)))
        return bound

    async def _listen(self, url: Url) -> Sequence[asyncio.Server | SecureListener]:
        loop = asyncio.get_running_loop()
        try:
            if url.scheme == "unix":
                with ipc_paths.claimed(url.path):
                    server = await loop.create_unix_server(self._connected, url.path, backlog=BACKLOG)
                    self._bound.append(ipc_paths.Bound(url.path))
                return [server]
            host = host_of(url)
            if self._handshakes is not None and url.scheme in self._secure:
                return await listen(host, url.port, BACKLOG, self._handshakes)
            return [await loop.create_server(self._connected, host, url.port, backlog=BACKLOG)]
        except OSError as error:
            raise refused(url, error) from error

    def close(self) -> None:
        """Stop listening, and drop connections that are in their handshake."""
        if self._handshakes is not None:
            self._handshakes.close()
        for server in self._servers:
            server.close()
        for bound in self._bound:
            bound.remove()
