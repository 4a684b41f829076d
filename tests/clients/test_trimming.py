"""Trims through clients of every kind, and what readers and workers meet after one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from penstock.broker import ServeConfig
from penstock.broker.errors import LeaseLost
from penstock.clients import InvalidArgument, connect
from penstock.clients.descriptions import TrimmedPartition
from penstock.storage.errors import OutOfBounds
from support.processes import Serving

WAIT = 30.0


def fill(client, topic: str, count: int, partitions: int = 1) -> None:
    client.create_topic(topic, partitions=partitions)
    with client.producer(topic) as producer:
        for number in range(partitions):
            producer.send_many([b"%d" % each for each in range(count)], partition=number)


def test_a_trim_keeps_so_many_records_or_those_from_a_place_on(client, topic):
    fill(client, topic, 10, partitions=2)
    assert client.trim(topic, 0, records=8) == [TrimmedPartition(0, 0, 2, {})]
    found = client.trim(topic, records=7)
    assert [(each.partition, each.first, each.removed) for each in found] == [(0, 3, 1), (1, 3, 3)]
    assert [each.first for each in client.trim(topic, 1, before=5)] == [5]
    assert client.topic(topic).records == 7 + 5
    assert [record.value for record in client.read(topic, 1, 5)] == [b"5", b"6", b"7", b"8", b"9"]
    with pytest.raises(OutOfBounds, match="5 to 10 are valid"):
        client.read(topic, 1, 4)
    assert client.trim(topic, before=datetime.now(UTC) - timedelta(days=3650))[0].removed == 0
    assert client.trim(topic, before="earliest")[1].removed == 0
    assert sum(each.removed for each in client.trim(topic, before="latest")) == 12
    assert client.topic(topic).records == 0


def test_an_offset_behind_the_end_takes_nothing(client, topic):
    fill(client, topic, 20)
    for wrong in (21, 1700):
        with pytest.raises(OutOfBounds, match="0 to its end 20 can be"):
            client.trim(topic, before=wrong, partition=0)
    assert client.trim(topic, 0, records=1700) == [TrimmedPartition(0, 0, 0, {})]
    assert client.trim(topic, before=20, partition=0) == [TrimmedPartition(0, 0, 20, {})]


def test_workers_lose_what_was_trimmed_and_get_the_rest(client, topic):
    fill(client, topic, 6)
    with client.worker(topic, group="jobs", prefetch=0) as worker:
        tasks = worker.fetch(2, wait=WAIT)
        assert client.trim(topic, before=4)[0].lost == {"jobs": 4}
        with pytest.raises(LeaseLost):
            tasks[0].ack()
        assert [task.offset for task in worker.fetch(9, wait=WAIT)] == [4, 5]


def test_a_consumer_is_told_once_and_goes_on_at_the_first_record_that_is_left(client, topic):
    fill(client, topic, 6)
    with client.consumer(topic, group="readers") as consumer:
        assert [record.offset for record in consumer.fetch(max_records=2, wait=WAIT)] == [0, 1]
        consumer.commit()
    assert client.trim(topic, records=2)[0].lost == {"readers": 2}
    with client.consumer(topic, group="readers") as consumer:
        offsets: list[int] = []
        while len(offsets) < 2:
            try:
                offsets += [record.offset for record in consumer.fetch(wait=WAIT)]
            except OutOfBounds:
                assert not offsets, "it is told before it goes on"
        assert offsets == [4, 5]


def test_one_rule_is_needed_and_an_offset_is_of_one_partition(client, topic):
    fill(client, topic, 1, partitions=2)
    for rules in ({}, {"records": 1, "before": 1}):
        with pytest.raises(InvalidArgument, match="needs one rule"):
            client.trim(topic, **rules)
    with pytest.raises(InvalidArgument, match="give that, too"):
        client.trim(topic, before=1)


def test_a_mapped_reader_goes_on_where_the_partition_begins_now(unix, dial, topic):
    client = dial(unix)
    fill(client, topic, 1)
    with client.consumer(topic, delivery="mapped") as consumer:
        assert [record.offset for record in consumer.fetch(wait=WAIT)] == [0]
        with client.producer(topic) as producer:
            for number in range(8):
                producer.send(b"%d" % number)
        client.trim(topic, before=6)
        with pytest.raises(OutOfBounds):
            consumer.fetch(wait=WAIT)
        assert [record.offset for record in consumer.fetch(wait=WAIT)] == [6, 7, 8]


def test_trims_survive_kills_at_any_moment(tmp_path):
    """What was answered stands, nothing else is missing, and files go meanwhile."""
    config = ServeConfig(
        data=f"{tmp_path}/data", listen=(f"unix://{tmp_path}/b.sock",), restart_first_s=0.01,
        node={"housekeeping_s": 0.05},
    )  # fmt: skip
    with Serving(config) as serving, connect(serving.url, timeout=60) as client:
        client.create_topic("t", segment_bytes="64KB")
        first = 0
        for number in range(6):
            with client.producer("t") as producer:
                for each in range(8):
                    producer.send(b"%d" % (8 * number + each) + bytes(10_000))
            (trimmed,) = client.trim("t", records=5 + number)
            assert trimmed.first == max(first, 8 * number + 3 - number)
            first = trimmed.first
            serving.kill_broker()
            found = client.read("t", 0, first)
            assert [record.offset for record in found] == list(range(first, 8 * number + 8))
            assert client.topic("t").partitions[0].first == first
