"""DataFrames written to topics by a real Spark: columns, refusals, all or nothing, once or again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from penstock.clients import Client
from penstock.transport.partitioner import partition_of
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from support.topics import open_stages, records, texts

NewTopic = Callable[..., str]
HEADERS = "array<struct<key:string,value:binary>>"


def write(rows: DataFrame, url: str, topic: str = "", **options: object) -> None:
    """Append rows to a topic, or to those that they name."""
    writer = rows.write.format("penstock").mode("append").option("url", url).options(**options)  # pyright: ignore
    (writer.option("topic", topic) if topic else writer).save()


def numbered(spark: SparkSession, count: int, tasks: int = 2) -> DataFrame:
    """Values "0", "1", ... spread over tasks."""
    return spark.range(0, count, 1, tasks).selectExpr("cast(id as string) as value")


def test_every_column_arrives(spark: SparkSession, client: Client, url: str, new_topic: NewTopic) -> None:
    topic, at = new_topic(partitions=3), datetime(2013, 1, 1, 5, 17, tzinfo=UTC)
    rows = spark.createDataFrame(
        [
            (b"UA", b"1545", [("day", b"1"), ("late", b"")], 2, at),
            (b"AA", b"1141", None, 1, at),
            (None, b"", [], 0, at),
        ],
        f"key binary, value binary, headers {HEADERS}, partition int, timestamp timestamp",
    )
    write(rows, url, topic)
    found = {
        (r.partition, r.key, r.value, tuple((r.headers or {}).items()), r.timestamp) for r in records(client, topic)
    }
    us = int(at.timestamp()) * 1_000_000
    assert found == {
        (2, b"UA", b"1545", (("day", b"1"), ("late", b"")), us),
        (1, b"AA", b"1141", (), us),
        (0, None, b"", (), us),
    }


def test_text_is_written_as_its_utf8(spark: SparkSession, client: Client, url: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    write(spark.createDataFrame([("Zürich", "früh")], "key string, value string"), url, topic)
    assert [(r.key, r.value) for r in records(client, topic)] == [("Zürich".encode(), "früh".encode())]


def test_keys_choose_partitions_as_every_client_does(
    spark: SparkSession, client: Client, url: str, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=4)
    write(spark.range(0, 2000, 1, 2).selectExpr("cast(id % 50 as string) key", "cast(id as string) value"), url, topic)
    found = records(client, topic)
    assert Counter(r.value for r in found) == Counter(str(number).encode() for number in range(2000))
    assert all(r.key is not None and r.partition == partition_of(r.key, 4) for r in found)


def test_a_partition_column_with_nulls_leaves_these_to_their_keys(
    spark: SparkSession, client: Client, url: str, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=4)
    rows = [("k", "by key", None), ("k", "placed", (partition_of(b"k", 4) + 1) % 4)]
    write(spark.createDataFrame(rows, "key string, value string, partition int"), url, topic)
    home = partition_of(b"k", 4)
    assert {(r.partition, r.value) for r in records(client, topic)} == {(home, b"by key"), ((home + 1) % 4, b"placed")}


def test_rows_go_where_they_say(spark: SparkSession, client: Client, url: str, new_topic: NewTopic) -> None:
    even, odd = new_topic(), new_topic(partitions=2)
    rows = spark.range(0, 100, 1, 2).selectExpr(
        f"if(id % 2 = 0, '{even}', '{odd}') as topic", "cast(id as string) as value"
    )
    write(rows, url)
    assert sorted(map(int, texts(client, even))) == list(range(0, 100, 2))
    assert sorted(map(int, texts(client, odd))) == list(range(1, 100, 2))


def test_the_option_says_more_than_the_column(
    spark: SparkSession, client: Client, url: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    write(spark.createDataFrame([("elsewhere", "1")], "topic string, value string"), url, topic)
    assert texts(client, topic) == ["1"]


def test_a_task_keeps_the_order_of_its_rows(spark: SparkSession, client: Client, url: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    write(numbered(spark, 30_000, tasks=1), url, topic)
    assert texts(client, topic) == [str(number) for number in range(30_000)]


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_both_deliveries_write_everything_once_when_nothing_fails(
    spark: SparkSession, client: Client, url: str, new_topic: NewTopic, delivery: str
) -> None:
    topic, before = new_topic(partitions=2), open_stages(client)
    write(numbered(spark, 5000), url, topic, delivery=delivery, codec="zstd")
    assert sorted(map(int, texts(client, topic))) == list(range(5000))
    assert open_stages(client) == before


def test_no_rows_are_no_records(spark: SparkSession, client: Client, url: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    write(spark.createDataFrame([], "value string"), url, topic)
    assert records(client, topic) == []


# -- refusals -------------------------------------------------------------------------------------------


def refusal(spark: SparkSession, rows: DataFrame, mode: str = "append", **options: str) -> str:
    """What a write that cannot be says. No task of it has started."""
    context = spark.sparkContext
    context.setJobGroup("refused", "a write that cannot be")
    try:
        with pytest.raises(Exception, match=r"(?s).") as refused:
            rows.write.format("penstock").mode(mode).options(**options).save()
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    assert list(context.statusTracker().getJobIdsForGroup("refused")) == []
    return str(refused.value)


def test_what_cannot_be_is_refused_before_a_task_starts(spark: SparkSession, url: str, new_topic: NewTopic) -> None:
    topic, rows = new_topic(), numbered(spark, 10)
    assert "'value' is int and must be string or binary: cast it" in refusal(
        spark, rows.selectExpr("cast(value as int) as value"), url=url, topic=topic
    )
    assert "'carrier' is not part of a record" in refusal(
        spark, rows.selectExpr("value", "'UA' as carrier"), url=url, topic=topic
    )
    assert 'give the option "topic"' in refusal(spark, rows, url=url)
    assert 'mode("overwrite") is not possible' in refusal(spark, rows, "overwrite", url=url, topic=topic)
    assert "did you mean delivery?" in refusal(spark, rows, url=url, topic=topic, delivry="exactly-once")
    assert "txnId and txnVersion go together" in refusal(spark, rows, url=url, topic=topic, txnId="nightly")
    assert "transaction" in refusal(spark, rows, url=url, topic=topic, txnId="two words", txnVersion="1")


def test_a_topic_that_is_not_there_is_named(spark: SparkSession, url: str) -> None:
    assert "no-such-topic" in refusal(spark, numbered(spark, 1), url=url, topic="no-such-topic")


def test_a_broker_that_does_not_answer_is_named_with_how_long_was_waited(spark: SparkSession, tmp_path: Any) -> None:
    said = refusal(spark, numbered(spark, 1), url=f"unix://{tmp_path}/absent.sock", topic="flights", timeout="500ms")
    assert f"no broker answered at unix://{tmp_path}/absent.sock within 0.5 s" in said


def test_a_row_that_cannot_be_a_record_fails_the_write_and_leaves_nothing(
    spark: SparkSession, client: Client, url: str, new_topic: NewTopic
) -> None:
    topic, before = new_topic(), open_stages(client)
    with pytest.raises(Exception, match="has no partition 7: it has 1"):
        write(spark.sql("select '1' as value, 7 as partition"), url, topic)
    assert records(client, topic) == []
    assert open_stages(client) == before


def test_nulls_in_place_of_values_come_back_as_nulls(
    spark: SparkSession, client: Client, url: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    write(spark.sql("select * from values (null, 'a'), ('', 'b'), ('c', null) as t(value, key)"), url, topic)
    found = {(record.key, record.value) for record in records(client, topic)}
    assert found == {(b"a", None), (b"b", b""), (None, b"c")}
    read = spark.read.format("penstock").options(url=url, subscribe=topic).load()
    assert {(row.key and bytes(row.key), row.value and bytes(row.value)) for row in read.collect()} == found
    assert [bytes(row.key) for row in read.where("value is null").collect()] == [b"a"]
    assert read.where("value is not null").count() == 2


# -- failures -------------------------------------------------------------------------------------------


def failing(attempts: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Hands rows on; so many attempts of the first task then fail. Made here, so that it travels by value."""

    def hand_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        task = TaskContext.get()
        assert task is not None
        if task.partitionId() == 0 and task.attemptNumber() < attempts:
            raise RuntimeError("this attempt fails")

    return hand_on


