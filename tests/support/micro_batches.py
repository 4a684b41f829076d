"""Micro-batches for tests: a broker in memory whose time goes on, records, and what is read of them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator

import penstock
import pytest
from penstock.clients import Client
from penstock.clients.embedded.local import forget
from penstock.spark.micro_batches import MicroBatches
from penstock.spark.offsets import SourceOffsets, decode, encode
from penstock.spark.planning import PlannedSpan
from penstock.spark.source_options import SourceOptions

_numbers = itertools.count(1)


@pytest.fixture
def client() -> Iterator[Client]:
    """Of a broker in memory whose clock goes as all clocks do, because it is left to wait."""
    name = f"micro-batches-{next(_numbers)}"
    with penstock.connect(f"mem://{name}", timeout=20.0) as connected:
        yield connected
    forget(name)


@pytest.fixture
def stream(client: Client) -> Callable[..., MicroBatches]:
    """A query's run: `stream(option=...)`, on topic `t` unless told otherwise."""

    def begin(**options: object) -> MicroBatches:
        if not {"subscribe", "assign", "subscribe_pattern"} & options.keys():
            options["subscribe"] = ("t",)
        return MicroBatches(SourceOptions(**options), lambda: client)  # pyright: ignore[reportArgumentType]

    return begin


def fill(client: Client, count: int, partition: int = 0, topic: str = "t", value: bytes = b"v") -> None:
    """Append records to one partition, each in a batch of its own."""
    with client.producer(topic) as producer:
        for _ in range(count):
            producer.send(value, partition=partition)


def kept(offsets: SourceOffsets) -> SourceOffsets:
    """As they come out of a checkpoint."""
    return decode(json.loads(json.dumps(encode(offsets))))


def read(spans: list[PlannedSpan]) -> dict[str, tuple[int, int]]:
    return {str(span.place): (span.begin.offset, span.end) for span in spans}


def ends(offsets: SourceOffsets) -> dict[str, int]:
    return {str(place): position.offset for place, position in offsets.places()}
