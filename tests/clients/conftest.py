"""Clients of every kind: over memory, a directory, unix, ipc and tcp, waiting in threads and on a loop."""

from __future__ import annotations

import asyncio
import faulthandler
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from penstock.broker import ServeConfig
from penstock.clients import Client, connect
from penstock.clients.connection import delivery
from penstock.clients.embedded.local import LocalChannel
from penstock.clients.memory_broker import MemoryBroker
from penstock.clients.testing import penstock_broker, penstock_client
from support.awaited import connect_awaited
from support.processes import Serving

__all__ = ["penstock_broker", "penstock_client"]  # also where the package is not installed with its entry points

PATIENCE_S = 60.0
"""Of the clients under test: nothing is expected to take so long, but a disk shared with others may stall."""

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One real broker with its keeper, for all tests that only use it."""
    data = tmp_path_factory.mktemp("served")
    config = ServeConfig(
        data=str(data / "data"), listen=(f"unix://{data}/broker.sock", f"ipc://{data}/zmq.sock", "tcp://127.0.0.1:0")
    )
    with Serving(config) as served:
        yield served


@pytest.fixture(scope="module")
def tidying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A broker that looks all the time for what retention may take, and may be killed."""
    data = tmp_path_factory.mktemp("tidying")
    config = ServeConfig(
        data=str(data / "data"), listen=(f"unix://{data}/b.sock",), restart_first_s=0.01, node={"housekeeping_s": 0.05}
    )
    with Serving(config) as served:
        yield served


@pytest.fixture
def tidied(tidying: Serving) -> Iterator[Client]:
    """A client of that broker."""
    with connect(tidying.url, timeout=PATIENCE_S) as client:
        yield client


@pytest.fixture(params=["mem", "file", "unix", "ipc", "tcp"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An address of each kind, with a broker behind it."""
    if request.param == "mem":
        with MemoryBroker() as broker:
            yield broker.url
    elif request.param == "file":
        yield f"file://{tmp_path}/data"
    else:
        listening: list[str] = request.getfixturevalue("serving").ready["listen"]
        yield next(address for address in listening if address.startswith(request.param))


@pytest.fixture(params=["sync", "async"])
def dial(request: pytest.FixtureRequest) -> Iterator[Callable[..., Client]]:
    """Connects, the one way or the other, with the same verbs; what was opened is closed at the end."""
    opened: list[Any] = []
    with asyncio.Runner() as runner:

        def connect_one(url: str, **how: Any) -> Any:
            how = {"timeout": PATIENCE_S, **how}
            client = connect(url, **how) if request.param == "sync" else connect_awaited(url, runner, **how)
            opened.append(client)
            return client

        yield connect_one
        for client in reversed(opened):
            client.close()


@pytest.fixture
def client(dial: Callable[..., Client], url: str) -> Client:
    """A client of each kind on each address."""
    return dial(url)


@pytest.fixture
def topic() -> str:
    """A name no other test uses."""
    return f"topic-{next(_numbers)}"


@pytest.fixture
def ipc(serving: Serving) -> str:
    """The ipc address of the real broker."""
    return serving.ready["listen"][1]


@pytest.fixture
def unix(serving: Serving) -> str:
    """The unix address of the real broker."""
    return serving.ready["listen"][0]


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker seems to run on another machine."""
    monkeypatch.setattr(delivery, "is_local", lambda welcome: False)


@pytest.fixture
def losing(monkeypatch):
    """`losing(kind, nth)`: the nth message of a kind never reaches the clients of brokers in memory."""

    def lose(kind: type, *which: int, instead=None) -> None:
        put, seen = LocalChannel.put, []

        def selective(channel, message, payload):
            if type(message) is kind:
                seen.append(message)
                if len(seen) in which or not which:
                    return put(channel, instead(message), payload) if instead else True
            return put(channel, message, payload)

        monkeypatch.setattr(LocalChannel, "put", selective)

    return lose


@pytest.fixture
def no_wait_without_end() -> Iterator[None]:
    """Ending a context cannot be interrupted, so the process ends where one waits for ever."""
    faulthandler.dump_traceback_later(2 * PATIENCE_S, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
