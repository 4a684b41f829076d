"""Transactions through clients of every kind: all of a transaction can be read, or nothing of it, and once."""

from __future__ import annotations

import multiprocessing

import pyarrow as pa
import pytest
from penstock.broker.errors import InvalidRequest, StageLost
from penstock.clients import InvalidArgument
from penstock.clients.producing import partition_sender as sender
from penstock.storage.errors import Closed, InvalidBatch
from penstock.transport.messages import Stage
from penstock.transport.partitioner import partition_of

MANY = [b"%06d" % number for number in range(20_000)]


@pytest.fixture
def topics(client, topic):
    """Two topics, the first of them with several partitions."""
    names = topic, f"{topic}-other"
    client.create_topic(names[0], partitions=3)
    client.create_topic(names[1])
    return names


def read(client, topic):
    """All values of a topic, by partition."""
    return [
        [record.value for record in client.read(topic, part.partition, 0, max_records=100_000)]
        for part in client.topic(topic).partitions
    ]


def flat(client, topic):
    return sorted(value for part in read(client, topic) for value in part)


def test_records_of_several_topics_are_there_together_when_the_block_is_left(client, topics):
    with client.transaction() as transaction:
        first, second = (transaction.producer(name) for name in topics)
        assert first.send(b"a", key=b"k", headers={"h": b"x"}, timestamp=1_600_000_000_000_000) == -1
        assert second.send_many(MANY) == len(MANY)
        assert [future.result() for future in [first.send_nowait(b"b", partition=1), second.send_nowait(b"end")]] == [
            -1, -1,
        ]  # fmt: skip
        assert [flat(client, name) for name in topics] == [[], []]
        assert not transaction.closed
    assert transaction.closed
    assert flat(client, topics[0]) == [b"a", b"b"]
    assert read(client, topics[1]) == [[*MANY, b"end"]]
    (record,) = [record for record in client.read(topics[0], partition_of(b"k", 3), 0) if record.key == b"k"]
    assert (record.value, record.headers, record.timestamp) == (b"a", {"h": b"x"}, 1_600_000_000_000_000)


def test_topics_that_do_not_wait_for_the_disk_have_their_part_in_it(client, topic):
    """The decision does wait, at every kind of address: for a keeper, or by syncing itself."""
    client.create_topic(f"{topic}-written", commit="written")
    for epoch in range(3):
        with client.transaction(f"{topic}-job", epoch) as transaction:
            transaction.producer(f"{topic}-written").send(b"%d" % epoch)
    assert flat(client, f"{topic}-written") == [b"0", b"1", b"2"]
    assert client.transaction_epoch(f"{topic}-job") == 2


def test_an_exception_drops_everything(client, topics):
    transaction = client.transaction()

    def fail():
        with transaction:
            transaction.producer(topics[0]).send(b"a")
            transaction.producer(topics[1]).send_many(MANY)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [flat(client, name) for name in topics] == [[], []]
    with pytest.raises(Closed, match="was dropped: begin another one"):
        transaction.commit()


def test_a_consumer_never_sees_what_is_not_committed(client, topics):
    with client.consumer(topics[1]) as consumer, client.producer(topics[1]) as plain:
        with client.transaction() as transaction:
            transaction.producer(topics[1]).send(b"staged")
            plain.send(b"plain")
            assert [record.value for record in consumer.fetch(10)] == [b"plain"]
            assert consumer.lag() == 0
        assert [(record.offset, record.value) for record in consumer.fetch(10)] == [(1, b"staged")]


def test_a_producer_stages_within_a_block_and_sends_at_once_outside(client, topic):
    client.create_topic(topic)
    with client.producer(topic) as producer:
        assert producer.send(b"before") == 0
        with producer.transaction() as transaction:
            assert producer.send(b"1") == -1
            assert producer.send_nowait(b"2").result() == -1
            assert producer.send_many([b"3", b"4"]) == 2
            assert transaction.id.startswith("~")
            assert read(client, topic) == [[b"before"]]
        assert producer.send(b"after") == 5
    assert read(client, topic) == [[b"before", b"1", b"2", b"3", b"4", b"after"]]


def test_a_producers_block_that_fails_leaves_nothing_and_the_producer_goes_on(client, topic):
    client.create_topic(topic)
    with client.producer(topic) as producer:

        def fail():
            with producer.transaction():
                producer.send_nowait(b"lost")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        with producer.transaction(), pytest.raises(InvalidArgument, match="in a transaction already"):
            producer.transaction().__enter__()
        assert producer.send(b"kept") == 0
    assert read(client, topic) == [[b"kept"]]


