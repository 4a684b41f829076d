"""The HTTP door as a whole: its sockets, its connections, and what requests share.

Contract: `open` listens and returns the bound addresses. `drain` stops listening and answers what has arrived; requests
that wait for messages are answered without any. More than `CONNECTIONS_MAX` connections are refused.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Sequence
from email.utils import formatdate

from uvicorn.config import Config
from uvicorn.server import ServerState

from ...transport.url import Url
from ..config import GatewayConfig
from ..connections import SWEEP_S, AllConnections, Connections
from ..holding import HeldBytes
from ..link import BrokerLink
from ..listening import Listeners
from ..users import Users
from .app import application
from .connection import IDLE_S, HttpConnection, refusal
from .openapi import document
from .operation import HttpOperation
from .page import page
from .streaming import SampledStats
from .table import TABLE

CONNECTIONS_MAX = 5_000
STRANGERS_MAX = 1_000
"""Connections of peers that have to authenticate and have not: the oldest makes room for a new one."""

BODY_BYTES_LEAST = 32 << 20
"""A body may be so large, and larger where the largest record is."""

REFUSAL = refusal(503, "too_busy", "the gateway has as many connections as it may: try again")


class HttpDoor:
    """See the module. Also what handlers see of it (operation.py, HttpGateway)."""

    def __init__(
        self,
        link: BrokerLink,
        every: AllConnections,
        held: HeldBytes,
        *,
        users: Users | None,
        config: GatewayConfig,
        tls: ssl.SSLContext | None,
        pages: Sequence[HttpOperation] = (),
    ) -> None:
        """`pages` are served beside the operations, and are not in their document."""
        self.link = link
        self.users = users
        self._held = held
        self.may_create = config.may_create
        self.origins = config.cors
        self.refused = every.refused
        self.stats = SampledStats(link)
        self.ending: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.document = document(TABLE)
        self.page = page(TABLE)
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # a peer's mistake is no event
        self._config = Config(
            application(self, (*TABLE, *pages), self._body_bytes(), held, every.refused),
            http=HttpConnection, ws="none", lifespan="off", log_config=None, access_log=False, proxy_headers=False,
            server_header=False, timeout_keep_alive=IDLE_S,
        )  # fmt: skip
        self._config.load()
        self._state = ServerState()
        self._connections: Connections[HttpConnection] = Connections(
            CONNECTIONS_MAX, every, REFUSAL, None if users is None else STRANGERS_MAX
        )
        self._listeners = Listeners(lambda: self._connections.accept(self._connected), every, tls, ("tcp", "tls"))
        self._sweep: asyncio.TimerHandle | None = None

    def _body_bytes(self) -> int:
        welcome = self.link.driver.connection.welcome
        record = welcome.max_record_bytes if welcome is not None else 0
        return max(BODY_BYTES_LEAST, record + record // 2)  # base64 takes a third more

    async def open(self, urls: list[Url]) -> list[str]:
        """Listen. Returns the addresses, with the ports that were free. Raises AddressInUse, CannotListen."""
        bound = await self._listeners.open(urls)
        self._look()
        return bound

    def _connected(self) -> HttpConnection:
        return HttpConnection(self._config, self._state, self._connections, stranger=self.users is not None)

    def _look(self) -> None:
        """Cut off the connections that are overdue, and tell the time."""
        self._connections.look()
        self._held.look()
        self._state.default_headers = [(b"date", formatdate(usegmt=True).encode())]
        self._sweep = asyncio.get_running_loop().call_later(SWEEP_S, self._look)

    async def drain(self, seconds: float) -> None:
        """Stop listening, answer what has arrived, and close every connection after `seconds` at the latest."""
        if self._sweep is not None:
            self._sweep.cancel()
        self._listeners.close()
        if not self.ending.done():
            self.ending.set_result(None)
        await self._connections.drain(seconds)
