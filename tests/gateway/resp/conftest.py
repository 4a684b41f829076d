"""Connections without a broker, and the time that they see."""

from __future__ import annotations

import pytest
from penstock.gateway.resp import connection as module
from penstock.gateway.resp.connection import RespConnection
from penstock.gateway.turns import Turns

from .connected import FakeDoor, Transport, connected_to


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(FakeDoor, "turns", Turns())
    return now


@pytest.fixture
def connected(clock) -> tuple[RespConnection, Transport]:
    return connected_to(FakeDoor())
