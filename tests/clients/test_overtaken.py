"""Retention that is faster than a consumer: it is told of the gap once, and goes on, connected or not."""

from __future__ import annotations

import glob

import pytest
from penstock.broker import ServeConfig
from penstock.clients import connect
from penstock.errors import OutOfBounds
from support.processes import Serving

VALUES = [b"%04d" % number + bytes(5000) for number in range(400)]


def send(client, topic, values):
    with client.producer(topic) as producer:
        for value in values:
            producer.send_nowait(value)


def overtake(client, topic) -> int:
    """Have all but the newest segments removed; returns the first offset that is left."""
    send(client, topic, VALUES)
    client.alter_topic(topic, retention_bytes="64KB")
    send(client, topic, VALUES[:1])
    while (part := client.topic(topic).partitions[0]).first < 200 or len(glob.glob(f"{part.directory}/*.segment")) > 2:
        client.ends([topic], known=client.ends([topic]), wait=0.05)
    client.alter_topic(topic, retention_bytes=None)
    return part.first


@pytest.fixture(params=["mapped", "push", "control"])
def delivery(request):
    return request.param


def check(client, consumer, topic, first, last):
    """It reads up to record `last`, and is told once which ones it cannot."""
    following, gaps = 1, []
    while following <= last:
        try:
            for record in consumer.fetch(1, wait=60):
                assert record.offset == following, f"missed, and told of {gaps}"
                following += 1
        except OutOfBounds as error:
            gaps.append((f"records {following} to {error.offset - 1} of partition 0 of topic {topic} ", error.message))
            following = error.offset
    ((gap, told),) = gaps
    assert gap in told
    assert following > first


@pytest.mark.parametrize("group", [None, "g"])
def test_a_connected_consumer_is_told(tidied, topic, delivery, group):
    tidied.create_topic(topic, segment_bytes="64KB", commit="written")
    send(tidied, topic, VALUES[:1])
    # It asks for so little that all else is still at the broker.
    with tidied.consumer(topic, group=group, delivery=delivery, window_bytes=1, session_timeout=60) as consumer:
        assert [record.offset for record in consumer.fetch(1, wait=60)] == [0]
        first = overtake(tidied, topic)
        check(tidied, consumer, topic, first, first + 3)


@pytest.mark.parametrize("group", [None, "g"])
def test_a_consumer_that_comes_back_is_told(tidied, topic, delivery, group):
    tidied.create_topic(topic, segment_bytes="64KB", commit="written")
    send(tidied, topic, VALUES[:1])
    if group:
        with tidied.consumer(topic, group=group, delivery=delivery) as consumer:
            consumer.fetch(1, wait=60)
            consumer.commit()
    first = overtake(tidied, topic)
    positions = None if group else {0: 1}
    with tidied.consumer(topic, group=group, positions=positions, delivery=delivery) as consumer:
        check(tidied, consumer, topic, first, first + 3)
        if group:
            consumer.commit()
    if group:
        with tidied.consumer(topic, group=group, delivery=delivery) as consumer:
            assert [record.offset for record in consumer.fetch(1, wait=60)] == [first + 4]


def test_a_directory_without_a_broker_tells_as_well(tmp_path):
    data = f"{tmp_path}/data"
    listen = f"unix://{tmp_path}/b.sock"
    config = ServeConfig(data=data, listen=(listen,), node={"housekeeping_s": 0.05})
    with Serving(config), connect(listen, timeout=60) as client:
        client.create_topic("t", segment_bytes="64KB", commit="written")
        first = overtake(client, "t")
    with connect(f"file://{data}") as client, client.consumer("t", positions={0: 1}) as consumer:
        check(client, consumer, "t", first, first + 3)
