"""Ctrl-C at any moment of `connect`: no descriptor and no thread is left, and nothing that never ends."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import zmq
from penstock.clients import connect
from penstock.clients.channels.zmq import ZmqChannel
from penstock.clients.connection import readiness
from support.interrupts import interrupts, left_open

STRIDE = 3
pytestmark = pytest.mark.usefixtures("quick_collections", "no_wait_without_end")
INSIDE = ("clients", "transport", Path(zmq.__file__).parent.as_posix(), socket.__file__)


@pytest.fixture
def stride(request: pytest.FixtureRequest) -> int:
    return 1 if request.config.getoption("--soak") else STRIDE


def test_nothing_is_left_of_a_client(url: str, stride: int) -> None:
    connect(url).close()
    before = left_open()
    for interrupt in interrupts(INSIDE, stride=stride, above=100):
        client = None
        with interrupt:
            client = connect(url)
        if client is not None:
            client.close()
            client = None
        assert left_open() == before, f"interrupted at moment {interrupt.nth}"


def test_a_client_that_is_dropped_is_closed(url: str) -> None:
    before = left_open()
    client = connect(url)
    client.topics()
    del client
    assert left_open() == before


@pytest.mark.parametrize("front", [readiness.Front, readiness.SelectFront])
def test_a_channel_whose_making_is_interrupted_ends(front: type, stride: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.clients.channels.zmq.Front", front)
    before = left_open()
    for interrupt in interrupts(INSIDE, stride=stride, above=20):
        channel = None
        with interrupt:
            channel = ZmqChannel("tcp://127.0.0.1:1", max_bytes=1 << 20)
        if channel is not None:
            channel.close()
            channel = None
        assert left_open() == before, f"interrupted at moment {interrupt.nth}"
