"""Messages that are sent together over a Unix socket leave with one write, to a cluster as to one broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from penstock.clients.channels.several import SeveralChannel
from penstock.clients.channels.unix import UnixChannel
from penstock.transport.messages import Ping
from penstock.transport.unix_server import UnixServer


def one(url: str) -> UnixChannel:
    return UnixChannel(url, max_bytes=1 << 20, clock=time.monotonic)


def several(url: str) -> SeveralChannel:
    return SeveralChannel(url, one)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[UnixServer]:
    server = UnixServer(f"unix://{tmp_path}/a.sock")
    yield server
    server.close()


@pytest.mark.parametrize("opened", [one, several])
def test_nothing_leaves_before_the_end_of_the_block(server: UnixServer, opened: Callable[[str], Any]) -> None:
    channel = opened(server.endpoints[0])
    assert channel.send(Ping(0))
    while server.receive() is None:
        server.refresh()
    with channel.together():
        assert channel.send(Ping(1))
        assert channel.send(Ping(2))
        server.refresh()
        assert server.receive() is None
    server.refresh()
    assert server.receive()
    assert server.receive()
    channel.close()
