"""Streams with a real Spark: limits, restarts, repeated micro-batches, and what changes under a running query."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra penstock[spark]")

import pyarrow as pa
from penstock.broker import ServeConfig
from penstock.clients import Client, connect
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from support.processes import Serving
from support.spark_streams import PATIENCE_S, Held, Stream, finish, places

NOW = {"processingTime": "0 seconds"}


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    return new_topic(partitions=2)


@pytest.fixture
def stream(spark: SparkSession, url: str, topic: str, tmp_path: Path) -> Stream:
    """From the topic's first record on, unless told otherwise."""
    options = {"url": url, "subscribe": topic, "startingOffsets": "earliest"}
    return Stream(spark, tmp_path / "checkpoint", **options)


def fill(client: Client, topic: str, partition: int, count: int) -> None:
    with client.producer(topic) as producer:
        for number in range(count):
            producer.send(b"%d" % number, partition=partition)


def rows(held: list[Held]) -> list[str]:
    return [row for one in held for row in one.rows]


# -- how far it goes -------------------------------------------------------------------------------------------


def test_limits_hold_for_a_query_that_reads_what_is_there(stream, client, topic):
    fill(client, topic, 0, 6)
    fill(client, topic, 1, 3)
    held = stream.run(maxOffsetsPerTrigger=3)
    assert held == [
        Held(0, [*places(0, 0, 2), *places(1, 0, 1)]),
        Held(1, [*places(0, 2, 4), *places(1, 1, 2)]),
        Held(2, [*places(0, 4, 6), *places(1, 2, 3)]),
    ]


def test_a_restarted_query_goes_on_where_it_ended(stream, client, topic):
    fill(client, topic, 0, 3)
    assert rows(stream.run()) == places(0, 0, 3)
    assert stream.run() == []
    fill(client, topic, 0, 2)
    fill(client, topic, 1, 2)
    assert stream.run() == [Held(1, [*places(0, 3, 5), *places(1, 0, 2)])]


def test_progress_tells_how_far_query_and_topics_are(stream, client, topic):
    fill(client, topic, 0, 4)
    query = stream.start({"availableNow": True}, maxOffsetsPerTrigger=3)
    finish(query)
    first = query.recentProgress[0]
    assert first.numInputRows == 3
    assert '"0": [3, ' in first.sources[0].endOffset
    assert '"0": [4, ' in first.sources[0].latestOffset


def test_every_option_of_streams_may_be_given(stream, client, topic):
    fill(client, topic, 1, 4)
    held = stream.run(
        maxBytesPerTrigger="1MB", minOffsetsPerTrigger=2, maxTriggerDelay="1s", maxOffsetsPerTrigger=100,
        minPartitions=3, maxRecordsPerPartition=2, columns="offset,partition", failOnDataLoss=False, mapped="false",
    )  # fmt: skip
    assert rows(held) == places(1, 0, 4)


# -- what is repeated ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"cursor": "followed"}], ids=["by itself", "with a cursor"])
def test_the_first_micro_batch_of_a_query_that_begins_at_the_end_is_repeated(stream, client, topic, options):
    """Its beginning was decided once; what came since is read, and by the next one."""
    options = {"startingOffsets": "latest", **options}
    fill(client, topic, 0, 3)
    assert stream.run(**options) == [Held(0, [])]
    stream.forget_commit(0)
    fill(client, topic, 0, 2)
    assert stream.run(**options) == [Held(0, []), Held(1, places(0, 3, 5))]


def test_a_micro_batch_that_was_not_noted_as_done_is_repeated_as_it_was(stream, client, topic):
    fill(client, topic, 0, 5)
    first = stream.run(maxOffsetsPerTrigger=2)
    assert [one.batch for one in first] == [0, 1, 2]
    stream.forget_commit(2)
    fill(client, topic, 0, 3)
    fill(client, topic, 1, 1)
    second = stream.run()
    assert second == [first[2], Held(3, [*places(0, 5, 8), *places(1, 0, 1)])]


def test_tasks_that_fail_are_tried_again_and_read_the_same(stream, client, topic):
    fill(client, topic, 0, 3)
    fill(client, topic, 1, 2)

    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = TaskContext.get()
        assert task is not None
        for batch in batches:
            yield batch
            if task.attemptNumber() == 0:
                raise RuntimeError("the first attempt fails behind its first rows")

    read = stream.read
    stream.read = lambda **options: read(**options).mapInArrow(fail_once, read(**options).schema)
    assert rows(stream.run()) == [*places(0, 0, 3), *places(1, 0, 2)]


