"""The sink that writes exactly once, task by task and step by step, without Spark around it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from penstock.broker.errors import StageLost
from penstock.clients import Client
from penstock.clients.memory_broker import MemoryBroker
from penstock.spark import connection
from penstock.spark.errors import StaleCheckpoint
from penstock.spark.sink.columns import Layout
from penstock.spark.sink.epochs import BATCH_ID, QUERY_ID
from penstock.spark.sink.messages import Written
from penstock.spark.sink.options import SinkOptions
from penstock.spark.sink.staged import StagedStreamWriter, StagedWriter
from penstock.spark.sink.writers import stream_writer
from penstock.storage.errors import RecordTooLarge
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructField, StructType
from support.topics import open_stages, records, texts

LAYOUT = Layout(("value",), (0,), "flights")
SPREAD = Layout(("value",), (0,), "", 1)


@pytest.fixture
def broker() -> Iterator[MemoryBroker]:
    """In memory, with a clock that the test moves."""
    with MemoryBroker() as serving:
        yield serving
        connection.close_all()


@pytest.fixture
def client(broker: MemoryBroker) -> Iterator[Client]:
    with broker.connect() as connected:
        connected.create_topic("flights", partitions=2)
        yield connected


@pytest.fixture
def options(broker: MemoryBroker, client: Client) -> SinkOptions:
    return SinkOptions(url=broker.url, topic="flights")


def rows(*values: str | None) -> Iterator[pa.RecordBatch]:
    """What Spark gives a task, a batch for each row."""
    return iter([pa.record_batch([pa.array([value], pa.string())], ["value"]) for value in values])


def placed(*found: tuple[str, str]) -> Iterator[pa.RecordBatch]:
    """Rows of value and topic."""
    values, topics = zip(*found, strict=True)
    return iter([pa.record_batch([pa.array(values), pa.array(topics)], ["value", "topic"])])


class Task:
    """Runs a stream writer as a task of a micro-batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, batch: int, *values: str) -> Written:
        context = TaskContext._getOrCreate()
        context._localProperties = {QUERY_ID: "5a3b", BATCH_ID: str(batch)}
        try:
            return StagedStreamWriter(self._options, LAYOUT).write(rows(*values))
        finally:
            TaskContext._setTaskContext(None)


@pytest.fixture
def task(options: SinkOptions) -> Task:
    return Task(options)


# -- batch writes ---------------------------------------------------------------------------------------


def test_rows_are_read_when_the_write_is_committed_and_not_before(options: SinkOptions, client: Client) -> None:
    writer = StagedWriter(options, LAYOUT)
    messages = [writer.write(rows("1", "2")), writer.write(rows("3")), writer.write(rows())]
    assert texts(client, "flights") == []
    writer.commit(messages)
    assert sorted(texts(client, "flights")) == ["1", "2", "3"]
    assert [message.rows for message in messages] == [2, 1, 0]
    assert open_stages(client) == 0


def test_an_attempt_that_spark_does_not_name_is_not_part_of_the_write(options: SinkOptions, client: Client) -> None:
    writer = StagedWriter(options, LAYOUT)
    writer.write(rows("1", "2"))  # failed afterwards
    writer.commit([writer.write(rows("1", "2", "3"))])
    assert sorted(texts(client, "flights")) == ["1", "2", "3"]


def test_a_write_that_is_aborted_leaves_nothing(options: SinkOptions, client: Client) -> None:
    writer = StagedWriter(options, LAYOUT)
    writer.abort([writer.write(rows("1")), None, writer.write(rows("2"))])
    assert open_stages(client) == 0
    assert records(client, "flights") == []


def test_a_task_whose_rows_cannot_be_records_leaves_nothing(options: SinkOptions, client: Client) -> None:
    with pytest.raises(RecordTooLarge):
        StagedWriter(options, LAYOUT).write(rows("1", "x" * (17 << 20)))
    assert open_stages(client) == 0


def test_what_an_attempt_staged_that_died_is_collected_in_time(
    options: SinkOptions, client: Client, broker: MemoryBroker
) -> None:
    StagedWriter(options, LAYOUT).write(rows("1", "2", "3"))
    assert open_stages(client)
    broker.advance(2 * 3600)
    assert open_stages(client) == 0


def test_a_commit_that_comes_again_changes_nothing(options: SinkOptions, client: Client) -> None:
    writer = StagedWriter(options, LAYOUT)
    messages = [writer.write(rows("1"))]
    for _ in range(2):
        writer.commit(messages)
    assert texts(client, "flights") == ["1"]


def test_an_abort_behind_a_commit_takes_nothing_back(options: SinkOptions, client: Client) -> None:
    writer = StagedWriter(options, LAYOUT)
    messages = [writer.write(rows("1"))]
    writer.commit(messages)
    writer.abort(messages)
    assert texts(client, "flights") == ["1"]


def test_several_topics_are_committed_together(options: SinkOptions, client: Client) -> None:
    client.create_topic("delays")
    writer = StagedWriter(options, SPREAD)
    message = writer.write(placed(("1", "flights"), ("2", "delays"), ("3", "flights")))
    assert texts(client, "flights") == texts(client, "delays") == []
    writer.commit([message])
    assert sorted(texts(client, "flights")) == ["1", "3"]
    assert texts(client, "delays") == ["2"]


