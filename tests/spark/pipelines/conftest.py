"""Topics with records for pipelines."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from penstock.clients import Client
from support.archives import START_US

MINUTE_US = 60_000_000

Fill = Callable[..., str]


@pytest.fixture
def new(new_topic: Callable[..., str]) -> Callable[..., str]:
    """Makes a topic, of two partitions unless told otherwise."""

    def make(partitions: int = 2) -> str:
        return new_topic(partitions)

    return make


@pytest.fixture
def fill(client: Client) -> Fill:
    """Appends records `start` to `start + count`: ten keys, a minute apart, every third without a time of its own."""

    def append(topic: str, count: int, start: int = 0) -> str:
        with client.producer(topic) as producer:
            for number in range(start, start + count):
                producer.send_nowait(
                    b"value %d" % number,
                    key=b"key %d" % (number % 10),
                    headers={"number": b"%d" % number} if number % 2 else None,
                    timestamp=None if number % 3 == 0 else START_US + number * MINUTE_US,
                )
        return topic

    return append
