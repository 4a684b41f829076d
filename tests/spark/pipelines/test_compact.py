"""Compaction with a real Spark: the latest of each key, whatever stopped it."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pyarrow.dataset as ds
import pytest
from penstock.errors import PipelineFailed
from penstock.spark.errors import StaleCheckpoint
from penstock.spark.pipelines import Pace, compact, compact_into
from penstock.spark.pipelines.compact import Snapshots, _append
from support.archives import forget_last_commit
from support.topics import records


def table(directory) -> dict[bytes, bytes]:
    rows = ds.dataset(directory / "current").to_table(columns=["key", "value"]).to_pylist()
    found = {row["key"]: row["value"] for row in rows}
    assert len(found) == len(rows)
    return found


def latest(count: int) -> dict[bytes, bytes]:
    return {b"key %d" % (number % 10): b"value %d" % number for number in range(count)}


def send(client, topic: str, *pairs: tuple[bytes | None, bytes]) -> None:
    """Each has an earlier time than the one before, which does not make it older."""
    with client.producer(topic) as producer:
        for number, (key, value) in enumerate(pairs):
            producer.send_nowait(value, key=key, timestamp=1_600_000_001_000_000 - number)


def test_the_latest_of_each_key_is_kept_from_run_to_run(spark, url, new, fill, tmp_path):
    topic = fill(new(), 95)
    assert compact(spark, url, topic, tmp_path / "t").records == 95
    assert table(tmp_path / "t") == latest(95)
    fill(topic, 13, start=95)
    assert compact(spark, url, topic, tmp_path / "t").records == 13
    assert table(tmp_path / "t") == latest(108)


def test_records_delete_their_keys_where_told_and_those_without_are_passed_over(spark, url, client, new, tmp_path):
    topic, empty = new(), "length(value) = 0"
    send(client, topic, (b"a", b"1"), (b"b", b"1"), (b"e", b""), (None, b"9"))
    compact(spark, url, topic, tmp_path / "t", deletes=empty)
    assert table(tmp_path / "t") == {b"a": b"1", b"b": b"1"}
    send(client, topic, (b"a", b""), (b"c", b"1"), (b"c", b""), (b"d", b""), (b"d", b"2"))
    compact(spark, url, topic, tmp_path / "t", deletes=empty)
    assert table(tmp_path / "t") == {b"b": b"1", b"d": b"2"}


def test_a_compaction_that_dies_before_and_after_its_switch_goes_on(spark, url, new, fill, tmp_path, monkeypatch):
    topic, replace, deaths = fill(new(), 100), os.replace, []

    def dying(source, target):
        if str(target).endswith("current") and len(deaths) < 2:
            deaths.append(target)
            if len(deaths) == 2:
                replace(source, target)
            raise OSError("the machine is on fire")
        replace(source, target)

    monkeypatch.setattr(os, "replace", dying)
    for _ in range(2):
        with pytest.raises(PipelineFailed, match="on fire"):
            compact(spark, url, topic, tmp_path / "t", pace=Pace(max_records=60))
    compact(spark, url, topic, tmp_path / "t", pace=Pace(max_records=60))
    assert table(tmp_path / "t") == latest(100)
    assert len(list((tmp_path / "t/snapshots").iterdir())) == 2


def test_a_topic_gets_the_latest_of_each_key_once(spark, url, client, new, fill, tmp_path):
    topic, target = fill(new(), 95), new()
    compact_into(spark, url, topic, target, checkpoint=tmp_path / "c")
    assert {record.key: record.value for record in records(client, target)} == latest(95)
    assert len(records(client, target)) == 10
    forget_last_commit(tmp_path / "c/spark")
    fill(topic, 5, start=95)
    compact_into(spark, url, topic, target, checkpoint=tmp_path / "c")
    assert sorted(record.value for record in records(client, target))[-5:] == sorted(
        b"value %d" % n for n in range(95, 100)
    )
    assert len(records(client, target)) == 15


def test_a_batch_from_before_the_last_is_refused(tmp_path):
    (tmp_path / "snapshots" / "000000000003").mkdir(parents=True)
    (tmp_path / "current").symlink_to("snapshots/000000000003")
    snapshots, nothing = Snapshots(tmp_path, None), SimpleNamespace()  # no frame is touched
    snapshots.take(nothing, 3)  # type: ignore[arg-type]
    with pytest.raises(StaleCheckpoint, match=f"batch 2 comes after batch 3 went into {tmp_path}"):
        snapshots.take(nothing, 2)  # type: ignore[arg-type]


def test_a_batch_from_before_the_last_is_not_passed_by_where_a_topic_is_the_target(url, client, new):
    topic, name = new(), "compaction-of-a-test"
    client.commit_stages(name, 4, [])
    with pytest.raises(StaleCheckpoint, match=f"batch 2 comes after batch 3 went into topic {topic}"):
        _append(SimpleNamespace(), 2, url=url, target=topic, name=name)  # type: ignore[arg-type]
