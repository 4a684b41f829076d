"""Rollups with a real Spark: each window once, with what came in time."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from penstock.errors import PipelineFailed
from penstock.spark.pipelines import Pace, rollup
from penstock.spark.pipelines.rollup import as_records, counted
from support.archives import START_US, forget_last_commit
from support.archives import records as minutes
from support.topics import records

HOUR_MINUTES = 60
MINUTE_US = 60_000_000


def send(client: Any, topic: str, minutes: range, late: int = 0) -> None:
    """A record a minute for each of three keys; the third is no text."""
    with client.producer(topic) as producer:
        for minute in minutes:
            for key in (b"a", b"b", b"\xff\xfe"):
                producer.send_nowait(b"12345", key=key, timestamp=START_US + (minute - late) * MINUTE_US)


def windows(client: Any, topic: str) -> Counter:
    """Records by key and beginning of the window; each window must be there once."""
    found = Counter()
    for record in records(client, topic):
        value = json.loads(record.value)
        assert (record.key, value["from"]) not in found
        assert value["bytes"] == 5 * value["records"]
        found[record.key, value["from"]] = value["records"]
    return found


def hours(*numbers: int, count: int = HOUR_MINUTES) -> dict:
    return {(key, f"2013-01-01T{9 + n:02d}:00:00.000Z"): count for key in (b"a", b"b", b"\xff\xfe") for n in numbers}


def test_windows_are_written_once_with_what_came_in_time(spark, url, client, new, tmp_path):
    topic, target = new(), new(1)
    settings = {"checkpoint": tmp_path / "c", "window": "1 hour", "late": "5 minutes"}
    send(client, topic, range(200))
    rollup(spark, url, topic, target, **settings)
    assert windows(client, target) == hours(0, 1, 2)
    send(client, topic, range(130, 200), late=130)
    send(client, topic, range(200, 320))
    rollup(spark, url, topic, target, **settings)
    assert windows(client, target) == hours(0, 1, 2, 3, 4)


def test_the_value_says_what_was_counted(spark):
    counts = counted(spark.createDataFrame(minutes(0, 90)), window="1 hour", slide=None, late="1 minute")
    first = as_records(counts).sort("key", "timestamp").first()
    assert json.loads(first["value"]) == {
        "topic": "flights", "group": "k0", "from": "2013-01-01T09:00:00.000Z", "to": "2013-01-01T10:00:00.000Z",
        "records": 60, "bytes": 230, "per_s": pytest.approx(60 / 3600),
    }  # fmt: skip
    assert (first["key"], first["timestamp"].hour) == (b"k0", 10)


def test_any_expression_may_be_counted_by(spark):
    settings = {"window": "1 hour", "slide": "30 minutes", "late": "1 minute", "by": "length(value)"}
    counts = as_records(counted(spark.createDataFrame(minutes(0, 90)), **settings)).where("key = cast('3' as binary)")
    assert sorted(json.loads(row["value"])["records"] for row in counts.collect()) == [20, 20]


def test_a_rollup_that_is_ended_and_whose_last_end_is_forgotten_goes_on(spark, url, client, new, tmp_path):
    topic, target, told = new(), new(1), []
    settings = {"checkpoint": tmp_path / "c", "window": "1 hour", "late": "5 minutes"}
    send(client, topic, range(320))
    pace = Pace(every=0.05, max_records=300, on_progress=told.append, stopped=lambda: len(told) > 1)
    rollup(spark, url, topic, target, pace=pace, **settings)
    forget_last_commit(tmp_path / "c/spark")
    rollup(spark, url, topic, target, pace=Pace(max_records=300), **settings)
    assert windows(client, target) == hours(0, 1, 2, 3, 4)


def test_an_expression_that_is_none_is_one_sentence(spark, url, new, tmp_path):
    for number, by in enumerate(["nonsense(", "nowhere"]):
        with pytest.raises(PipelineFailed, match=r"^Spark says: \[[A-Z_.]+\] [^\n]+$"):
            rollup(spark, url, new(), new(1), checkpoint=tmp_path / str(number), by=by)
