"""The RESP door as a whole: its sockets, its connections, and what they share.

Contract: `open` listens and returns the bound addresses; `drain` stops listening, and answers what has arrived. More
than `CONNECTIONS_MAX` connections are refused. Those of a user that is deleted, or whose password has changed, are
answered and closed within `SWEEP_S` of the gateway's hearing of it.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Mapping
from itertools import count
from typing import Any

from ...broker.rights import Principal
from ...transport.url import Url
from .. import libraries
from ..connections import SWEEP_S, AllConnections, Connections
from ..holding import HeldBytes
from ..link import BrokerLink
from ..listening import Listeners
from ..users import Users
from .basic import REDIS_VERSION
from .command import Command, RespSession
from .connection import BEFORE_AUTH, RespConnection
from .replies import error
from .requests import RequestReader, SharedReaders
from .table import TABLE
from .trims import TrimsBeside

CONNECTIONS_MAX = 10_000
REFUSAL = error("ERR max number of clients reached")

BESIDE_A_RECORD_BYTES = 64 << 10
"""What a command may have beside a record of the largest size: its name, its key, names of fields."""


class RespDoor:
    """See the module. Also what handlers see of it (command.py, Door)."""

    def __init__(
        self, link: BrokerLink, every: AllConnections, held: HeldBytes, *, users: Users | None, may_create: bool,
        tls: ssl.SSLContext | None,
    ) -> None:  # fmt: skip
        self.link = link
        self.turns = link.turns
        self.held = held
        self.users = users
        self.may_create = may_create
        self.trims = TrimsBeside()
        self.table: Mapping[str, Command] = TABLE
        self._hiredis = libraries.load("hiredis")
        self._readers = SharedReaders(self._hiredis.Reader)
        self._listeners = Listeners(lambda: self._connections.accept(self._connected), every, tls)
        self._connections: Connections[RespConnection] = Connections(CONNECTIONS_MAX, every, REFUSAL)
        self._ids = count(1)
        self._began = time.monotonic()
        self._sweep: asyncio.TimerHandle | None = None

    async def open(self, urls: list[Url]) -> list[str]:
        """Listen. Returns the addresses, with the ports that were free. Raises AddressInUse, CannotListen."""
        bound = await self._listeners.open(urls)
        self._look()
        return bound

    def _connected(self) -> RespConnection:
        welcome = self.link.driver.connection.welcome
        record_bytes = welcome.max_record_bytes if welcome is not None else 16 << 20
        requests = RequestReader(BEFORE_AUTH, self._readers, self._hiredis.HiredisError)
        most = record_bytes + BESIDE_A_RECORD_BYTES
        return RespConnection(self, next(self._ids), requests, most, self._connections)

    def _look(self) -> None:
        """Cut off the connections that are overdue, and end those whose users are gone, and waits of peers that are."""
        self._connections.look()
        for connection in self._connections:
            if self.users is not None and connection.principal is not None:
                if not self.users.stands(connection.principal):
                    connection.drain()
            connection.look()
        self.held.look()
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
            "clients": {"connected_clients": len(self._connections), "maxclients": self._connections.most},
            "persistence": {"loading": 0, "aof_enabled": 1},
            "replication": {"role": "master", "connected_slaves": 0},
            "cluster": {"cluster_enabled": 0},
        }  # fmt: skip

    def sessions(self, principal: Principal) -> list[RespSession]:
        """See Door."""
        found: list[RespSession] = [*self._connections]
        return [session for session in found if session.principal == principal]

    async def drain(self, seconds: float) -> None:
        """Stop listening, answer what has arrived, and close every connection after `seconds` at the latest."""
        if self._sweep is not None:
            self._sweep.cancel()
        self._listeners.close()
        await self._connections.drain(seconds)
