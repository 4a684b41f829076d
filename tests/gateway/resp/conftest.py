"""Connections without a broker, and the time that they see."""

from __future__ import annotations

import pytest
from penstock.gateway.resp import connection as module
from penstock.gateway.resp.connection import RespConnection
from penstock.gateway.resp.requests import RequestReader, SharedReaders
from penstock.gateway.turns import Turns

from .connected import OPEN, FakeDoor, Transport


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(FakeDoor, "turns", Turns())
    return now


@pytest.fixture
def connected(clock) -> tuple[RespConnection, Transport]:
    hiredis = pytest.importorskip("hiredis", reason="needs the extra gateway")
    requests = RequestReader(module.BEFORE_AUTH, SharedReaders(hiredis.Reader), hiredis.HiredisError)
    connection, transport = RespConnection(FakeDoor(), 1, requests, 1 << 20, OPEN), Transport()
    connection.connection_made(transport)
    return connection, transport
