"""kombu and Celery over a broker in memory, and over a served one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from kombu import Connection
from penstock.broker import ServeConfig
from penstock.clients.memory_broker import MemoryBroker
from support.processes import Serving

NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def served(tmp_path_factory) -> Iterator[Serving]:
    place = tmp_path_factory.mktemp("served")
    with Serving(ServeConfig(data=str(place / "data"), listen=(f"unix://{place}/b",), board_rows=256)) as serving:
        yield serving


@pytest.fixture(params=["mem", "unix"])
def url(request) -> Iterator[str]:
    """The address of a broker, as kombu takes it."""
    if request.param == "unix":
        yield f"penstock+{request.getfixturevalue('served').url}"
        return
    with MemoryBroker() as broker:
        yield f"penstock+{broker.url}"


@pytest.fixture
def name() -> str:
    """A name for a queue that no other test uses."""
    return f"q{next(NUMBERS)}"


@pytest.fixture
def connection(url) -> Iterator[Connection]:
    with Connection(url) as opened:
        yield opened
