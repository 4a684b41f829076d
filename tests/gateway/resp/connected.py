"""A connection over a fake socket, at a door without a broker."""

from __future__ import annotations

from penstock.gateway.connections import AllConnections, Connections
from penstock.gateway.holding import HeldBytes
from penstock.gateway.resp.connection import RespConnection
from penstock.gateway.resp.table import TABLE
from penstock.gateway.turns import Turns

from ..fakes import FakeTransport


class Transport(FakeTransport):
    """Of a client over TCP."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 5))


OPEN: Connections[RespConnection] = Connections(1, AllConnections(1), b"")


class FakeDoor:
    """What a connection needs of its door, without a broker."""

    users = None
    table = TABLE
    may_create = True
    turns = Turns()
    held = HeldBytes()
