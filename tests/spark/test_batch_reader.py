"""Batches with a real Spark: columns, options, filters, ways to the broker, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra penstock[spark]")

from penstock.clients import Client
from penstock.spark import register
from pyspark.errors import PySparkException
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KAFKAS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField(
            "headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
        ),
    ]
)
"""Of Spark's Kafka source, with includeHeaders=true."""

PARTITIONS = 2
RECORDS = 20
EVENT_US = 1_600_000_000_000_000


@pytest.fixture(scope="module")
def flights(client: Client) -> str:
    """A topic with 20 records in each of two partitions: some with keys, headers and times of their own."""
    name = "flights-to-read"
    client.create_topic(name, partitions=PARTITIONS)
    with client.producer(name) as producer:
        for partition in range(PARTITIONS):
            for number in range(RECORDS):
                producer.send(
                    b"%d-%d" % (partition, number),
                    key=b"key" if number % 2 else None,
                    headers={"number": b"%d" % number, "none": b""} if number % 3 == 0 else None,
                    timestamp=EVENT_US + number * 1_000_000 if number % 4 == 0 else None,
                    partition=partition,
                )
    return name


Load = Callable[..., "DataFrame"]


@pytest.fixture
def load(spark: SparkSession, url: str, flights: str) -> Load:
    """`load(option=...)`: from the topic, unless another one is named."""

    def begin(**options: Any) -> DataFrame:
        if not {"subscribe", "assign", "subscribePattern"} & options.keys():
            options["subscribe"] = flights
        return spark.read.format("penstock").options(**{"url": url, **options}).load()

    return begin


def offsets(rows: DataFrame) -> dict[int, list[int]]:
    """By partition, in the order in which they come."""
    found: dict[int, list[int]] = {}
    for row in rows.select("partition", "offset").collect():
        found.setdefault(row.partition, []).append(row.offset)
    return found


def span(first: int, end: int) -> list[int]:
    return list(range(first, end))


# -- columns ---------------------------------------------------------------------------------------------------


def test_columns_and_types_are_those_of_the_kafka_source(load):
    found = load(includeHeaders=True).schema
    assert [(field.name, field.dataType) for field in found] == [(field.name, field.dataType) for field in KAFKAS]
    assert [field.name for field in found if field.nullable] == ["key", "value", "headers"], (
        "the others always have a value"
    )
    assert load().schema == StructType(found.fields[:-1])


def test_rows_are_the_records(load, client, flights):
    found = load(includeHeaders=True).collect()
    assert len(found) == PARTITIONS * RECORDS
    for partition in range(PARTITIONS):
        rows = [row for row in found if row.partition == partition]
        records = client.read(flights, partition, 0)
        assert [row.offset for row in rows] == [record.offset for record in records] == span(0, RECORDS)
        for row, record in zip(rows, records, strict=True):
            assert bytes(row.value) == record.value
            assert (None if row.key is None else bytes(row.key)) == record.key
            assert row.topic == flights
            assert row.timestamp.astimezone(UTC) == record.time
            assert row.timestampType == (0 if row.offset % 4 == 0 else 1)
            assert {pair.key: bytes(pair.value) for pair in row.headers or ()} == dict(record.headers)
            assert (row.headers is None) == (not record.headers)


def test_columns_are_chosen_by_name(load):
    found = load(columns="OFFSET,value")
    assert found.schema == StructType([StructField("offset", LongType(), False), StructField("value", BinaryType())])
    assert sorted(bytes(row.value) for row in found.collect() if row.offset == 7) == [b"0-7", b"1-7"]
    assert load(columns="topic").distinct().count() == 1
    assert [field.name for field in load(columns="headers,timestampType").schema] == ["headers", "timestampType"]


def test_columns_are_chosen_by_a_schema(spark, url, flights):
    reader = spark.read.format("penstock").options(url=url, subscribe=flights)
    found = reader.schema("`offset` bigint, key binary, value binary not null").load()
    assert found.columns == ["offset", "key", "value"]
    assert {(row.offset, row.key is None) for row in found.collect()} == {(n, n % 2 == 0) for n in span(0, RECORDS)}


# -- options ---------------------------------------------------------------------------------------------------

FLIGHTS = "flights-to-read"
HALF = json.dumps({FLIGHTS: {"0": 5, "1": -2}})
LATER = json.dumps({FLIGHTS: {"0": 9, "1": -1}})
ALL = {0: span(0, RECORDS), 1: span(0, RECORDS)}
LONG_AGO = json.dumps({FLIGHTS: {"0": 0, "1": 4_000_000_000_000}})