def test_other_topics_join_a_producers_transaction(client, topics):
    with client.producer(topics[0]) as producer, producer.transaction(id=topics[0], epoch=4) as transaction:
        producer.send(b"a")
        transaction.producer(topics[1]).send(b"b")
        assert (transaction.id, transaction.epoch) == (topics[0], 4)
    assert [flat(client, name) for name in topics] == [[b"a"], [b"b"]]
    assert client.transaction_epoch(topics[0]) == 4


def test_an_epoch_is_committed_once_whichever_client_commits_it(client, topics):
    assert client.transaction_epoch(topics[0]) is None
    for attempt in range(3):
        with client.transaction(topics[0], 7) as transaction:
            transaction.producer(topics[1]).send(b"attempt %d" % attempt)
            assert transaction.commit() is (attempt == 0)
            assert transaction.commit() is (attempt == 0)
    with client.transaction(topics[0], 6) as transaction:
        transaction.producer(topics[1]).send(b"an older epoch")
    assert client.transaction_epoch(topics[0]) == 7
    with client.transaction(topics[0], 8) as transaction:
        transaction.producer(topics[1]).send(b"the next one")
    assert read(client, topics[1]) == [[b"attempt 0", b"the next one"]]
    assert client.transaction_epoch(topics[0]) == 8


def test_an_epoch_without_records_counts(client, topics):
    with client.transaction(topics[0], 1):
        pass
    assert client.transaction_epoch(topics[0]) == 1
    assert client.commit_stages(topics[0], 1, []) is False
    assert client.commit_stages(topics[0], 2, []) is True


def test_stages_of_several_clients_are_committed_by_another_one(dial, url, client, topics):
    stages = []
    for number in range(3):
        with dial(url).staging() as staging:
            staging.producer(topics[0], codec="none", window_bytes="1MB").send_many_nowait(MANY[number::3])
        stages += staging.stages()
    assert flat(client, topics[0]) == []
    travelled = through_a_pipe(stages)
    assert client.commit_stages(topics[0], 0, travelled) is True
    assert client.commit_stages(topics[0], 0, travelled) is True, "to commit again is harmless"
    assert client.commit_stages(topics[0], 0, travelled[1:]) is False
    assert flat(client, topics[0]) == MANY


def through_a_pipe(stages):
    """As between processes."""
    one, other = multiprocessing.Pipe()
    with one, other:
        one.send(stages)
        travelled = other.recv()
    assert all(isinstance(stage, Stage) for stage in travelled)
    assert travelled == stages
    return travelled


def test_stages_that_were_left_out_are_not_published(client, topics):
    with client.staging() as staging:
        producer = staging.producer(topics[0])
        for partition in range(3):
            producer.send(b"%d" % partition, partition=partition)
        stages = staging.stages()
    assert [stage.records for stage in stages] == [1, 1, 1]
    assert client.commit_stages(topics[0], 1, stages[:2]) is True
    client.drop_stages(stages)
    assert read(client, topics[0]) == [[b"0"], [b"1"], []]
    with pytest.raises(StageLost):
        client.commit_stages(topics[0], 2, stages[2:])


def test_dropped_stages_cannot_be_committed(client, topics):
    staging = client.staging()
    staging.producer(topics[0]).send_many(MANY)
    stages = staging.stages()
    staging.drop()
    staging.drop()
    with pytest.raises(StageLost):
        client.commit_stages(topics[0], 1, stages)
    assert client.transaction_epoch(topics[0]) is None
    assert flat(client, topics[0]) == []
    with pytest.raises(Closed, match="this staging was dropped"):
        staging.producer(topics[0])
    with pytest.raises(Closed):
        staging.stages()


def test_an_exception_in_a_staging_drops_it(client, topics):
    stages = []

    def fail():
        with client.staging() as staging:
            staging.producer(topics[0]).send(b"x")
            stages.extend(staging.stages())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with pytest.raises(StageLost):
        client.commit_stages(topics[0], 1, stages)


def test_what_was_not_all_staged_is_not_committed_at_all(client, topics):
    with client.staging() as staging:
        for name in topics:
            staging.producer(name).send_many([b"a", b"b"], partition=0)
        stages = staging.stages()
    first, second = stages
    more = Stage(second.topic, second.partition, second.stage, second.records + 1)
    with pytest.raises(StageLost):
        client.commit_stages(topics[0], 1, [first, more])
    assert [flat(client, name) for name in topics] == [[], []]
    assert client.commit_stages(topics[0], 1, stages) is True
    assert [flat(client, name) for name in topics] == [[b"a", b"b"]] * 2


def test_a_transaction_that_was_committed_or_dropped_takes_nothing_more(client, topics):
    for end in ("commit", "drop"):
        with client.transaction() as transaction:
            producer = transaction.producer(topics[1])
            producer.send(b"x")
            getattr(transaction, end)()
            assert transaction.closed
            with pytest.raises(Closed):
                producer.send(b"late")
            with pytest.raises(Closed):
                transaction.producer(topics[1])
    assert read(client, topics[1]) == [[b"x"]]


