"""Producing through clients of every kind: what is acknowledged is there, once, in order."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from penstock.broker.errors import Fenced, UnknownPartition, UnsupportedVersion
from penstock.clients import InvalidArgument
from penstock.storage.errors import Closed, InvalidBatch, RecordTooLarge
from penstock.transport.partitioner import PARTITIONERS, partition_of
from support.kafka_keys import MURMUR2, kafka_partition_of

MANY = [b"%06d" % number for number in range(20_000)]


def values(client, topic, partition=0):
    return [record.value for record in client.read(topic, partition, 0, max_records=100_000)]


def test_a_record_comes_back_with_everything_it_was_given(client, topic):
    client.create_topic(topic, partitions=2)
    with client.producer(topic) as producer:
        offset = producer.send(b"v", key=b"k", headers={"h": b"x"}, timestamp=1_600_000_000_000_000)
        plain = producer.send(b"plain", partition=1 - partition_of(b"k", 2))
    (record,) = client.read(topic, partition_of(b"k", 2), offset)
    assert (record.value, record.key, record.headers) == (b"v", b"k", {"h": b"x"})
    assert (record.timestamp, record.offset, record.topic) == (1_600_000_000_000_000, 0, topic)
    (other,) = client.read(topic, 1 - partition_of(b"k", 2), plain)
    assert (other.value, other.key, other.headers) == (b"plain", None, {})


def test_offsets_count_from_zero(client, topic):
    client.create_topic(topic)
    with client.producer(topic) as producer:
        assert [producer.send(b"x") for _ in range(5)] == [0, 1, 2, 3, 4]


def test_futures_know_their_offsets(client, topic):
    client.create_topic(topic)
    with client.producer(topic) as producer:
        futures = [producer.send_nowait(value) for value in MANY[:3000]]
        assert [future.result() for future in futures] == list(range(3000))
        assert all(future.done() for future in futures)
    assert values(client, topic) == MANY[:3000]


def test_records_gathered_with_and_without_columns_keep_theirs(client, topic):
    client.create_topic(topic)
    with client.producer(topic) as producer:
        producer.send_nowait(b"first")
        producer.send_nowait(b"1")
        producer.send_nowait(b"2", key=b"k")
        producer.send_nowait(b"3", headers={"a": b"b"})
        producer.send_nowait(b"4", timestamp=datetime(1969, 7, 20, tzinfo=UTC))
    records = client.read(topic, 0, 1)
    assert [(r.value, r.key, dict(r.headers)) for r in records] == [
        (b"1", None, {}), (b"2", b"k", {}), (b"3", None, {"a": b"b"}), (b"4", None, {}),
    ]  # fmt: skip
    assert records[3].time == datetime(1969, 7, 20, tzinfo=UTC)
    assert records[1].timestamp > records[3].timestamp


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_many_records_arrive_in_order_with_their_keys(client, topic, partitioner):
    client.create_topic(topic, partitions=4, partitioner=partitioner)
    keys = [b"key-%d" % (number % 37) for number in range(len(MANY))]
    with client.producer(topic) as producer:
        assert producer.send_many(MANY, keys=keys) == len(MANY)
    read = [record for partition in range(4) for record in client.read(topic, partition, 0, max_records=100_000)]
    assert sorted(record.value for record in read) == MANY
    assert all(record.partition == PARTITIONERS[partitioner].of(record.key, 4) for record in read)
    with client.producer(topic) as producer:
        alone = {key: producer.send(b"alone", key=key) for key in set(keys)}
    for key, offset in alone.items():
        (record,) = client.read(topic, PARTITIONERS[partitioner].of(key, 4), offset, max_records=1)
        assert (record.key, record.value) == (key, b"alone")
    for partition in range(4):
        of_it = [record.value for record in read if record.partition == partition]
        assert of_it == sorted(of_it)


def test_generators_and_mixed_keys_are_sent(client, topic):
    client.create_topic(topic, partitions=3)
    keys = [b"k" if number % 2 else None for number in range(1000)]
    with client.producer(topic) as producer:
        assert producer.send_many((value for value in MANY[:1000]), keys=iter(keys)) == 1000
    read = [record for partition in range(3) for record in client.read(topic, partition, 0, max_records=5000)]
    assert sorted((record.value, record.key) for record in read if record.key) == [
        (value, b"k") for value, key in zip(MANY, keys, strict=False) if key
    ]
    assert len(read) == 1000


@pytest.mark.parametrize("shape", ["array", "chunked", "table", "batch", "text"])
def test_arrow_data_is_sent_without_objects(client, topic, shape):
    client.create_topic(topic, partitions=2)
    column = pa.array(MANY, pa.binary())
    keys = pa.array([None if number % 5 == 0 else b"%d" % (number % 7) for number in range(len(MANY))], pa.binary())
    given = {
        "array": column,
        "chunked": pa.chunked_array([column.slice(0, 500), column.slice(500)]),
        "table": pa.table({"value": column, "key": keys}),
        "batch": pa.record_batch({"value": column, "key": keys}),
        "text": pa.array([value.decode() for value in MANY]),
    }[shape]
    with client.producer(topic) as producer:
        assert producer.send_many(given) == len(MANY)
    read = [record for partition in range(2) for record in client.read(topic, partition, 0, max_records=100_000)]
    assert sorted(record.value for record in read) == MANY
    if shape in ("table", "batch"):
        assert {record.value: record.key for record in read} == dict(zip(MANY, keys.to_pylist(), strict=True))


def test_more_than_a_window_goes_through(client, topic):
    client.create_topic(topic)
    with client.producer(topic, window_bytes="64KB") as producer:
        for number in range(400):
            producer.send_nowait(b"%04d" % number + bytes(2000))
    assert [value[:4] for value in values(client, topic)] == [b"%04d" % number for number in range(400)]


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_topics_say_how_producers_compress(client, topic, codec):
    client.create_topic(topic, codec=codec)
    with client.producer(topic) as producer:
        producer.send_many([bytes(1000)] * 1000)
    assert values(client, topic) == [bytes(1000)] * 1000
    assert client.topic(topic).partitions[0].end == 1000


def test_a_record_over_the_limit_is_refused_and_harms_nothing(client, topic):
    client.create_topic(topic, max_record_bytes=1000)
    with client.producer(topic) as producer:
        producer.send(b"before")
        with pytest.raises(RecordTooLarge, match="max_record_bytes=1000"):
            producer.send(bytes(1001))
        with pytest.raises(RecordTooLarge):
            producer.send_many([b"small", bytes(1001)])
        producer.send(b"after")
    assert values(client, topic)[-1] == b"after"


def test_what_is_not_a_record_is_refused_at_the_call(client, topic):
    client.create_topic(topic)
    with client.producer(topic) as producer:
        with pytest.raises(InvalidBatch, match="encode"):
            producer.send("text")
        with pytest.raises(UnknownPartition, match="partition 3"):
            producer.send(b"x", partition=3)
        with pytest.raises(InvalidArgument, match="is one record: send_many takes many"):
            producer.send_many(b"one")
        with pytest.raises(InvalidArgument, match="more keys than records"):
            producer.send_many([b"a"], keys=[b"1", b"2"])
        with pytest.raises(InvalidArgument, match="have no key"):
            producer.send_many([b"a", b"b"], keys=[b"1"])
        with pytest.raises(InvalidArgument, match='column "value"'):
            producer.send_many(pa.table({"other": pa.array([b"x"])}))
        with pytest.raises(InvalidBatch, match="must be a str"):
            producer.send(b"x", headers={"h": "text"})
        with pytest.raises(InvalidBatch, match=r"keys must be bytes|a key must be bytes|encode"):
            producer.send_many([b"x"], keys=["text"])
        assert producer.send(bytearray(b"fine")) == 1
    assert values(client, topic) == [b"a", b"fine"]  # the surplus of keys is found behind the records


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"key": "text"}, "a key must be bytes, not str; text needs .encode()"),
        ({"key": b"k", "headers": [1]}, "header 1 must be a pair of a name and a value"),
        ({"headers": {1: b"x"}}, "header 1 must be a str with a bytes value"),
        ({"timestamp": "now"}, "timestamp='now' is no time"),
        ({"timestamp": 1 << 63}, "counts no microseconds"),
    ],
)
def test_what_cannot_go_with_a_record_spoils_none_that_are_gathered_with_it(client, topic, extra, says):
    client.create_topic(topic)
    with client.producer(topic) as producer:
        futures = [producer.send_nowait(b"%d" % number) for number in range(3)]
        with pytest.raises((InvalidArgument, InvalidBatch)) as caught:
            producer.send_nowait(b"bad", **extra)
        assert says in caught.value.message
        futures.append(producer.send_nowait(b"3", key=b"k"))
        producer.flush()
        assert [future.result() for future in futures] == [0, 1, 2, 3]
    assert values(client, topic) == [b"0", b"1", b"2", b"3"]


def test_an_error_that_no_future_was_asked_about_comes_out_of_flush(client, topic):
    client.create_topic(topic)
    producer = client.producer(topic)
    producer.send(b"x")
    client.delete_topic(topic)
    producer.send_nowait(b"lost")
    with pytest.raises(Exception, match="unknown"):
        producer.flush()
    producer.close()


def test_a_named_producer_goes_on_where_it_was_and_fences_the_one_before(client, topic):
    client.create_topic(topic)
    first = client.producer(topic, name="loader")
    first.send(b"a")
    first.send(b"b")
    second = client.producer(topic, name="loader")
    assert second.next_sequence() == 2
    assert second.send(b"c") == 2
    with pytest.raises(Fenced, match="loader"):
        first.send(b"late")
    assert second.send(b"d") == 3
    assert values(client, topic) == [b"a", b"b", b"c", b"d"]
    second.close()


def test_a_closed_producer_has_flushed_and_says_that_it_is_closed(client, topic):
    client.create_topic(topic)
    with client.producer(topic) as producer:
        for value in MANY[:100]:
            producer.send_nowait(value)
    assert values(client, topic) == MANY[:100]
    producer.close()
    with pytest.raises(Closed):
        producer.send(b"x")
    with pytest.raises(Closed):
        producer.send_nowait(b"x")
    with pytest.raises(Closed):
        producer.flush()


def test_a_client_that_does_not_know_how_keys_choose_partitions_sends_none(client, topic, monkeypatch):
    client.create_topic(topic, partitions=2, partitioner="murmur2")
    monkeypatch.delitem(PARTITIONERS, "murmur2")
    with pytest.raises(UnsupportedVersion, match="by 'murmur2', which this client does not know: upgrade it"):
        client.producer(topic)


def test_keys_go_where_the_clients_of_kafka_send_them(client, topic):
    client.create_topic(topic, partitions=16, partitioner="murmur2")
    with client.producer(topic) as producer:
        for key in MURMUR2:
            producer.send(b"alone", key=key)
        producer.send_many([b"many"] * len(MURMUR2), keys=list(MURMUR2))
    found = [(record.key, partition) for partition in range(16) for record in client.read(topic, partition, 0)]
    assert sorted(found) == sorted([(key, kafka_partition_of(key, 16)) for key in MURMUR2] * 2)


@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_an_empty_key_is_a_key_and_goes_where_its_hash_says(client, topic, partitioner):
    client.create_topic(topic, partitions=16, partitioner=partitioner)
    expected = PARTITIONERS[partitioner].of(b"", 16)
    with client.producer(topic) as producer:
        for number in range(3):
            producer.send(b"%d" % number, key=b"")
            producer.send(b"%d with a dedup key" % number, key=b"", dedup=b"%d" % number)
        producer.send_many([b"3", b"4"], keys=[b"", b""])
    records = client.read(topic, expected, 0)
    assert {record.key for record in records} == {b""}
    assert [int(record.value[:1]) for record in records] == [0, 0, 1, 1, 2, 2, 3, 4]


def test_a_key_is_copied_as_a_value_is(client, topic):
    client.create_topic(topic)
    value, key = bytearray(2), bytearray(2)
    with client.producer(topic) as producer:
        for number in range(50):
            value[:] = key[:] = b"%02d" % number
            producer.send_nowait(value, key=key if number % 2 else memoryview(key))
    found = [(record.value, record.key) for record in client.read(topic, 0, 0)]
    assert found == [(b"%02d" % number, b"%02d" % number) for number in range(50)]
