"""The RESP door as a whole: its sockets, its connections, and what they share.

Contract: `open` listens and returns the bound addresses; `drain` stops listening, and answers what has arrived. More
than `CONNECTIONS_MAX` connections are refused.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from itertools import count
from typing import Any

from ...transport.url import Url
from .. import libraries
from ..authorization import Principal
from ..link import BrokerLink
from ..listening import Listeners
from ..users import Users
from .basic import REDIS_VERSION
from .command import Command, RespSession
from .connection import BEFORE_AUTH, RespConnection
from .replies import error
from .requests import RequestReader
from .table import TABLE
from .trims import TrimsBeside

CONNECTIONS_MAX = 10_000
SWEEP_S = 1.0
"""How often connections are looked through for those that are overdue."""

BESIDE_A_RECORD_BYTES = 64 << 10
"""What a command may have beside a record of the largest size: its name, its key, names of fields."""


class RespDoor:
    """See the module. Also what handlers see of it (command.py, Door)."""

    def __init__(self, link: BrokerLink, *, users: Users | None, may_create: bool) -> None:
        self.link = link
        self.users = users
        self.may_create = may_create
        self.trims = TrimsBeside()
        self.table: Mapping[str, Command] = TABLE
        self._hiredis = libraries.load("hiredis")
        self._listeners = Listeners(self._connected)
        self._connections: dict[int, RespConnection] = {}
        self._ids = count(1)
        self._began = time.monotonic()
        self._sweep: asyncio.TimerHandle | None = None
        self._empty: asyncio.Future[None] | None = None

    async def open(self, urls: list[Url]) -> list[str]:
        """Listen. Returns the addresses, with the ports that were free. Raises AddressInUse, CannotListen."""
        bound = await self._listeners.open(urls)
        self._look()
        return bound

    def _connected(self) -> Any:
        if len(self._connections) >= CONNECTIONS_MAX:
            return _TooMany()
        welcome = self.link.driver.connection.welcome
        record_bytes = welcome.max_record_bytes if welcome is not None else 16 << 20
        requests = RequestReader(BEFORE_AUTH, self._hiredis.Reader, self._hiredis.HiredisError)
        id_ = next(self._ids)
        connection = RespConnection(self, id_, requests, record_bytes + BESIDE_A_RECORD_BYTES, self._on_closed)
        self._connections[id_] = connection
        return connection

    def _on_closed(self, connection: RespConnection) -> None:
        self._connections.pop(connection.id, None)
        if not self._connections and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    def _look(self) -> None:
        """Cut off the connections that are overdue."""
        now = time.monotonic()
        for connection in [each for each in self._connections.values() if each.overdue(now)]:
            connection.cut()
        self._sweep = asyncio.get_running_loop().call_later(SWEEP_S, self._look)

    def facts(self) -> dict[str, dict[str, Any]]:
        """See Door."""
        welcome = self.link.driver.connection.welcome
        return {
            "server": {
                "redis_version": REDIS_VERSION, "redis_mode": "standalone", "arch_bits": 64, "server_name": "penstock",
                "penstock_broker": welcome.server if welcome is not None else "", "process_id": os.getpid(),
                "uptime_in_seconds": int(time.monotonic() - self._began),
            },
            "clients": {"connected_clients": len(self._connections), "maxclients": CONNECTIONS_MAX},
            "persistence": {"loading": 0, "aof_enabled": 1},
            "replication": {"role": "master", "connected_slaves": 0},
            "cluster": {"cluster_enabled": 0},
        }  # fmt: skip

    def sessions(self, principal: Principal) -> list[RespSession]:
        """See Door."""
        found: list[RespSession] = [*self._connections.values()]
        return [session for session in found if session.principal == principal]

    async def drain(self, seconds: float) -> None:
        """Stop listening, answer what has arrived, and close every connection after `seconds` at the latest."""
        if self._sweep is not None:
            self._sweep.cancel()
        self._listeners.close()
        for connection in list(self._connections.values()):
            connection.drain()
        if self._connections:
            self._empty = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._empty], timeout=seconds)
        for connection in list(self._connections.values()):
            connection.cut()


class _TooMany(asyncio.Protocol):
    """A connection above the limit."""

    def connection_made(self, transport: Any) -> None:
        transport.write(error("ERR max number of clients reached"))
        transport.close()
