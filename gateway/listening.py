"""The sockets of a door: where it listens, and what it leaves when it stops.

Contract: `open` returns the bound addresses; `close` stops listening and removes the paths of Unix sockets.
Connections that are open stay open.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from typing import Any

from msgspec import structs

from ..transport import ipc_paths
from ..transport.free_addresses import host_of, refused
from ..transport.url import Url

BACKLOG = 511

HANDSHAKE_S = 10.0
"""For a peer to finish the handshake of TLS, and to answer when the connection closes."""


class Listeners:
    """The listening sockets of one door. `connected` makes the protocol of a connection; `tls` is for those addresses
    whose scheme is among `secure`."""

    def __init__(
        self, connected: Callable[[], Any], tls: ssl.SSLContext | None = None, secure: tuple[str, ...] = ("tls",)
    ) -> None:
        self._connected = connected
        self._tls = tls
        self._secure = secure
        self._servers: list[asyncio.Server] = []
        self._paths: list[str] = []

    async def open(self, urls: list[Url]) -> list[str]:
        """Listen. Returns the addresses, with the ports that were free. Raises AddressInUse, CannotListen."""
        bound = []
        for url in urls:
            server = await self._listen(url)
            self._servers.append(server)
            port = server.sockets[0].getsockname()[1] if url.has_port else 0
            bound.append(str(structs.replace(url, port=port)))
        return bound

    async def _listen(self, url: Url) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        if url.scheme == "unix":
            with ipc_paths.claimed(url.path):
                server = await loop.create_unix_server(self._connected, url.path, backlog=BACKLOG)
            self._paths.append(url.path)
            return server
        host = host_of(url)
        try:
            if url.scheme not in self._secure or self._tls is None:
                return await loop.create_server(self._connected, host, url.port, backlog=BACKLOG)
            return await loop.create_server(
                self._connected, host, url.port, backlog=BACKLOG, ssl=self._tls, ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=HANDSHAKE_S,
            )  # fmt: skip
        except OSError as error:
            raise refused(url, error) from error

    def close(self) -> None:
        """Stop listening."""
        for server in self._servers:
            server.close()
        for path in self._paths:
            if os.path.exists(path):
                os.unlink(path)