def test_a_task_that_is_tried_again_writes_its_rows_once(
    spark: SparkSession, client: Client, url: str, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=2)
    write(numbered(spark, 40_000).mapInArrow(failing(1), "value string"), url, topic)
    assert sorted(map(int, texts(client, topic))) == list(range(40_000))


def test_at_least_once_such_a_task_loses_no_row_and_may_write_some_twice(
    spark: SparkSession, client: Client, url: str, new_topic: NewTopic
) -> None:
    """Whether an attempt that fails has sent its rows by then is a race between the worker that sends and its end."""
    topic = new_topic()
    rows = numbered(spark, 40_000).mapInArrow(failing(1), "value string")
    write(rows, url, topic, delivery="at-least-once")
    found = Counter(map(int, texts(client, topic)))
    assert sorted(found) == list(range(40_000))
    assert max(found.values()) <= 2


def test_a_write_that_fails_publishes_nothing(
    spark: SparkSession, client: Client, url: str, new_topic: NewTopic
) -> None:
    """Spark tells a task nothing when its input fails, so what it staged is left to the broker to collect."""
    topic = new_topic(partitions=2)
    with pytest.raises(Exception, match="this attempt fails"):
        write(numbered(spark, 40_000).mapInArrow(failing(99), "value string"), url, topic)
    assert records(client, topic) == []


# -- once, however often it is run ----------------------------------------------------------------------


def test_a_write_without_a_name_is_done_each_time(
    spark: SparkSession, client: Client, url: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    for _ in range(2):
        write(numbered(spark, 3), url, topic)
    assert sorted(texts(client, topic)) == ["0", "0", "1", "1", "2", "2"]


def test_a_version_is_written_once(spark: SparkSession, client: Client, url: str, new_topic: NewTopic) -> None:
    topic, before = new_topic(), open_stages(client)
    for version in (7, 7, 6, 8):
        write(numbered(spark, 3), url, topic, txnId=f"{topic}-nightly", txnVersion=version)
    assert sorted(texts(client, topic)) == ["0", "0", "1", "1", "2", "2"]
    assert client.transaction_epoch(f"{topic}-nightly") == 8
    assert open_stages(client) == before


def test_an_address_from_a_file_is_used(
    spark: SparkSession, client: Client, url: str, new_topic: NewTopic, tmp_path: Any
) -> None:
    topic = new_topic()
    (tmp_path / "address").write_text(url + "\n")
    rows = numbered(spark, 3)
    rows.write.format("penstock").mode("append").options(urlFile=f"{tmp_path}/address", topic=topic).save()
    assert sorted(texts(client, topic)) == ["0", "1", "2"]
