"""A real broker for Spark to read from, and topics of one's own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
from penstock.broker import ServeConfig
from penstock.clients import Client, connect
from support.processes import Serving

PATIENCE_S = 60.0

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One real broker with its keeper, for all tests that leave it alone."""
    folder = tmp_path_factory.mktemp("spark")
    listen = (f"unix://{folder}/broker.sock", "tcp://127.0.0.1:0")
    with Serving(ServeConfig(data=str(folder / "data"), listen=listen)) as served:
        yield served


@pytest.fixture(scope="session")
def url(serving: Serving) -> str:
    return serving.url


@pytest.fixture(scope="session")
def tcp_url(serving: Serving) -> str:
    """As executors on other machines reach it."""
    return serving.ready["listen"][1]


@pytest.fixture(scope="session")
def client(url: str) -> Iterator[Client]:
    """Fills topics, and looks at them."""
    with connect(url, timeout=PATIENCE_S) as connected:
        yield connected


@pytest.fixture
def new_topic(client: Client) -> Callable[..., str]:
    """Creates a topic with a name that no other test uses: `new_topic(partitions=4)`."""

    def create(partitions: int = 1, **settings: object) -> str:
        name = f"spark-{next(_numbers)}"
        client.create_topic(name, partitions=partitions, **settings)
        return name

    return create
