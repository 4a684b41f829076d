"""Sockets of ZeroMQ, closed with their context, at both kinds of addresses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from penstock.transport.zmq_serving import ServerSocket
from penstock.transport.zmq_sockets import Context


@pytest.fixture
def context() -> Iterator[Context]:
    with Context() as made:
        yield made


@pytest.fixture(params=["ipc", "tcp"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/run/broker.sock" if request.param == "ipc" else "tcp://127.0.0.1:0"


@pytest.fixture
def server(context: Context, url: str) -> ServerSocket:
    return context.server([url])
