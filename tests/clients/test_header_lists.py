"""Headers as a list, with names that repeat and null values, through every way in and out."""

from __future__ import annotations

import copy

import pyarrow as pa
import pytest
from penstock import Spool
from penstock.clients import InvalidArgument, connect
from penstock.clients.spooling.forwarding import Forwarder
from penstock.storage.errors import InvalidBatch, RecordTooLarge

WAIT = 30.0
LISTS = [
    [("a", b"1"), ("b", b""), ("a", b"2")],
    [("a", None)],
    [("a", b"1"), ("a", None), ("ä", b"\xff")],
    [("z", b"1"), ("a", b"2")],
    [],
    None,
]
MAPS = [{"a": b"2", "b": b""}, {}, {"ä": b"\xff"}, {"z": b"1", "a": b"2"}, {}, {}]
WANTED = [each or [] for each in LISTS]


def fill(client, topic, **how):
    client.create_topic(topic)
    with client.producer(topic, **how) as producer:
        for each in LISTS:
            producer.send_nowait(b"v", headers=each)


def taken(records):
    return [record.header_list for record in records]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_lists_come_back_as_lists_and_are_maps_as_well(client, topic, codec):
    fill(client, topic, codec=codec)
    found = client.read(topic, 0, 0)
    assert taken(found) == WANTED
    assert [dict(record.headers) for record in found] == MAPS
    with client.consumer(topic, group="g", start="earliest") as consumer:
        read = []
        while len(read) < len(LISTS):
            read += consumer.fetch(wait=WAIT)
    assert taken(read) == WANTED
    found = client.range(topic, 0, 0, len(LISTS), columns=["headers"])
    assert [one["headers"] for batch in found for one in batch.arrow(["headers"]).to_pylist()] == [
        [{"key": name, "value": value} for name, value in each] or None for each in WANTED
    ]


def test_what_was_read_is_sent_on_as_it_is(client, topic):
    fill(client, topic)
    client.create_topic(f"{topic}-copy")
    records = client.read(topic, 0, 0)
    tables = [batch.arrow() for batch in client.range(topic, 0, 0, len(LISTS))]
    with client.producer(f"{topic}-copy") as producer:
        for record in records:
            producer.send_nowait(record.value, headers=record.headers)
        for record in records:
            producer.send_nowait(record.value, headers=record.header_list)
        producer.flush()
        producer.send_many(tables)
    assert taken(client.read(f"{topic}-copy", 0, 0)) == 3 * WANTED


def test_arrow_with_repeated_names_is_a_list(client, topic):
    client.create_topic(topic)
    entry = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = [[{"key": name, "value": value} for name, value in each] for each in WANTED]
    with client.producer(topic) as producer:
        producer.send_many(pa.table({"value": [b"v"] * len(rows), "headers": pa.array(rows, entry)}))
    assert taken(client.read(topic, 0, 0)) == WANTED


def test_a_transaction_publishes_lists(client, topic):
    client.create_topic(topic)
    with client.transaction() as transaction:
        producer = transaction.producer(topic)
        for each in LISTS:
            producer.send_nowait(b"v", headers=each)
    assert taken(client.read(topic, 0, 0)) == WANTED


def test_workers_get_lists_and_dead_tasks_keep_theirs(client, topic):
    fill(client, topic)
    client.create_topic(f"{topic}-dead")
    client.set_queue(topic, "jobs", dead_topic=f"{topic}-dead")
    with client.worker(topic, group="jobs", prefetch=0) as worker:
        tasks = []
        while len(tasks) < len(LISTS):
            tasks += worker.fetch(2, wait=WAIT)
        assert taken(tasks) == WANTED
        worker.reject(tasks, "broken")
    assert taken([dead.record for dead in client.dead_letters(topic, "jobs")]) == WANTED
    with client.consumer(f"{topic}-dead", group="g", start="earliest") as consumer:
        copies = []
        while len(copies) < len(LISTS):
            copies += consumer.fetch(wait=WAIT)
    copies.sort(key=lambda record: int(record.headers["penstock-dead-offset"]))
    plain = [[pair for pair in each if not pair[0].startswith("penstock-")] for each in taken(copies)]
    assert plain == WANTED
    assert copies[0].headers["penstock-dead-reason"] == b"broken"


def test_a_spool_keeps_lists(url, topic, tmp_path):
    with Spool(tmp_path / "s") as spool, connect(url) as client:
        client.create_topic(topic)
        for each in LISTS:
            spool.send(topic, b"v", headers=each)
        with Forwarder(str(tmp_path / "s")) as forwarder:
            while forwarder.forward(client):
                pass
        assert taken(client.read(topic, 0, 0)) == WANTED


def test_what_is_no_list_of_headers_is_refused(client, topic):
    client.create_topic(topic, max_record_bytes=1000)
    with client.producer(topic) as producer:
        for wrong in (b"ab", "ab", 7, [1], [("a",)], [("a", b"1", b"2")], [(b"a", b"1")], [("a", "1")], {"a": None}):
            with pytest.raises(InvalidBatch, match="header"):
                producer.send(b"v", headers=wrong)
        with pytest.raises(InvalidArgument):
            producer.send(b"v", headers=[("\ud800", None), ("a", b"1"), ("a", b"1")])
        with pytest.raises(RecordTooLarge):
            producer.send(b"v", headers=[("a", bytes(600)), ("a", bytes(600))])
        producer.send(b"v", headers=LISTS[0])
    (record,) = client.read(topic, 0, 0)
    with pytest.raises(InvalidBatch, match="do not fit a map"):
        client.schedule(topic, "s", "every 30s", b"v", headers=record.headers)


def test_lists_stay_as_they_are_and_can_be_copied(client, topic):
    fill(client, topic)
    found = client.read(topic, 0, 0)[2]
    for change in (
        lambda headers: headers.update(a=b"x"), lambda headers: headers.pop("ä"), lambda headers: headers.clear(),
        lambda headers: headers.__setitem__("a", b"x"), lambda headers: headers.__delitem__("ä"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match="cannot be changed"):
            change(found.headers)
    for again in (copy.copy(found), copy.deepcopy(found)):
        assert (again, again.header_list) == (found, found.header_list)
    assert found.headers != client.read(topic, 0, 0)[1].headers
    assert found.headers == {"ä": b"\xff"}
    assert client.read(topic, 0, 0)[1].headers
