"""Nulls in place of values, through every way in and out: None is not b""."""

from __future__ import annotations

import pyarrow as pa
import pytest
from penstock import Spool
from penstock.clients import InvalidArgument, connect
from penstock.clients.spooling.forwarding import Forwarder
from penstock.storage.errors import InvalidBatch

WAIT = 30.0
FEW = [None, b"", b"x"]
MANY = [None if number % 7 == 0 else b"%d" % number for number in range(1000)]


def values(client, topic, partition=0):
    return [record.value for record in client.read(topic, partition, 0, max_records=100_000)]


@pytest.mark.parametrize(
    ("sent", "codec"), [(FEW, "lz4"), (MANY, "zstd"), ([None] * 100, "none")], ids=["few", "many", "only"]
)
def test_nulls_come_back_as_nulls(client, topic, sent, codec):
    client.create_topic(topic)
    with client.producer(topic, codec=codec) as producer:
        assert producer.send_many(sent) == len(sent)
        assert producer.send_many(sent, keys=[b"k"] * len(sent)) == len(sent)
        assert producer.send_many(pa.table({"value": pa.array(sent, pa.binary())})) == len(sent)
        futures = [producer.send_nowait(value) for value in sent]
        assert futures[-1].result() == 4 * len(sent) - 1
    assert values(client, topic) == 4 * sent
    with client.consumer(topic, group="g", start="earliest") as consumer:
        found = []
        while len(found) < 4 * len(sent):
            found += [record.value for record in consumer.fetch(max_records=10_000, wait=WAIT)]
        assert found == 4 * sent
    found = [batch for part in client.range(topic, 0, 0, 4 * len(sent)) for batch in part.arrow()["value"].to_pylist()]
    assert found == 4 * sent
    found = client.range(topic, 0, 0, 4 * len(sent), columns=["value"])
    assert [value for part in found for value in part.values()] == 4 * sent


def test_a_null_has_a_key_and_headers_and_a_time(client, topic):
    client.create_topic(topic)
    with client.producer(topic) as producer:
        assert producer.send(None, key=b"k", headers={"h": b"v"}, timestamp=1_700_000_000_000_000) == 0
        assert producer.send(None) == 1
    first, second = client.read(topic, 0, 0)
    assert (first.value, first.key, first.headers, first.timestamp) == (None, b"k", {"h": b"v"}, 1_700_000_000_000_000)
    assert (second.value, second.key) == (None, None)


def test_what_arrow_gives_out_goes_in_as_it_is(client, topic):
    client.create_topic(topic)
    client.create_topic(f"{topic}-copy")
    with client.producer(topic) as producer:
        producer.send_many(FEW, keys=[b"a", None, b""])
    tables = [batch.arrow() for batch in client.range(topic, 0, 0, 3)]
    with client.producer(f"{topic}-copy") as producer:
        producer.send_many(tables)
    found = client.read(f"{topic}-copy", 0, 0)
    assert [(record.value, record.key) for record in found] == list(zip(FEW, [b"a", None, b""], strict=True))


def test_a_transaction_publishes_nulls(client, topic):
    client.create_topic(topic)
    with client.transaction() as transaction:
        transaction.producer(topic).send_many(MANY)
    assert values(client, topic) == MANY


def test_workers_get_nulls_and_dead_ones_keep_them(client, topic):
    client.create_topic(topic)
    client.create_topic(f"{topic}-dead")
    with client.producer(topic) as producer:
        producer.send_many(FEW * 40, keys=[b"k", None, b""] * 40)
    client.set_queue(topic, "jobs", dead_topic=f"{topic}-dead")
    with client.worker(topic, group="jobs", prefetch=0) as worker:
        tasks = []
        while len(tasks) < 120:
            tasks += worker.fetch(120, wait=WAIT)
        assert [task.value for task in tasks] == FEW * 40
        worker.reject(tasks, "broken")
    assert [dead.record.value for dead in client.dead_letters(topic, "jobs", max_records=200)] == FEW * 40
    with client.consumer(f"{topic}-dead", group="g", start="earliest") as consumer:
        copies = []
        while len(copies) < 120:
            copies += consumer.fetch(max_records=200, wait=WAIT)
    assert sorted(repr(record.value) for record in copies) == sorted(repr(value) for value in FEW * 40)


def test_some_of_a_batch_are_leased_with_their_nulls(client, topic):
    client.create_topic(topic)
    with client.producer(topic) as producer:
        producer.send_many(FEW * 40, priority=1)
    found = []
    with client.worker(topic, group="jobs", prefetch=0) as worker:
        while len(found) < 120:
            tasks = worker.fetch(7, wait=WAIT)
            found += [task.value for task in tasks]
            worker.ack(tasks)
    assert found == FEW * 40


def test_a_spool_keeps_nulls(url, topic, tmp_path):
    with Spool(tmp_path / "s") as spool, connect(url) as client:
        client.create_topic(topic)
        spool.send(topic, None, key=b"k")
        spool.send_many(topic, FEW)
        with Forwarder(str(tmp_path / "s")) as forwarder:
            while forwarder.forward(client):
                pass
        assert values(client, topic) == [None, *FEW]


def test_a_schedule_and_a_value_of_another_kind_are_refused(client, topic):
    client.create_topic(topic)
    with pytest.raises(InvalidArgument):
        client.schedule(topic, "daily", "0 6 * * *", None)
    with client.producer(topic) as producer:
        for wrong in ("text", 7, [None]):
            with pytest.raises(InvalidBatch):
                producer.send(wrong)
            with pytest.raises(InvalidBatch):
                producer.send_many([None, wrong])
        assert producer.send(None) == 0
