"""The sink that sends rows at once, without Spark around it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from penstock.clients import Client
from penstock.clients.memory_broker import MemoryBroker
from penstock.spark import connection
from penstock.spark.sink.columns import Layout
from penstock.spark.sink.direct import DirectStreamWriter, DirectWriter
from penstock.spark.sink.options import SinkOptions
from support.topics import open_stages, texts

LAYOUT = Layout(("value",), (0,), "flights")


@pytest.fixture
def broker() -> Iterator[MemoryBroker]:
    with MemoryBroker() as serving:
        yield serving
        connection.close_all()


@pytest.fixture
def client(broker: MemoryBroker) -> Iterator[Client]:
    with broker.connect() as connected:
        connected.create_topic("flights")
        yield connected


def rows(*values: str) -> Iterator[pa.RecordBatch]:
    return iter([pa.record_batch([pa.array(values)], ["value"])])


@pytest.mark.parametrize("kind", [DirectWriter, DirectStreamWriter])
def test_rows_can_be_read_when_their_task_is_done(kind, broker: MemoryBroker, client: Client) -> None:
    writer = kind(SinkOptions(url=broker.url, topic="flights"), LAYOUT)
    assert writer.write(rows("1", "2")).rows == 2
    assert texts(client, "flights") == ["1", "2"]
    writer.write(rows("1", "2"))  # the task again
    assert texts(client, "flights") == ["1", "2", "1", "2"]
    assert open_stages(client) == 0