@pytest.mark.parametrize(
    ("options", "read"),
    [
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, ALL),
        ({"startingOffsets": HALF}, {0: span(5, 20), 1: span(0, 20)}),
        ({"startingOffsets": HALF, "endingOffsets": LATER}, {0: span(5, 9), 1: span(0, 20)}),
        ({"endingOffsets": json.dumps({FLIGHTS: {"0": 0, "1": 3}})}, {1: [0, 1, 2]}),
        ({"assign": json.dumps({FLIGHTS: [1]})}, {1: span(0, 20)}),
        ({"subscribePattern": "flights-to-.*d"}, ALL),
        ({"subscribePattern": "flights"}, {}),
        ({"startingTimestamp": 0}, ALL),
        ({"startingTimestamp": 4_000_000_000_000, "startingOffsetsByTimestampStrategy": "latest"}, {}),
        ({"endingTimestamp": 0}, {}),
        ({"endingOffsetsByTimestamp": LONG_AGO}, {1: span(0, 20)}),
        (
            {"startingOffsetsByTimestamp": LONG_AGO, "startingOffsetsByTimestampStrategy": "latest"},
            {0: span(0, 20)},
        ),
        ({"mapped": "true"}, ALL),
        ({"mapped": "false"}, ALL),
        ({"failOnDataLoss": "false", "timeout": "10s", "maxOffsetsPerTrigger": "1"}, ALL),
    ],
    ids=lambda given: " ".join(given) if given and isinstance(next(iter(given)), str) else "",
)
def test_options_say_what_is_read(load, options, read):
    assert offsets(load(**options)) == read


def test_a_time_between_two_records_divides_them(load, client, new_topic):
    name = new_topic()
    with client.producer(name) as producer:
        producer.send(b"one")
        while client.read(name, 0, 0)[0].timestamp // 1000 == int(datetime.now(UTC).timestamp() * 1000):
            pass  # until the millisecond is over
        producer.send(b"two")
    between_ms = client.read(name, 0, 0)[0].timestamp // 1000 + 1
    assert offsets(load(subscribe=name, startingTimestamp=between_ms)) == {0: [1]}
    assert offsets(load(subscribe=name, endingTimestamp=between_ms)) == {0: [0]}


@pytest.mark.parametrize(
    ("options", "tasks"),
    [({}, 2), ({"minPartitions": 8}, 8), ({"maxRecordsPerPartition": 8}, 6), ({"minPartitions": 1}, 2)],
)
def test_options_say_how_many_tasks_there_are(load, options, tasks):
    found = load(**options)
    assert found.rdd.getNumPartitions() == tasks
    assert {number: sorted(of) for number, of in offsets(found).items()} == ALL


@pytest.mark.parametrize("mapped", ["true", "false"])
@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_large_topics_come_whole_however_they_are_stored_and_reached(load, client, new_topic, codec, mapped):
    name = new_topic(codec=codec)
    with client.producer(name) as producer:
        producer.send_many(b"%d" % number for number in range(100_000))
    found = load(subscribe=name, columns="value,offset", mapped=mapped, minPartitions=3)
    count, low, high, wrong = found.selectExpr(
        "count(*)", "min(offset)", "max(offset)", "count_if(cast(value as string) != cast(offset as string))"
    ).collect()[0]
    assert (count, low, high, wrong) == (100_000, 0, 99_999, 0)


def test_executors_may_be_elsewhere(load, tcp_url):
    assert offsets(load(url=tcp_url, mapped="false")) == ALL


def test_the_address_may_stand_in_a_file(spark, url, flights, tmp_path):
    (tmp_path / "address").write_text(url)
    reader = spark.read.format("penstock").options(urlFile=str(tmp_path / "address"), subscribe=flights)
    assert reader.load().count() == PARTITIONS * RECORDS
    assert url not in reader.load()._jdf.queryExecution().toString()


def test_kafkas_way_to_name_a_broker_is_understood(spark, tcp_url, flights):
    servers = tcp_url.removeprefix("tcp://")
    reader = spark.read.format("penstock").option("kafka.bootstrap.servers", servers).option("subscribe", flights)
    assert reader.load().count() == PARTITIONS * RECORDS


def test_views_of_sql_keep_their_options(spark, url, flights):
    options = f"url '{url}', subscribe '{flights}', columns 'partition,offset'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW seen USING penstock OPTIONS ({options})")
    assert spark.sql("SELECT max(offset) FROM seen WHERE partition = 1").collect()[0][0] == RECORDS - 1
    spark.catalog.dropTempView("seen")


def test_a_session_may_be_told_where_the_format_is(spark, url, flights):
    other = spark.newSession()
    register(other)
    reader = other.read.format("penstock").options(url=url, subscribe=flights)
    assert reader.load().count() == PARTITIONS * RECORDS