# -- cursors ---------------------------------------------------------------------------------------------------


def test_a_cursor_shows_how_far_the_query_is(stream, client, topic):
    fill(client, topic, 0, 5)
    stream.run(cursor="followed", maxOffsetsPerTrigger=2)
    assert client.group(topic, "followed").lag == 0
    fill(client, topic, 1, 2)
    assert client.group(topic, "followed").lag == 2
    assert rows(stream.run(cursor="followed")) == places(1, 0, 2)
    assert client.group(topic, "followed").lag == 0


def test_a_new_query_begins_where_the_cursor_stands(spark, url, stream, client, topic, tmp_path):
    fill(client, topic, 0, 5)
    stream.run(cursor="followed")
    fill(client, topic, 0, 2)
    other = Stream(spark, tmp_path / "other", url=url, subscribe=topic, cursor="followed", startingOffsets="earliest")
    assert rows(other.run()) == places(0, 5, 7)


# -- what changes ----------------------------------------------------------------------------------------------


def test_a_partition_that_is_added_is_read_from_its_first_record(stream, client, topic):
    fill(client, topic, 0, 2)
    stream.run()
    client.alter_topic(topic, partitions=3)
    fill(client, topic, 2, 2)
    assert stream.run() == [Held(1, places(2, 0, 2))]


def test_topics_that_match_are_read_when_they_come(spark, url, client, topic, tmp_path):
    stream = Stream(spark, tmp_path / "checkpoint", url=url, subscribePattern=f"{topic}(-more)?")
    assert stream.run() == [Held(0, [])]
    client.create_topic(f"{topic}-more")
    fill(client, f"{topic}-more", 0, 2)
    assert rows(stream.run()) == places(0, 0, 2)


def test_a_topic_that_was_made_again_ends_the_query_or_is_read_from_its_first_record(stream, client, topic):
    fill(client, topic, 0, 3)
    stream.run()
    client.delete_topic(topic)
    client.create_topic(topic)
    fill(client, topic, 0, 2)
    with pytest.raises(StreamingQueryException, match=f"topic {topic} was deleted and created again"):
        stream.run()
    assert rows(stream.run(failOnDataLoss=False)) == places(0, 0, 2)


def test_records_that_retention_took_end_the_query_or_are_passed_by(spark, url, client, new_topic, tmp_path):
    name = new_topic(retention_bytes="64KB", segment_bytes="64KB")
    stream = Stream(spark, tmp_path / "checkpoint", url=url, subscribe=name, startingOffsets="earliest")
    stream.run()
    with client.producer(name) as producer:
        while not client.topic(name).partitions[0].first:  # until retention has taken something
            producer.send_many([bytes(8192)] * 32)
    with pytest.raises(StreamingQueryException, match=r"records 0 to .* are gone: retention took them"):
        stream.run()
    (held,) = stream.run(failOnDataLoss=False)
    offsets = sorted(int(row.partition(":")[2]) for row in held.rows)
    assert offsets[0] > 0
    assert offsets == list(range(offsets[0], client.topic(name).partitions[0].end))


def test_a_broker_that_is_killed_in_the_middle_costs_no_row(spark, tmp_path):
    """It is restarted by its supervisor; query and tasks wait for it."""
    url = f"unix://{tmp_path}/broker.sock"
    config = ServeConfig(data=str(tmp_path / "data"), listen=(url,))
    with Serving(config) as serving, connect(url, timeout=PATIENCE_S) as client:
        client.create_topic("t", partitions=2)
        stream = Stream(spark, tmp_path / "checkpoint", url=url, subscribe="t", startingOffsets="earliest")
        query = stream.start(NOW, timeout=f"{PATIENCE_S}s")
        try:
            fill(client, "t", 0, 50)
            stream.wait_for(50)
            before = serving.ready
            os.kill(serving.pid("broker"), signal.SIGKILL)
            fill(client, "t", 1, 30)
            assert serving.wait_ready(other_than=before)
            fill(client, "t", 0, 20)
            stream.wait_for(100)
        finally:
            query.stop()
    assert sorted(rows(stream.held)) == sorted([*places(0, 0, 70), *places(1, 0, 30)])