def test_a_record_that_cannot_be_sent_and_was_not_reported_stops_the_commit(client, topic, monkeypatch):
    def refuse(*records, **columns):
        raise InvalidBatch("they could not be encoded")

    client.create_topic(topic)
    transaction = client.transaction(topic, 1)
    producer = transaction.producer(topic)
    producer.send(b"fine")
    with monkeypatch.context() as failing:
        failing.setattr(sender, "encode", refuse)
        producer.send_nowait(b"x")
    with pytest.raises(InvalidBatch, match="could not be encoded"):
        transaction.commit()
    assert client.transaction_epoch(topic) is None
    assert read(client, topic) == [[]]
    with pytest.raises(Closed, match="was dropped"):
        transaction.commit()


def test_closing_a_client_drops_its_transactions_and_keeps_what_it_staged_for_others(dial, url, client, topics):
    other = dial(url)
    transaction, staging = other.transaction(topics[0], 1), other.staging()
    transaction.producer(topics[0]).send(b"dropped")
    staging.producer(topics[0]).send_nowait(b"kept")
    lost, kept = transaction.stages(), staging.stages()
    other.close()
    with pytest.raises(StageLost):
        client.commit_stages(topics[0], 1, [*kept, *lost])
    assert client.commit_stages(topics[0], 1, kept) is True
    assert flat(client, topics[0]) == [b"kept"]


def test_arrow_columns_are_staged_as_they_are(client, topics):
    entries = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = pa.table(
        {
            "value": pa.array(MANY, pa.binary()),
            "key": [None if number % 9 == 0 else b"%d" % (number % 50) for number in range(len(MANY))],
            "headers": pa.array([[{"key": "n", "value": value}] for value in MANY], entries),
            "timestamp": pa.array(range(len(MANY)), pa.timestamp("us", "UTC")),
            "partition": pa.array([2 if number % 5 == 0 else None for number in range(len(MANY))], pa.int32()),
        }
    )
    with client.transaction() as transaction:
        assert transaction.producer(topics[0]).send_many(rows.to_batches(max_chunksize=1000)) == len(MANY)
    found = [record for part in range(3) for record in client.read(topics[0], part, 0, max_records=100_000)]
    assert sorted(record.value for record in found) == MANY
    for record in found:
        number = int(record.value)
        assert record.timestamp == number
        assert record.headers == {"n": record.value}
        assert record.key == (None if number % 9 == 0 else b"%d" % (number % 50))
        if number % 5 == 0:
            assert record.partition == 2
        elif record.key is not None:
            assert record.partition == partition_of(record.key, 3)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_records_are_published_as_they_were_staged(client, topic, codec):
    client.create_topic(topic, codec=codec)
    with client.producer(topic) as producer, producer.transaction():
        producer.send_many([bytes(1000)] * 5000)
    assert read(client, topic) == [[bytes(1000)] * 5000]
    assert client.topic(topic).size_bytes < 5_000_000


def test_transactions_keep_their_order_in_each_partition(client, topic):
    client.create_topic(topic)
    with client.producer(topic) as producer:
        for number in range(20):
            with producer.transaction():
                for value in MANY[number * 10 : number * 10 + 10]:
                    producer.send_nowait(value)
    assert read(client, topic) == [MANY[:200]]


def test_the_log_of_transactions_is_no_topic_of_clients(client, topics):
    with client.transaction(topics[0], 1) as transaction:
        transaction.producer(topics[0]).send(b"x")
    assert not [found.name for found in client.topics() if found.name.startswith("__")]


def test_what_a_transaction_cannot_be_is_refused_with_a_sentence(client, topic):
    client.create_topic(topic)
    with pytest.raises(InvalidArgument, match="id='x' and epoch=None go together"):
        client.transaction("x")
    with pytest.raises(InvalidArgument, match="id=None and epoch=3 go together"):
        client.transaction(epoch=3)
    with pytest.raises(InvalidArgument, match="epoch=-1 is below 0"):
        client.transaction("x", -1)
    with pytest.raises(InvalidArgument, match="id='' is no name"):
        client.commit_stages("", 1, [])
    with pytest.raises(InvalidArgument, match=r"stages\[0\]=b'stage' is not a Stage"):
        client.commit_stages("x", 1, [b"stage"])
    with pytest.raises(InvalidRequest):
        client.commit_stages("a name with spaces", 1, [])
    with client.transaction() as transaction:
        with pytest.raises(InvalidArgument, match="dedup= and a transaction do not go together"):
            transaction.producer(topic).send(b"x", dedup=b"key")
        transaction.producer(topic).send(b"x", priority=3, delay=0.001)
    assert read(client, topic) == [[b"x"]]
