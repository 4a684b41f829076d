"""What drives Spark in the lab: every figure of a few rows, and what is said when rows are missing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import penstock
import pytest

from perf.load import spark as load
from perf.load.spark import COLUMNS, Place, Spark
from perf.systems.broker import Served, serve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 40


class Given(Spark):
    """The session of the tests, in place of one of its own."""

    def __init__(self, directory: Path, session: SparkSession) -> None:
        super().__init__(directory)
        self.__dict__["session"] = session

    def close(self) -> None:
        """It is not ours."""


@pytest.fixture
def lab_spark(spark: SparkSession, tmp_path: Path) -> Spark:
    return Given(tmp_path, spark)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Served]:
    with serve(tmp_path) as served:
        yield served


@pytest.fixture
def topic(broker: Served) -> Place:
    """Keys and values in two partitions."""
    with penstock.connect(broker.url) as client:
        client.create_topic("rows", partitions=2)
        with client.producer("rows") as producer:
            producer.send_many([b"%0100d" % n for n in range(ROWS)], keys=[b"%08d" % n for n in range(ROWS)])
    return load.ours(broker.url, "rows")


def test_a_topic_and_files_of_it_are_read_whole(lab_spark, topic, tmp_path):
    files = load.as_parquet(lab_spark, topic, tmp_path / "files")
    for place in (topic, files):
        assert load.checked(lab_spark, place, ROWS) is place
        assert load.read_rows_per_s(lab_spark, place, COLUMNS, ROWS) > 0
    with pytest.raises(RuntimeError, match="gives 40 rows, and 41 were written"):
        load.checked(lab_spark, files, ROWS + 1)


def test_a_stream_is_read_in_batches_and_told_by_them(lab_spark, topic):
    assert len(load.batches_ms(lab_spark, topic, ROWS, ROWS // 2)) == 2
    assert load.streamed_rows_per_s(lab_spark, topic, ROWS, ROWS // 2) > 0
    assert load.micro_batch_ms(lab_spark, topic, ROWS) > 0
    with pytest.raises(RuntimeError, match="gave 40 rows, and 50 were written"):
        load.batches_ms(lab_spark, topic, 50, ROWS)


def test_a_query_with_nothing_to_read_costs_what_its_server_takes_too(lab_spark, topic):
    seconds = itertools.count()  # one more each time it is looked at
    assert load.idle_share(lab_spark, topic, 0.1, lambda: float(next(seconds))) > 10


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_keys_and_values_are_written(lab_spark, topic, broker, delivery):
    with penstock.connect(broker.url) as client:
        client.create_topic("copy", partitions=2)
        target = Place("penstock", {"url": broker.url, "topic": "copy", "delivery": delivery})
        assert load.written_rows_per_s(lab_spark, topic, target, ROWS) > 0
        assert sum(client.offsets("copy", "latest").values()) == ROWS
