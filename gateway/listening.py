"""The sockets of a door: where it listens, and what it leaves when it stops.

Contract: `open` returns the bound addresses; `close` stops listening and removes the paths of Unix sockets.
Connections that are open stay open. `need_free` tells beforehand, and creates nothing.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

from msgspec import structs

from ..storage.errors import Error
from ..transport import ipc_paths
from ..transport.errors import AddressInUse, CannotListen
from ..transport.url import Url

BACKLOG = 511

HANDSHAKE_S = 10.0
"""For a peer to finish the handshake of TLS, and to answer when the connection closes."""

_SURE = (errno.EADDRINUSE, errno.EACCES)
"""Why an address that is tried is refused at once."""


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
        host = _host(url)
        try:
            if url.scheme not in self._secure or self._tls is None:
                return await loop.create_server(self._connected, host, url.port, backlog=BACKLOG)
            return await loop.create_server(
                self._connected, host, url.port, backlog=BACKLOG, ssl=self._tls, ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=HANDSHAKE_S,
            )  # fmt: skip
        except OSError as error:
            raise _refused(url, error) from error

    def close(self) -> None:
        """Stop listening."""
        for server in self._servers:
            server.close()
        for path in self._paths:
            if os.path.exists(path):
                os.unlink(path)


def need_free(urls: Iterable[Url]) -> None:
    """Try all addresses, and leave them as they were. Raises AddressInUse, CannotListen, also where two are the same.

    What only a listener finds out, such as a family of addresses that the machine does not have, is left to it.
    """
    with ExitStack() as stack:
        paths: set[str] = set()
        for url in urls:
            if url.has_port:
                _try_port(url, stack)
                continue
            ipc_paths.need_free(url.path)
            if url.path in paths:
                raise AddressInUse(f"{url} is named twice; choose another path for one of the doors")
            paths.add(url.path)


def _try_port(url: Url, stack: ExitStack) -> None:
    """Listen on a port until `stack` closes."""
    try:
        for family, kind, protocol, _, place in socket.getaddrinfo(
            _host(url), url.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            tried = stack.enter_context(socket.socket(family, kind, protocol))
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                tried.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            tried.bind(place)
            tried.listen()
    except OSError as error:
        if error.errno in _SURE or isinstance(error, socket.gaierror):
            raise _refused(url, error) from error


def _host(url: Url) -> str | None:
    return None if url.host == "*" else url.host.strip("[]")


def _refused(url: Url, error: OSError) -> Error:
    if error.errno == errno.EADDRINUSE:
        return AddressInUse(f"a process already listens on {url}; stop it or choose another address")
    return CannotListen(f"cannot listen on {url}: {error.strerror or error}")
