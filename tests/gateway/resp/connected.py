"""A connection over a fake socket, at a door without a broker."""

from __future__ import annotations

import pytest
from penstock.gateway.connections import AllConnections, Connections
from penstock.gateway.holding import HeldBytes
from penstock.gateway.resp.connection import BEFORE_AUTH, RespConnection
from penstock.gateway.resp.requests import RequestReader, SharedReaders
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


def connected_to(door: FakeDoor) -> tuple[RespConnection, Transport]:
    """A connection that was just made, and its socket."""
    hiredis = pytest.importorskip("hiredis", reason="needs the extra gateway")
    requests = RequestReader(BEFORE_AUTH, SharedReaders(hiredis.Reader), hiredis.HiredisError)
    connection, transport = RespConnection(door, 1, requests, 1 << 20, OPEN), Transport()
    connection.connection_made(transport)
    return connection, transport
