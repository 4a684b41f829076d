"""A node in this process: an exception that comes out of it ends that node and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from penstock.clients import Client, connect
from support.interrupts import InterruptAt, interrupts

PATIENCE_S = 60.0
STRIDE = 11  # of the moments one is tried in so many
INSIDE = ("broker", "storage", "clients/embedded")


@pytest.fixture(params=["mem", "file"])
def client(request, tmp_path: Path) -> Iterator[Client]:
    with connect("mem://" if request.param == "mem" else f"file://{tmp_path}", timeout=PATIENCE_S) as client:
        client.create_topic("t", partitions=1)
        yield client


def test_an_interrupted_send_loses_nothing_and_later_ones_go_on(client) -> None:
    producer = client.producer("t")
    acknowledged: dict[int, bytes] = {}
    for interrupt in interrupts(INSIDE, stride=STRIDE, above=10 * STRIDE):
        value = b"%d" % interrupt.nth
        with interrupt:
            acknowledged[producer.send(value)] = value
        value = b"after %d" % interrupt.nth
        acknowledged[producer.send(value)] = value
    found = {record.offset: record.value for record in client.read("t", 0, 0, max_records=100_000)}
    assert {offset: found[offset] for offset in acknowledged} == acknowledged
    assert len(set(found.values())) == len(found)


def test_an_interrupted_fetch_costs_no_record(client) -> None:
    producer, consumer = client.producer("t"), client.consumer("t", group="g", start="earliest")
    fetched: list[int] = []
    sent = 0
    for interrupt in interrupts(INSIDE, stride=STRIDE, above=STRIDE):
        with interrupt:
            fetched.extend(record.offset for record in consumer.fetch(wait=0.0))
        sent = producer.send(b"x")
    while not fetched or fetched[-1] < sent:
        fetched.extend(record.offset for record in consumer.fetch(wait=PATIENCE_S))
    consumer.commit()
    assert sent > 3


def test_other_clients_go_on_over_a_node_that_one_interrupted(tmp_path) -> None:
    url = f"file://{tmp_path}"
    with connect(url, timeout=PATIENCE_S) as one, connect(url, timeout=PATIENCE_S) as other:
        one.create_topic("t", partitions=1)
        consumer, producer = other.consumer("t", group="g", start="earliest"), one.producer("t")
        producer.send(b"before")
        assert [record.value for record in consumer.fetch(wait=PATIENCE_S)] == [b"before"]
        with pytest.raises(KeyboardInterrupt), InterruptAt(10, inside=("broker/engine",)):
            producer.send(b"interrupted")
        producer.send(b"after")
        found: list[bytes] = []
        while b"after" not in found:
            found += [record.value for record in consumer.fetch(wait=PATIENCE_S)]
        assert found == [b"interrupted", b"after"]
    with connect(url) as again:
        assert [record.value for record in again.read("t", 0, 0)] == [b"before", b"interrupted", b"after"]


def test_a_broken_node_is_let_go_of_by_closing(tmp_path) -> None:
    url = f"file://{tmp_path}"
    client = connect(url)
    client.create_topic("t", partitions=1)
    assert client.producer("t").send(b"before") == 0
    with pytest.raises(KeyboardInterrupt), InterruptAt(10, inside=("broker/engine",)):
        client.create_topic("u")
    client.close()
    with connect(url) as again:
        assert again.producer("t").send(b"after") == 1
