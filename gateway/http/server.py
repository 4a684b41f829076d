"""The HTTP door as a whole: its sockets, its connections, and what requests share.

Contract: `open` listens and returns the bound addresses. `drain` stops listening and answers what has arrived; requests
that wait for messages are answered without any. More than `CONNECTIONS_MAX` connections are refused.
"""

from __future__ import annotations

import asyncio
import logging
import time
from email.utils import formatdate
from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from ...transport.url import Url
from ..config import GatewayConfig
from ..link import BrokerLink
from ..listening import Listeners
from ..tls import server_context
from ..users import Users
from .app import application
from .connection import IDLE_S, HttpConnection
from .openapi import document
from .page import page
from .streaming import SampledStats
from .table import TABLE

CONNECTIONS_MAX = 5_000
SWEEP_S = 1.0
"""How often connections are looked through for those that are overdue."""

BODY_BYTES_LEAST = 32 << 20
"""A body may be so large, and larger where the largest record is."""

TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class HttpDoor:
    """See the module. Also what handlers see of it (operation.py, HttpGateway)."""

    def __init__(self, link: BrokerLink, *, users: Users | None, config: GatewayConfig) -> None:
        self.link = link
        self.users = users
        self.may_create = config.may_create
        self.origins = config.cors
        self.stats = SampledStats(link)
        self.ending: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.document = document(TABLE)
        self.page = page(TABLE)
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # a peer's mistake is no event
        self._config = Config(
            application(self, TABLE, self._body_bytes()), http=HttpConnection, ws="none", lifespan="off",
            log_config=None, access_log=False, proxy_headers=False, server_header=False, timeout_keep_alive=IDLE_S,
        )  # fmt: skip
        self._config.load()
        self._state = ServerState()
        self._connections: set[HttpConnection] = set()
        self._listeners = Listeners(self._connected, server_context(config.tls_certificate, config.tls_key))
        self._sweep: asyncio.TimerHandle | None = None
        self._empty: asyncio.Future[None] | None = None

    def _body_bytes(self) -> int:
        welcome = self.link.driver.connection.welcome
        record = welcome.max_record_bytes if welcome is not None else 0
        return max(BODY_BYTES_LEAST, record + record // 2)  # base64 takes a third more

    async def open(self, urls: list[Url]) -> list[str]:
        """Listen. Returns the addresses, with the ports that were free. Raises AddressInUse, CannotListen."""
        bound = await self._listeners.open(urls)
        self._look()
        return bound

    def _connected(self) -> Any:
        if len(self._connections) >= CONNECTIONS_MAX:
            return _Refused()
        return HttpConnection(self._config, self._state, self._connections, self._on_closed)

    def _on_closed(self) -> None:
        if not self._connections and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    def _look(self) -> None:
        """Cut off the connections that are overdue, and tell the time."""
        now = time.monotonic()
        for connection in [each for each in self._connections if each.overdue(now)]:
            connection.cut()
        self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
        self._sweep = asyncio.get_running_loop().call_later(SWEEP_S, self._look)

    async def drain(self, seconds: float) -> None:
        """Stop listening, answer what has arrived, and close every connection after `seconds` at the latest."""
        if self._sweep is not None:
            self._sweep.cancel()
        self._listeners.close()
        if not self.ending.done():
            self.ending.set_result(None)
        for connection in list(self._connections):
            connection.shutdown()
        if self._connections:
            self._empty = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._empty], timeout=seconds)
        for connection in list(self._connections):
            connection.cut()


class _Refused(asyncio.Protocol):
    """A connection above the limit."""

    def connection_made(self, transport: Any) -> None:
        transport.write(TOO_MANY)
        transport.close()