def test_rows_that_were_dropped_meanwhile_fail_the_commit(options: SinkOptions, client: Client) -> None:
    writer = StagedWriter(options, LAYOUT)
    messages = [writer.write(rows("1")), writer.write(rows("2"))]
    client.drop_stages(messages[0].stages)
    with pytest.raises(StageLost):
        writer.commit(messages)
    assert records(client, "flights") == []


def test_a_version_is_written_once_and_none_below_it(options: SinkOptions, client: Client) -> None:
    for version in (3, 3, 2, 4):
        writer = StagedWriter(SinkOptions(url=options.url, topic="flights", transaction="job", version=version), LAYOUT)
        message = writer.write(rows(f"version {version}"))
        assert message.repeated == (version < 4 and bool(texts(client, "flights")))
        writer.commit([message])
    assert sorted(texts(client, "flights")) == ["version 3", "version 4"]
    assert open_stages(client) == 0


def test_of_two_runs_of_a_version_at_once_one_is_written(options: SinkOptions, client: Client) -> None:
    named = SinkOptions(url=options.url, topic="flights", transaction="job", version=1)
    writers = [StagedWriter(named, LAYOUT) for _ in range(2)]
    messages = [writer.write(rows(f"run {number}")) for number, writer in enumerate(writers)]
    for writer, message in zip(reversed(writers), reversed(messages), strict=True):
        writer.commit([message])
    assert texts(client, "flights") == ["run 1"]
    assert open_stages(client) == 0


# -- streams --------------------------------------------------------------------------------------------


def committed(options: SinkOptions, batch: int, *messages: Written) -> None:
    """As the driver does, in a process that has never seen the writers of the tasks."""
    StagedStreamWriter(options, LAYOUT).commit(list(messages), batch)


def test_micro_batches_are_epochs_of_their_query(options: SinkOptions, client: Client, task: Task) -> None:
    for batch in range(3):
        committed(options, batch, task.write(batch, f"{batch}"))
    assert sorted(texts(client, "flights")) == ["0", "1", "2"]
    assert client.transaction_epoch("5a3b.flights") == 2


def test_a_micro_batch_that_comes_again_is_passed_by(options: SinkOptions, client: Client, task: Task) -> None:
    committed(options, 0, task.write(0, "1"))
    again = task.write(0, "1", "2")
    assert again == Written(0, "5a3b.flights", repeated=True)
    committed(options, 0, again)
    assert texts(client, "flights") == ["1"]


def test_a_driver_that_died_before_the_commit_is_followed_by_one_that_stages_anew(
    options: SinkOptions, client: Client, task: Task
) -> None:
    task.write(0, "1")
    committed(options, 0, task.write(0, "1"))
    assert texts(client, "flights") == ["1"]


def test_stages_of_tasks_that_ran_while_the_epoch_was_committed_are_dropped(
    options: SinkOptions, client: Client, task: Task
) -> None:
    """An old driver's commit comes through between two tasks of the new one."""
    old, early = task.write(0, "1"), task.write(0, "1")
    committed(options, 0, old)
    late = task.write(0, "2")
    assert late.repeated
    committed(options, 0, early, late)
    assert texts(client, "flights") == ["1"]
    assert open_stages(client) == 0


def test_a_micro_batch_from_before_the_last_is_refused(options: SinkOptions, task: Task) -> None:
    for batch in (3, 4):
        committed(options, batch, task.write(batch, "1"))
    with pytest.raises(StaleCheckpoint, match=r"micro-batch 2 .* 4 was committed as 5a3b\.flights"):
        task.write(2, "1")


def test_an_aborted_micro_batch_leaves_nothing(options: SinkOptions, client: Client, task: Task) -> None:
    StagedStreamWriter(options, LAYOUT).abort([task.write(0, "1"), None], 0)
    assert open_stages(client) == 0
    committed(options, 0, task.write(0, "1"))
    assert texts(client, "flights") == ["1"]


def test_a_micro_batch_without_tasks_commits_nothing(options: SinkOptions, client: Client) -> None:
    committed(options, 0)
    assert client.transaction_epoch("5a3b.flights") is None


def test_what_a_micro_batch_holds_is_durable_before_it_is_committed(
    options: SinkOptions, client: Client, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut Spark would give its number to other rows, and they would count as written."""
    (tmp_path / "offsets").mkdir()
    for name in ("metadata", "offsets/0"):
        (tmp_path / name).touch()
    seen: dict[str, int | None] = {}

    def noted(descriptor: int) -> None:
        seen[os.readlink(f"/proc/self/fd/{descriptor}")] = client.transaction_epoch("5a3b.flights")

    monkeypatch.setattr(os, "fsync", noted)
    given = {"url": options.url, "topic": "flights", "checkpointlocation": str(tmp_path)}
    monkeypatch.setattr("penstock.spark.sink.writers.address", lambda endpoint: endpoint.url)  # refuses memory
    writer = stream_writer(given, StructType([StructField("value", StringType())]))
    writer.commit([task.write(0, "1")], 0)
    assert client.transaction_epoch("5a3b.flights") == 0
    assert seen.keys() >= {str(tmp_path / name) for name in ("offsets/0", "offsets", "metadata")}
    assert set(seen.values()) == {None}


def test_a_checkpoint_that_cannot_be_synced_commits_nothing(
    options: SinkOptions, client: Client, task: Task, tmp_path: Path
) -> None:
    (tmp_path / "offsets").mkdir()
    writer = StagedStreamWriter(options, LAYOUT, str(tmp_path))
    with pytest.raises(FileNotFoundError):
        writer.commit([task.write(0, "1")], 0)
    assert client.transaction_epoch("5a3b.flights") is None
