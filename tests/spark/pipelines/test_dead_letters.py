"""Dead letters with a real Spark: of a dead topic and as the broker lists them, by reason and hour."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime

import pytest
from penstock.errors import UnknownGroup, UnknownTopic
from penstock.spark.pipelines import by_reason, count_dead_letters, dead_letters
from support.topics import records

HOUR = datetime(2013, 1, 1, 9, tzinfo=UTC)


def bury(client, topic: str, reason: str, minute: int, offset: int = 0) -> None:
    """A copy as a broker puts it into a dead topic."""
    about = {
        "reason": reason,
        "group": "g",
        "topic": "orders",
        "partition": "1",
        "offset": str(offset),
        "attempts": "3",
    }
    died_us = int(HOUR.timestamp() * 1_000_000) + minute * 60_000_000
    headers = {f"penstock-dead-{name}": text.encode() for name, text in {**about, "time": str(died_us)}.items()}
    with client.producer(topic) as producer:
        producer.send(b"order", headers={"own": b"1", **headers}, timestamp=1_600_000_000_000_000)


def counted(frame) -> Counter:
    return Counter({(row["from"].hour, row["reason"]): row["dead_lettered"] for row in frame.collect()})


def test_a_dead_topic_is_counted_by_reason_and_hour(spark, url, client, new):
    topic = new()
    for number in range(6):
        bury(client, topic, f"no customer {number}: 404", minute=number * 20, offset=number)
    bury(client, topic, "too late", minute=30)
    with client.producer(topic) as producer:
        producer.send(b"not a copy")
    letters = dead_letters(spark, url, topic)
    assert counted(by_reason(letters)) == {(9, "no customer #: #"): 3, (10, "no customer #: #"): 3, (9, "too late"): 1}
    row = letters.where("reason = 'no customer 2: 404'").first().asDict()
    assert row.pop("died").replace(tzinfo=UTC) == HOUR.replace(minute=40)
    assert row == {
        "reason": "no customer 2: 404", "group": "g", "topic": "orders", "partition": 1, "offset": 2, "attempts": 3
    }  # fmt: skip


def test_what_the_broker_lists_is_counted_likewise(spark, url, client, new, fill):
    topic = fill(new(), 20)
    client.set_queue(topic, "work")
    with client.worker(topic, group="work") as worker:
        for _ in range(20):
            (task,) = worker.fetch(max_records=1, wait=5.0)
            task.reject("bad" if task.offset % 2 else f"lost {task.offset}")
    frame = by_reason(dead_letters(spark, url, topic, group="work"), "1 day")
    totals = Counter()
    for row in frame.collect():
        assert (row["topic"], row["group"]) == (topic, "work")
        totals[row["reason"]] += row["dead_lettered"]
    assert totals == {"bad": 10, "lost #": 10}


def test_counts_go_to_a_topic_once(spark, url, client, new, tmp_path):
    topic, target = new(), new(1)
    for minute in (0, 10, 70, 71, 140):
        bury(client, topic, f"reason {minute}", minute)
    count_dead_letters(spark, url, topic, target, checkpoint=tmp_path / "c")
    found = [(record.key, json.loads(record.value)["records"]) for record in records(client, target)]
    assert found == [(b"reason #", 2), (b"reason #", 2)]


def test_what_is_not_there_is_named(spark, url, new):
    with pytest.raises(UnknownTopic, match="nowhere"):
        dead_letters(spark, url, "nowhere")
    with pytest.raises(UnknownGroup, match="unknown"):
        dead_letters(spark, url, new(), group="unknown")