# -- filters ---------------------------------------------------------------------------------------------------


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[None]:
    """Spark hands filters down."""
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, "true")
    yield
    spark.conf.unset(name)


EVENT = "timestamp '2020-09-13 12:26:48'"  # of the record with number 8


@pytest.mark.parametrize(
    ("condition", "read"),
    [
        ("partition = 1", {1: span(0, 20)}),
        ("partition in (0, 7) and offset >= 15", {0: span(15, 20)}),
        ("offset in (3, 5)", {0: [3, 5], 1: [3, 5]}),
        ("offset > 3 and offset < 6 and partition > 0", {1: [4, 5]}),
        ("offset = 19 or partition = 1", {0: [19], 1: span(0, 20)}),
        (f"topic = '{FLIGHTS}' and offset <= 1", {0: [0, 1], 1: [0, 1]}),
        ("topic = 'another'", {}),
        (f"timestamp = {EVENT}", {0: [8], 1: [8]}),
        (f"timestamp <= {EVENT}", {0: [0, 4, 8], 1: [0, 4, 8]}),
        (f"timestamp > {EVENT} and timestamp < timestamp '2021-01-01'", {0: [12, 16], 1: [12, 16]}),
        ("key is null and offset < 4", {0: [0, 2], 1: [0, 2]}),
        ("value = X'302D37'", {0: [7]}),
    ],
)
@pytest.mark.usefixtures("pushing")
def test_filters_that_are_handed_down_are_exact(load, condition, read):
    found = load(filterPushdown=True).where(condition)
    assert offsets(found) == read


@pytest.mark.usefixtures("pushing")
def test_tasks_that_filters_make_needless_are_not_made(load):
    assert load(filterPushdown=True).where("partition = 1").rdd.getNumPartitions() == 1
    assert load(filterPushdown=True, minPartitions=5).where("offset < 10").rdd.getNumPartitions() == 5


# -- what is refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"subscribd": "x"}, "option subscribd is unknown; did you mean subscribe?"),
        ({"startingOffsets": '{"flights": {"0": 1}'}, 'is earliest, latest or JSON like {"flights": {"0": 17'),
        ({"startingOffsets": json.dumps({FLIGHTS: {"0": 5}})}, f"startingOffsets leaves out {FLIGHTS}-1"),
        ({"endingOffsets": json.dumps({FLIGHTS: {"0": 5, "1": 21}})}, "names offset 21 of flights-to-read-1"),
        ({"startingTimestamp": 4_000_000_000_000}, f"nothing was appended to {FLIGHTS}-0 at 2096-"),
        ({"subscribe": "no-such-topic"}, "there is no topic no-such-topic: create it, or correct option subscribe"),
        ({"assign": json.dumps({FLIGHTS: [7]})}, "assign names flights-to-read-7"),
        ({"columns": "value,offsets"}, "records have no column offsets; did you mean offset?"),
        ({"url": "unix:///no/broker/here.sock", "timeout": "300ms"}, "no broker answered at unix:///no/broker"),
        ({"url": "tcp://host"}, "is not tcp://HOST:PORT"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, dict) else "",
)
def test_bad_input_is_refused_with_a_sentence(load, options, says):
    with pytest.raises(PySparkException) as refused:
        load(**options).collect()
    assert says in str(refused.value)


def test_how_long_was_waited_for_a_broker_is_said(load, tmp_path: Path):
    with pytest.raises(PySparkException, match=rf"no broker answered at unix://{tmp_path}/x.sock within 0\.25 s"):
        load(url=f"unix://{tmp_path}/x.sock", timeout="250ms").collect()


def test_a_schema_that_records_do_not_have_is_refused(spark, url, flights):
    reader = spark.read.format("penstock").options(url=url, subscribe=flights)
    with pytest.raises(PySparkException, match="column value is binary, not string"):
        reader.schema("value string").load().collect()


def test_records_that_are_gone_fail_a_batch_or_are_passed_by(load, client, new_topic):
    name = new_topic(retention_bytes="64KB", segment_bytes="64KB")
    with client.producer(name) as producer:
        while not client.topic(name).partitions[0].first:  # until retention has taken something
            producer.send_many([bytes(8192)] * 32)
    first = client.topic(name).partitions[0].first
    begin = json.dumps({name: {"0": 0}})
    with pytest.raises(PySparkException, match=r"records 0 to .* are gone: retention took them"):
        load(subscribe=name, startingOffsets=begin).collect()
    found = offsets(load(subscribe=name, startingOffsets=begin, failOnDataLoss=False, columns="partition,offset"))
    assert found[0][0] >= first
    assert found[0] == span(found[0][0], found[0][-1] + 1)
