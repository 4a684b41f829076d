"""What a task reads: whole spans, and what is left of them when records are gone. Spark is not started."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra penstock[spark]")

from penstock.clients import Client
from penstock.spark.errors import DataLoss, InvalidColumns
from penstock.spark.offsets import PartitionKey, Position
from penstock.spark.planning import PlannedSpan
from penstock.spark.reading import SpanPartition, SpanReader
from penstock.spark.source_options import SourceOptions
from pyspark import cloudpickle
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

PAIR = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
KINDS = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "headers": ArrayType(PAIR),
}
SCHEMA = StructType([StructField("offset", LongType()), StructField("value", BinaryType())])

Reader = Callable[..., SpanReader]


@pytest.fixture(params=["mapped", "fetched"])
def reader(request: pytest.FixtureRequest, url: str) -> Reader:
    """`reader(option=...)`: reads mapped files, or asks the broker for batches."""

    def make(**options: object) -> SpanReader:
        found = SourceOptions(mapped="true" if request.param == "mapped" else "false", **options)  # pyright: ignore
        return cloudpickle.loads(cloudpickle.dumps(SpanReader(url, found, SCHEMA)))  # as Spark does

    return make


def fill(client: Client, topic: str, count: int, value: bytes = b"") -> None:
    """Each in a batch of its own."""
    with client.producer(topic) as producer:
        for number in range(count):
            producer.send(value or b"%d" % number)


def span(client: Client, topic: str, begin: int, end: int, term: int = -1) -> PlannedSpan:
    return PlannedSpan(PartitionKey(topic, 0), client.topic(topic).id, Position(begin, term), end)


def offsets(reader: SpanReader, wanted: PlannedSpan) -> list[int]:
    batches = list(reader.read(SpanPartition([wanted])))
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_all_of_a_span_is_read_and_nothing_else(reader, client, new_topic):
    topic = new_topic()
    fill(client, topic, 20)
    (batch,) = reader().read(SpanPartition([span(client, topic, 3, 17)]))
    assert batch.column("offset").to_pylist() == list(range(3, 17))
    assert batch.column("value").to_pylist() == [b"%d" % number for number in range(3, 17)]


def test_the_broker_sends_nothing_but_the_columns_that_are_asked_for(url, client, new_topic):
    topic = new_topic()
    with client.producer(topic) as producer:
        producer.send(b"value", key=b"key", headers={"h": b"1"}, timestamp=1_600_000_000_000_000)
    wanted = ((["value"], [1]), (["key", "offset"], [2]), (["topic"], [5]), (["headers", "timestamp"], [4, 5]))
    for names, ids in wanted:
        fields = [StructField(name, KINDS[name]) for name in names]
        reader = SpanReader(url, SourceOptions(mapped="false"), StructType(fields))
        ((batch, _),) = reader._batches(span(client, topic, 0, 1))
        assert sorted(column.id for column in batch.directory()) == ids


def test_a_partition_that_is_no_span_holds_nothing(reader):
    assert list(reader().read(InputPartition(None))) == []


def test_columns_that_records_do_not_have_are_refused(url):
    with pytest.raises(InvalidColumns, match="column value is binary, not string"):
        SpanReader(url, SourceOptions(), StructType([StructField("value", StringType())]))


def test_records_that_retention_took_since_they_were_planned(url, client, new_topic, caplog):
    """A mapped reader may still find them, for as long as their files are there."""
    topic = new_topic(retention_bytes="64KB", segment_bytes="64KB")
    while not client.topic(topic).partitions[0].first:
        fill(client, topic, 20, bytes(8192))
    end = client.topic(topic).partitions[0].end
    planned = span(client, topic, 0, end)
    reader = SpanReader(url, SourceOptions(mapped="false"), SCHEMA)
    with pytest.raises(DataLoss, match=rf"records 0 to .* of {topic}-0 are gone: retention took them"):
        offsets(reader, planned)
    found = offsets(SpanReader(url, SourceOptions(mapped="false", fail_on_data_loss=False), SCHEMA), planned)
    assert found[0] > 0
    assert found == list(range(found[0], end))
    assert "retention took them" in caplog.text


def test_a_topic_that_was_deleted_since(reader, client, new_topic, caplog):
    topic = new_topic()
    fill(client, topic, 3)
    planned = span(client, topic, 0, 3)
    client.delete_topic(topic)
    with pytest.raises(DataLoss, match=rf"records 0 to 2 of {topic}-0 cannot all be read: .*failOnDataLoss=false"):
        offsets(reader(), planned)
    assert offsets(reader(fail_on_data_loss=False), planned) == []
    client.create_topic(topic)
    fill(client, topic, 3)
    with pytest.raises(DataLoss, match="was deleted"):
        offsets(reader(), planned)
    assert caplog.records[0].levelno == logging.WARNING


def test_a_position_in_what_a_power_cut_took(reader, client, new_topic, caplog):
    topic = new_topic()
    fill(client, topic, 6)
    term = client.positions(topic, "latest")[0][1]
    assert offsets(reader(), span(client, topic, 3, 6, term)) == [3, 4, 5]
    with pytest.raises(DataLoss, match=rf"of {topic}-0 cannot all be read: position 3 of term {term + 7}"):
        offsets(reader(), span(client, topic, 3, 6, term + 7))
    assert offsets(reader(fail_on_data_loss=False), span(client, topic, 3, 6, term + 7)) == [3, 4, 5]
    assert "was lost" in caplog.text


def test_damaged_records(reader, client, new_topic, caplog):
    topic = new_topic()
    with client.producer(topic) as producer:
        for number in range(9):
            producer.send(b"record number %d" % number)
    damage(Path(client.topic(topic).partitions[0].directory), b"record number 5")
    with pytest.raises(DataLoss, match=rf"of {topic}-0 cannot all be read: .*damaged"):
        offsets(reader(), span(client, topic, 0, 9))
    assert offsets(reader(fail_on_data_loss=False), span(client, topic, 0, 9)) == [0, 1, 2, 3, 4, 6, 7, 8]
    assert "damaged" in caplog.text


def damage(log: Path, value: bytes) -> None:
    """Flip a bit of a value, in the one segment of a log."""
    (segment,) = log.glob("*.segment")
    with segment.open("r+b") as file:
        file.seek(segment.read_bytes().index(value))
        file.write(bytes([value[0] ^ 1]))


def test_of_several_addresses_the_one_that_leads_is_read(tcp_url, client, new_topic):
    topic = new_topic()
    fill(client, topic, 3)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # as a node that hangs
        nowhere = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        reader = SpanReader(f"{nowhere},{tcp_url.removeprefix('tcp://')}", SourceOptions(), SCHEMA)
        assert offsets(reader, span(client, topic, 0, 3)) == [0, 1, 2]
        reader.client().close()
