"""Ctrl-C at any moment of `connect`: no descriptor and no thread is left, and nothing that never ends."""

from __future__ import annotations

import faulthandler
import gc
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from penstock.clients import connect
from penstock.clients.channels.zmq import ZmqChannel
from penstock.clients.connection import readiness
from support.interrupts import InterruptAt

PATIENCE_S = 60.0
STRIDE = 3
INSIDE = ("clients", "transport", Path(zmq.__file__).parent.as_posix(), socket.__file__)


@pytest.fixture(autouse=True)
def no_wait_without_end() -> Iterator[None]:
    """Ending a context cannot be interrupted, so the process ends where one waits for ever."""
    faulthandler.dump_traceback_later(PATIENCE_S, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(autouse=True)
def quick_collections() -> Iterator[None]:
    """The garbage collector looks only at what the test makes."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def stride(request: pytest.FixtureRequest) -> int:
    return 1 if request.config.getoption("--soak") else STRIDE


def left_open() -> tuple[list[str], list[str]]:
    """What this process has open, and its threads, once what nothing leads to is collected."""
    gc.collect()
    opened: list[str] = []
    for number in os.listdir("/proc/self/fd"):
        try:
            opened.append(os.readlink(f"/proc/self/fd/{number}").partition(":")[0])
        except FileNotFoundError:
            continue  # that of the listing
    return sorted(opened), sorted(thread.name for thread in threading.enumerate())


def test_nothing_is_left_of_a_client(url: str, stride: int) -> None:
    connect(url).close()
    before, nth, came = left_open(), 1, True
    while came:
        client = None
        with InterruptAt(nth, inside=INSIDE) as interrupt:
            try:
                client = connect(url)
            except KeyboardInterrupt:
                assert interrupt.came
        if client is not None:
            client.close()
            client = None
        assert left_open() == before, f"interrupted at moment {nth}"
        came, nth = interrupt.came, nth + stride
    assert nth > 100


def test_a_client_that_is_dropped_is_closed(url: str) -> None:
    before = left_open()
    client = connect(url)
    client.topics()
    del client
    assert left_open() == before


@pytest.mark.parametrize("front", [readiness.Front, readiness.SelectFront])
def test_a_channel_whose_making_is_interrupted_ends(front: type, stride: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.clients.channels.zmq.Front", front)
    before, nth, came = left_open(), 1, True
    while came:
        channel = None
        with InterruptAt(nth, inside=INSIDE) as interrupt:
            try:
                channel = ZmqChannel("tcp://127.0.0.1:1", max_bytes=1 << 20)
            except KeyboardInterrupt:
                assert interrupt.came
        if channel is not None:
            channel.close()
            channel = None
        assert left_open() == before, f"interrupted at moment {nth}"
        came, nth = interrupt.came, nth + stride
    assert nth > 20
