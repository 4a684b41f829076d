"""Archives with a real Spark: every record once, whatever stopped it, and nothing of others touched."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from penstock.errors import DataLoss, InvalidArgument, MissingLibrary, PipelineFailed, TargetInUse, UnknownTopic
from penstock.spark.pipelines import Pace, Progress, archive, durable
from penstock.spark.pipelines.archive import BATCH
from support.archives import forget_last_commit
from support.topics import records


def rows(directory: Path) -> pa.Table:
    """The archive as a reader of Parquet directories finds it."""
    return ds.dataset(directory, partitioning="hive", exclude_invalid_files=False).to_table()


def numbers(table: pa.Table) -> list[int]:
    return sorted(int(value.split()[1]) for value in table["value"].to_pylist())


def test_an_archive_has_every_record_as_it_is(spark, url, client, new, fill, tmp_path):
    topic = fill(new(), 200)
    progress = archive(spark, url, [topic], tmp_path / "a")
    assert (progress.records, progress.lag) == (200, 0)
    found = {(row["partition"], row["offset"]): row for row in rows(tmp_path / "a").to_pylist()}
    for record in records(client, topic):
        row = found.pop((record.partition, record.offset))
        assert (row["key"], row["value"]) == (record.key, record.value)
        assert {each["key"]: each["value"] for each in row["headers"] or []} == record.headers
        assert row["timestamp"].timestamp() * 1_000_000 == pytest.approx(record.timestamp, abs=1)
        assert (row["topic"], str(row["date"]), row["hour"]) == (
            topic,
            f"{row['timestamp']:%Y-%m-%d}",
            row["timestamp"].hour,
        )
    assert found == {}


def test_topics_share_an_archive_and_the_broker_knows_how_far_it_is(spark, url, client, new, fill, tmp_path):
    topics = [fill(new(), 30), fill(new(), 20)]
    archive(spark, url, topics, tmp_path / "a", cursor="archive")
    assert [client.group(topic, "archive").lag for topic in topics] == [0, 0]
    fill(topics[1], 10, start=20)
    assert client.group(topics[1], "archive").lag == 10
    assert archive(spark, url, topics, tmp_path / "a", cursor="archive").records == 10
    assert [client.group(topic, "archive").lag for topic in topics] == [0, 0]
    found = rows(tmp_path / "a")
    assert [numbers(found.filter(pc.field("topic") == topic)) for topic in topics] == [list(range(30))] * 2


def test_an_archive_that_dies_in_a_batch_goes_on(spark, url, new, fill, tmp_path, monkeypatch):
    topic, seen = fill(new(), 300), []
    write = durable.write

    def dying(path: Path, value: object) -> None:
        write(path, value)
        if path.name == BATCH and getattr(value, "batch", -1) == 1 and not seen:
            seen.append(value)
            raise OSError("the machine is on fire")

    monkeypatch.setattr(durable, "write", dying)
    pace = Pace(max_records=100)
    with pytest.raises(PipelineFailed, match="on fire"):
        archive(spark, url, [topic], tmp_path / "a", pace=pace)
    archive(spark, url, [topic], tmp_path / "a", pace=pace)
    assert numbers(rows(tmp_path / "a")) == list(range(300))


def test_an_archive_goes_on_behind_records_that_are_gone_where_it_is_told_to(spark, url, client, new, fill, tmp_path):
    topic = fill(new(1), 10)
    archive(spark, url, [topic], tmp_path / "a")
    fill(topic, 20, start=10)
    client.trim(topic, before=15)
    for _ in range(2):
        with pytest.raises(DataLoss, match=r"records 10 to 14 of .* are gone"):
            archive(spark, url, [topic], tmp_path / "a")
    for count in (15, 0):
        assert archive(spark, url, [topic], tmp_path / "a", pace=Pace(skip_lost=True)).records == count
    assert numbers(rows(tmp_path / "a")) == [*range(10), *range(15, 30)]


def test_a_batch_whose_end_spark_forgot_is_not_archived_twice(spark, url, new, fill, tmp_path):
    topic = fill(new(), 100)
    archive(spark, url, [topic], tmp_path / "a")
    forget_last_commit(tmp_path / "a/_penstock/checkpoint/spark")
    fill(topic, 50, start=100)
    archive(spark, url, [topic], tmp_path / "a")
    assert numbers(rows(tmp_path / "a")) == list(range(150))


def test_it_ends_after_the_batch_in_which_it_was_told_to(spark, url, new, fill, tmp_path):
    topic, told = fill(new(), 200), []
    pace = Pace(every=0.05, max_records=50, on_progress=told.append, stopped=lambda: bool(told))
    archive(spark, url, [topic], tmp_path / "a", pace=pace)
    assert isinstance(told[0], Progress)
    archive(spark, url, [topic], tmp_path / "a")
    assert numbers(rows(tmp_path / "a")) == list(range(200))


def test_a_target_of_another_topic_is_refused(spark, url, new, fill, tmp_path):
    topic, other = fill(new(), 10), new()
    archive(spark, url, [topic], tmp_path / "a")
    with pytest.raises(TargetInUse, match=f"belongs to the parquet archive of topic {topic} into"):
        archive(spark, url, [other], tmp_path / "a")
    with pytest.raises(TargetInUse, match=f"holds the parquet archive of topic {topic}"):
        archive(spark, url, [other], tmp_path / "a", checkpoint=tmp_path / "c")
    with pytest.raises(TargetInUse, match="belongs to the parquet archive"):
        archive(spark, url, [topic], tmp_path / "a", format="delta")


def test_a_table_whose_library_is_missing_claims_nothing(spark, url, new, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "deltalake", None)
    monkeypatch.delitem(sys.modules, "penstock.spark.pipelines.delta", raising=False)
    with pytest.raises(MissingLibrary, match=r"pip install '\.\[delta\]'"):
        archive(spark, url, [new()], tmp_path / "a", format="delta")
    assert not (tmp_path / "a").exists()


def test_what_is_no_list_of_topics_and_no_format_is_refused(spark, url, new, tmp_path):
    topic = new()
    with pytest.raises(InvalidArgument, match=rf"topics is '{topic}', and has to be a list: \['{topic}'\]"):
        archive(spark, url, topic, tmp_path / "a")
    with pytest.raises(InvalidArgument, match="format is 'orc', and has to be one of parquet, delta, iceberg"):
        archive(spark, url, [topic], tmp_path / "a", format="orc")  # type: ignore[arg-type]
    assert not (tmp_path / "a").exists()


def test_a_topic_that_was_made_again_is_refused(spark, url, client, new, fill, tmp_path):
    topic = fill(new(), 10)
    archive(spark, url, [topic], tmp_path / "a")
    client.delete_topic(topic)
    client.create_topic(topic)
    with pytest.raises(TargetInUse, match="deleted and created again"):
        archive(spark, url, [topic], tmp_path / "a")


def test_a_topic_that_is_not_there_is_named_and_nothing_is_claimed(spark, url, tmp_path):
    with pytest.raises(UnknownTopic, match="nowhere"):
        archive(spark, url, ["nowhere"], tmp_path / "a")
    assert not (tmp_path / "a").exists()
