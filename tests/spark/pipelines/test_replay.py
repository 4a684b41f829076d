"""Replays with a real Spark: what was recorded once more, once, as it was."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from penstock.errors import InvalidArgument, NoArchive, TargetInUse, UnknownPartition, UnknownTopic
from penstock.spark.pipelines import archive, replay
from penstock.storage.record import Record
from support.topics import records

BEGIN = datetime(2013, 1, 1, 9, tzinfo=UTC)


def known(record: Record) -> tuple:
    """What a replay keeps of a record."""
    return record.key, record.value, record.headers, record.timestamp


@pytest.fixture(params=["parquet", "delta", "iceberg"])
def form(request) -> str:
    return request.param


def test_an_archive_is_replayed_as_it_was(spark, url, client, new, fill, tmp_path, form):
    topic, again = fill(new(), 300), new()
    archive(spark, url, [topic], tmp_path / "a", format=form)
    progress = replay(spark, url, again, checkpoint=tmp_path / "c", archive=tmp_path / "a", portion_records=110)
    assert (progress.records, progress.lag) == (300, 0)
    assert [known(record) for record in records(client, again)] == [known(record) for record in records(client, topic)]


def test_a_range_of_a_topic_is_replayed_as_it_was(spark, url, client, new, fill, tmp_path):
    topic, again = fill(new(), 300), new()
    replay(spark, url, again, checkpoint=tmp_path / "c", topic=topic)
    assert [known(record) for record in records(client, again)] == [known(record) for record in records(client, topic)]


def test_a_replay_that_was_ended_goes_on_where_it_was(spark, url, client, new, fill, tmp_path):
    topic, again, told = fill(new(), 300), new(), []
    first = replay(
        spark, url, again, checkpoint=tmp_path / "c", topic=topic, portion_records=100,
        on_progress=told.append, stopped=lambda: len(told) == 2,
    )  # fmt: skip
    assert (first.batches, first.lag) == (2, 100)
    assert len(records(client, again)) == 200
    fill(topic, 50, start=300)  # after the replay began, and no part of it
    second = replay(spark, url, again, checkpoint=tmp_path / "c", topic=topic, portion_records=7)
    assert (second.records, second.lag) == (100, 0)
    assert sorted(record.value for record in records(client, again)) == sorted(b"value %d" % n for n in range(300))
    assert replay(spark, url, again, checkpoint=tmp_path / "c", topic=topic).records == 0


def test_only_what_has_a_time_in_the_range_comes_from_an_archive(spark, url, client, new, fill, tmp_path):
    topic, again = fill(new(), 300), new()
    archive(spark, url, [topic], tmp_path / "a")
    start, end = BEGIN + timedelta(minutes=100), BEGIN + timedelta(minutes=200)
    replay(spark, url, again, checkpoint=tmp_path / "c", archive=tmp_path / "a", start=start, end=end)
    expected = sorted(b"value %d" % number for number in range(100, 200) if number % 3)
    assert sorted(record.value for record in records(client, again)) == expected


def test_partitions_are_those_of_the_keys_or_those_they_were(spark, url, client, new, fill, tmp_path):
    topic = fill(new(3), 100)
    one, kept = new(1), new(5)
    replay(spark, url, one, checkpoint=tmp_path / "c1", topic=topic)
    assert len(records(client, one)) == 100
    replay(spark, url, kept, checkpoint=tmp_path / "c2", topic=topic, keep_partitions=True)
    where = [(record.partition, known(record)) for record in records(client, topic)]
    assert [(record.partition, known(record)) for record in records(client, kept)] == where
    with pytest.raises(UnknownPartition, match="has 1 partitions, and there are records of partition 2: grow it to 3"):
        replay(spark, url, one, checkpoint=tmp_path / "c3", topic=topic, keep_partitions=True)


def test_nothing_is_replayed_as_nothing(spark, url, client, new, tmp_path):
    topic, again = new(), new()
    assert replay(spark, url, again, checkpoint=tmp_path / "c", topic=topic).records == 0
    archive(spark, url, [topic], tmp_path / "a")
    assert replay(spark, url, again, checkpoint=tmp_path / "c2", archive=tmp_path / "a").records == 0
    assert records(client, again) == []


def test_what_cannot_be_is_said(spark, url, client, new, fill, tmp_path):
    topic, other, again = fill(new(), 10), fill(new(), 10), new()
    with pytest.raises(InvalidArgument, match="nothing to replay: name an archive or a topic"):
        replay(spark, url, again, checkpoint=tmp_path / "c")
    with pytest.raises(UnknownTopic):
        replay(spark, url, again, checkpoint=tmp_path / "c", topic="nowhere")
    with pytest.raises(UnknownTopic):
        replay(spark, url, "nowhere", checkpoint=tmp_path / "c", topic=topic)
    with pytest.raises(NoArchive, match="holds no archive"):
        replay(spark, url, again, checkpoint=tmp_path / "c", archive=tmp_path)
    archive(spark, url, [topic, other], tmp_path / "a")
    with pytest.raises(InvalidArgument, match=f"archive of topics {topic}, {other}: name one of them"):
        replay(spark, url, again, checkpoint=tmp_path / "c", archive=tmp_path / "a")
    with pytest.raises(InvalidArgument, match=f"archive of topics {topic}, {other}, and not of nowhere: name one"):
        replay(spark, url, again, checkpoint=tmp_path / "c", archive=tmp_path / "a", topic="nowhere")
    replay(spark, url, again, checkpoint=tmp_path / "c", archive=tmp_path / "a", topic=topic)
    assert len(records(client, again)) == 10
    with pytest.raises(TargetInUse, match=f"belongs to the replay of topic {topic} into topic {again}"):
        replay(spark, url, again, checkpoint=tmp_path / "c", topic=other)
