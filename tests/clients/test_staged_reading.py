"""Clients of every kind read a topic with staged records: they get its records, and nothing else reaches them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import pytest
from penstock.clients import Client, connect
from penstock.clients.connection.question import Question
from penstock.clients.embedded.peek import Peek
from penstock.storage import Files
from penstock.storage.embedded import Log
from penstock.transport.messages import Produce, Produced
from support.staging import staged

PATIENCE_S = 60.0
SIZES = (10, 30_000, 10, 200_000, 10, 10, 5000)


class StageQuestion(Question):
    """A Produce with a staged batch."""

    def __init__(self, client: Client, topic: str, payload: bytes) -> None:
        id_ = bytes.fromhex(client.topic(topic).id)
        super().__init__(client._connection, lambda request: Produce(request, id_, 0), payload=payload)


class Stager:
    """Stages into one topic."""

    def __init__(self, client: Client, topic: str) -> None:
        self._client = client
        self._topic = topic
        self._next = 0

    def stage(self, value: bytes) -> None:
        question = StageQuestion(self._client, self._topic, staged([value], first=self._next))
        self._next += 1
        connection, driver = self._client._connection, self._client._driver
        driver.run(connection.wait_for(question, Produced, deadline=connection.deadline(), what="staging"))


@contextmanager
def connected(url: str, **how: Any):
    with connect(url, timeout=PATIENCE_S, **how) as client:
        yield client


def filled(client: Client, topic: str) -> list[bytes]:
    """A topic of records with staged batches of all sizes before, between and behind them."""
    client.create_topic(topic, segment_bytes="1MB")
    stager, values = Stager(client, topic), list[bytes]()
    with client.producer(topic) as producer:
        for number, size in enumerate(SIZES * 2):
            for _ in range(number % 4):
                stager.stage(b"hidden" + b"." * size)
            values.append(b"record %d" % number + b"." * (size % 7000))
            producer.send(values[-1])
        stager.stage(b"hidden last")
    return values


def consumed(client: Client, topic: str, form: str, **how: Any) -> list[bytes]:
    with client.consumer(topic, **how) as consumer:
        found = list(consumer.batches(form, wait=0))
    if form == "arrow":
        return [value for batch in found for value in batch.column("value").to_pylist()]
    return [record.value for batch in found for record in batch]


@pytest.mark.parametrize("form", ["records", "arrow"])
@pytest.mark.parametrize("group", [None, "g"])
def test_a_consumer_gets_the_records(url: str, topic: str, form: str, group: str | None):
    with connected(url) as client:
        values = filled(client, topic)
        assert consumed(client, topic, form, group=group) == values
        assert client.offsets(topic, "latest") == {0: len(values)}
        for offset in (0, 3, len(values) - 1):
            found = client.read(topic, 0, offset, max_records=3)
            assert [record.value for record in found] == values[offset : offset + 3][: len(found)]


@pytest.mark.parametrize("delivery", ["mapped", "push", "control"])
def test_a_consumer_gets_the_records_however_they_are_delivered(unix: str, topic: str, delivery: Any):
    with connected(unix, delivery=delivery) as client:
        values = filled(client, topic)
        with client.consumer(topic) as consumer:
            assert consumer.delivery == ("control" if delivery == "push" else delivery)
        assert consumed(client, topic, "records") == values


@pytest.mark.parametrize("delivery", ["mapped", "control"])
def test_who_waits_at_the_end_is_given_the_next_record_and_not_what_is_staged(unix: str, topic: str, delivery: Any):
    with connected(unix, delivery=delivery) as client:
        client.create_topic(topic)
        stager = Stager(client, topic)
        with client.consumer(topic) as consumer, client.producer(topic) as producer:
            assert consumer.fetch(wait=0) == []
            for number in range(10):
                for size in SIZES[: number % 4]:
                    stager.stage(b"hidden" + b"." * size)
                assert consumer.fetch(wait=0) == []
                producer.send(b"%d" % number)
                assert [record.value for record in consumer.fetch(wait=PATIENCE_S)] == [b"%d" % number]


def test_a_directory_is_read_past_what_is_staged_without_a_broker(tmp_path, topic: str):
    url = f"file://{tmp_path}/data"
    with connected(url) as client:
        values = filled(client, topic)
    with connected(url) as client:
        assert consumed(client, topic, "records") == values
        (partition,) = client.topic(topic).partitions
    reader = Peek(f"{tmp_path}/data", Files()).reader(partition.directory)
    cursor = reader.cursor(0)
    while (chunk := cursor.next()) is not None:
        assert b"hidden" not in bytes(chunk.buffer)
    with Log(partition.directory, read_only=True) as log:
        assert list(log.values()) == values
