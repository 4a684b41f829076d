"""Streaming queries that write to topics: every row once, also when a micro-batch comes again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from penstock.clients import Client
from pyspark.sql import DataFrame, SparkSession
from support.lines import Lines, Query, finish, forget_commit
from support.topics import open_stages, texts

NewTopic = Callable[..., str]


def test_each_micro_batch_is_an_epoch_of_the_query(query: Query, lines: Lines, client: Client, topic: str) -> None:
    before = open_stages(client)
    for count in (100, 1, 30):
        lines.add(count)
    done = query.run()
    assert sorted(texts(client, topic)) == sorted(lines.all)
    assert client.transaction_epoch(f"{done.id}.{topic}") == 2
    assert open_stages(client) == before


def test_a_query_goes_on_where_it_was(query: Query, lines: Lines, client: Client, topic: str) -> None:
    for _ in range(2):
        lines.add(50)
        query.run()
    assert sorted(texts(client, topic)) == sorted(lines.all)


def test_a_micro_batch_that_was_committed_is_not_written_again(
    query: Query, lines: Lines, client: Client, topic: str
) -> None:
    before = open_stages(client)
    lines.add(50)
    query.run()
    lines.add(50)
    query.run()
    query.forget_commit(1)
    lines.add(50)
    query.run()
    assert sorted(texts(client, topic)) == sorted(lines.all)
    assert open_stages(client) == before


def test_at_least_once_it_is_written_again(query: Query, lines: Lines, client: Client, topic: str) -> None:
    lines.add(50)
    query.run(delivery="at-least-once")
    query.forget_commit(0)
    query.run(delivery="at-least-once")
    assert Counter(texts(client, topic)) == Counter(2 * lines.all)


def test_a_checkpoint_from_before_is_refused(
    query: Query, lines: Lines, client: Client, topic: str, tmp_path: Path
) -> None:
    for _ in range(2):
        lines.add(10)
    query.run(txnId=f"{topic}-lines")
    with pytest.raises(Exception, match="micro-batch 0 comes after micro-batch 1 was committed"):
        query.run(txnId=f"{topic}-lines", checkpointLocation=str(tmp_path / "another"))
    assert sorted(texts(client, topic)) == sorted(lines.all)


def test_complete_mode_writes_the_whole_result_each_time(
    spark: SparkSession, lines: Lines, url: str, client: Client, topic: str, tmp_path: Path
) -> None:
    counts = (
        spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(lines.folder))
        .groupBy().count().selectExpr("'lines' as key", "cast(count as string) as value")
    )  # fmt: skip
    lines.add(3)
    lines.add(4)
    writer = counts.writeStream.format("penstock").outputMode("complete")
    options = {"url": url, "topic": topic, "checkpointLocation": str(tmp_path / "counting")}
    finish(writer.options(**options).trigger(availableNow=True).start())
    assert texts(client, topic) == ["3", "7"]


def test_what_cannot_be_written_ends_the_query_before_a_task_starts(
    spark: SparkSession, lines: Lines, url: str, topic: str, tmp_path: Path
) -> None:
    lines.add(1)
    rows = spark.readStream.format("text").load(str(lines.folder)).selectExpr("length(value) as value")
    options = {"url": url, "topic": topic, "checkpointLocation": str(tmp_path / "refused")}
    with pytest.raises(Exception, match="'value' is int and must be string or binary: cast it"):
        finish(rows.writeStream.format("penstock").options(**options).trigger(availableNow=True).start())


def test_foreach_batch_is_done_once_under_a_version(
    spark: SparkSession, lines: Lines, url: str, client: Client, new_topic: NewTopic, tmp_path: Path
) -> None:
    short, long, job = new_topic(), new_topic(), f"job-{tmp_path.name}"

    def spread(rows: DataFrame, batch: int) -> None:
        for topic, which in ((short, "length(value) <= 6"), (long, "length(value) > 6")):
            writer = rows.where(which).write.format("penstock").mode("append").options(url=url, topic=topic)
            writer.options(txnId=f"{job}-{topic}", txnVersion=batch).save()

    def run() -> None:
        reader = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(lines.folder))
        writer = reader.writeStream.foreachBatch(spread).option("checkpointLocation", str(tmp_path / "checkpoint"))
        finish(writer.trigger(availableNow=True).start())

    lines.add(20)
    lines.add(20)
    run()
    forget_commit(tmp_path / "checkpoint", 1)
    run()
    assert sorted(texts(client, short)) == sorted(line for line in lines.all if len(line) <= 6)
    assert sorted(texts(client, long)) == sorted(line for line in lines.all if len(line) > 6)
