"""One record that the broker refuses does not fail those gathered with it, or those behind it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from penstock.broker import ServeConfig
from penstock.broker.engine.producing import producing
from penstock.broker.errors import LimitReached
from penstock.clients import connect
from penstock.clients.embedded.local import LocalChannel
from penstock.clients.producing import partition_sender
from penstock.storage.batch import parse
from penstock.storage.errors import BatchTooLarge, InvalidBatch, RecordTooLarge, StorageFull
from penstock.transport.messages import Failure, Produce, Produced
from support.interrupts import interrupts
from support.processes import Serving

BAD = b"bad"


def stands(client: Any, topic: str, partition: int = 0) -> list[bytes]:
    return [record.value for record in client.read(topic, partition, 0, max_records=100_000)]


def held_offsets(futures: list[Any], kind: type[Exception]) -> list[int | None]:
    """The offsets of records, None for refused ones."""
    found = []
    for future in futures:
        try:
            found.append(future.result())
        except kind:
            found.append(None)
    return found


def gathered(producer: Any, *sends: Any) -> list[Any]:
    """Futures of records that become one batch."""
    sender = producer._core.senders[0]
    with producer._driver.lock:
        sender.trigger = 1 << 30
        futures = [producer.send_nowait(value, **beside) for value, beside in sends]
        sender.trigger = 0
    return futures


def plain(*values: bytes) -> list[tuple[bytes, dict[str, Any]]]:
    return [(value, {}) for value in values]


@pytest.fixture
def judging(monkeypatch):
    """The broker refuses each batch with a record that says it is bad; the list has the sizes of those refused."""
    judge, refused = producing.judge, []

    def strict(payload, *limits):
        batch = judge(payload, *limits)
        if any(value.startswith(BAD) for value in batch.values()):
            refused.append(batch.record_count)
            raise InvalidBatch("a record is bad")
        return batch

    monkeypatch.setattr(producing, "judge", strict)
    monkeypatch.setattr(producing, "propose_few", lambda *_: 0)
    return refused


@pytest.mark.parametrize("name", [None, "named"])
def test_records_over_a_limit_that_was_lowered_are_refused_alone(client, topic, name):
    client.create_topic(topic)
    with client.producer(topic, name=name) as producer:
        client.alter_topic(topic, max_record_bytes=100)
        values = [b"%d" % number + bytes(200 if number % 61 == 7 else 0) for number in range(400)]
        futures = [producer.send_nowait(value, key=b"k", headers={"h": b"v"}) for value in values]
        offsets = held_offsets(futures, RecordTooLarge)
        producer.flush()
        good = [value for value in values if len(value) <= 100]
        assert producer.next_sequence() == len(good) or name is None
    assert stands(client, topic) == good
    assert [offset for offset in offsets if offset is not None] == list(range(len(good)))
    assert [value for value, offset in zip(values, offsets, strict=True) if offset is not None] == good


def test_only_new_dedup_keys_over_the_limit_are_refused(tmp_path):
    config = ServeConfig(data=str(tmp_path / "d"), listen=(f"unix://{tmp_path}/b",), node={"max_dedup_keys": 2})
    with Serving(config) as serving, connect(serving.url) as client:
        client.create_topic("t")
        with client.producer("t") as producer:
            sends = [(b"%d" % number, {"dedup": key} if key else {}) for number, key in enumerate([b"a", b"", b"b"])]
            gathered(producer, *sends)
            producer.flush()
            later = [(b"3", {}), (b"4", {"dedup": b"c"}), (b"5", {"dedup": b"a"}), (b"6", {})]
            futures = gathered(producer, *later)
            assert held_offsets(futures, LimitReached) == [3, None, 4, 5]
            assert [future.repeats for future in futures] == [None, None, 0, None]
        assert stands(client, "t") == [b"0", b"1", b"2", b"3", b"5", b"6"]


def test_a_record_that_no_frame_holds_is_refused_alone_and_without_being_sent(tmp_path):
    config = ServeConfig(data=str(tmp_path / "d"), listen=(f"unix://{tmp_path}/b",), node={"max_frame_bytes": 1 << 20})
    with Serving(config) as serving, connect(serving.url) as client:
        client.create_topic("t", max_record_bytes="16MB")
        with client.producer("t") as producer:
            fitting = bytes((1 << 20) - 1000)
            futures = gathered(producer, *plain(bytes(900), b"b", fitting, bytes(1 << 20), b"c"))
            assert held_offsets(futures, BatchTooLarge) == [0, 1, 2, None, 3]
        assert [len(value) for value in stands(client, "t")] == [900, 1, len(fitting), 1]


def test_records_that_cannot_be_encoded_are_refused_alone(penstock_client, monkeypatch):
    encode = partition_sender.encode

    def picky(values, **columns):
        if BAD in values:
            raise TypeError("bad")
        return encode(values, **columns)

    monkeypatch.setattr(partition_sender, "encode", picky)
    penstock_client.create_topic("t")
    with penstock_client.producer("t") as producer:
        futures = gathered(producer, *plain(b"a", BAD, b"b", b"c", BAD))
        assert held_offsets(futures, InvalidBatch) == [0, None, 1, 2, None]
    assert stands(penstock_client, "t") == [b"a", b"b", b"c"]


@pytest.mark.usefixtures("judging")
@pytest.mark.parametrize("name", [None, "named"])
def test_batches_behind_a_refused_one_go_again_in_order(penstock_client, name):
    penstock_client.create_topic("t")
    with penstock_client.producer("t", name=name) as producer:
        core, sender = producer._core, producer._core.senders[0]
        producer.send(b"before")
        with producer._driver.lock:
            futures = gathered(producer, *plain(b"a", BAD))
            for value in (b"b", BAD, b"c"):
                sender.ship()
                futures += gathered(producer, *plain(value))
            sender.ship()
            assert len(sender.session) == 4
        producer.send_many_nowait([b"d", b"e"])
        assert held_offsets(futures, InvalidBatch) == [1, None, 2, None, 3]
        producer.flush()
        assert core.failed == []
    assert stands(penstock_client, "t") == [b"before", b"a", b"b", b"c", b"d", b"e"]


def test_a_piece_of_send_many_is_refused_as_a_whole_and_others_go_on(penstock_client, judging):
    penstock_client.create_topic("t")
    with penstock_client.producer("t") as producer:
        with producer._driver.lock:
            producer.send_many_nowait([b"a"])
            producer.send_many_nowait([b"b", BAD])
            producer.send_many_nowait([b"c", b"d"])
            future = producer.send_nowait(b"e")
        with pytest.raises(InvalidBatch, match="a record is bad"):
            producer.flush()
        assert future.result() == 3
    assert stands(penstock_client, "t") == [b"a", b"c", b"d", b"e"]
    assert judging == [2]


def test_finding_one_record_takes_two_tries_for_each_halving(penstock_client, judging):
    penstock_client.create_topic("t")
    with penstock_client.producer("t") as producer:
        values = [b"%d" % number for number in range(1024)]
        values[700] = BAD
        futures = gathered(producer, *plain(*values))
        assert [number for number, found in enumerate(held_offsets(futures, InvalidBatch)) if found is None] == [700]
        ids = {producer._core.senders[0].session.producer_id}
    assert judging == [1024 >> level for level in range(11)]
    partition = penstock_client._connection.channel._broker._node._registry.topics.by_name["t"].partition(0)
    assert set(partition.committed.producers.by_id) == ids, "one producer went on all the time"


@pytest.mark.usefixtures("judging")
def test_each_future_of_a_divided_batch_hears_of_its_own_outcome(penstock_client):
    penstock_client.create_topic("t")
    with penstock_client.producer("t") as producer:
        futures = gathered(producer, *plain(b"a", BAD, b"c"))
        heard: list[Any] = []
        for future in futures:
            future.add_done_callback(lambda each: heard.append(each.exception()))
        producer.flush()
        assert [error and error.code for error in heard] == [None, "invalid_batch", None]
        assert [repr(future) for future in futures[::2]] == ["<Future of partition 0: committed>"] * 2
        assert "a record is bad" in repr(futures[1])
        assert all(future.done() for future in futures)
    with penstock_client.producer("t") as producer:
        gathered(producer, *plain(b"a", BAD))
        with pytest.raises(InvalidBatch):
            producer.flush()
        producer.flush()


@pytest.mark.usefixtures("judging")
def test_closing_says_of_records_that_wait_to_be_sent_again_that_they_may_be_lost(penstock_client, losing):
    penstock_client.create_topic("t")
    producer = penstock_client.producer("t")
    losing(Produced)
    futures = gathered(producer, *plain(b"a", b"b", b"c", BAD))
    with pytest.raises(Exception, match="timed out"):
        producer.flush(timeout=0.1)
    producer._core.abandon()
    assert {future.exception().code for future in futures} == {"closed"}
    assert producer._core.senders[0].is_empty


@pytest.mark.usefixtures("judging")
def test_where_a_copy_may_be_under_way_a_batch_is_refused_as_a_whole(penstock_client):
    """The broker could still take that copy, and then others would stand twice."""
    penstock_client.create_topic("t")
    connection = penstock_client._connection
    with penstock_client.producer("t") as producer:
        sender = producer._core.senders[0]
        with producer._driver.lock:
            futures = gathered(producer, *plain(b"a", BAD))
            sender.ship()
            futures += gathered(producer, *plain(b"b"))
            sender.ship()
            connection.channel._inbox.clear()
            connection.channel.break_off()
        assert held_offsets(futures, InvalidBatch) == [None, None, None]
        assert producer.send(b"after") == 0


@pytest.mark.usefixtures("judging")
def test_a_transaction_with_a_refused_record_is_lost(penstock_client):
    penstock_client.create_topic("t")
    with penstock_client.transaction() as transaction:
        gathered(transaction.producer("t"), *plain(b"a", BAD, b"c"))
        with pytest.raises(InvalidBatch, match="a record is bad"):
            transaction.commit()
    assert stands(penstock_client, "t") == []


@pytest.mark.usefixtures("judging")
def test_an_interrupt_at_any_moment_of_a_refusal_leaves_each_record_with_one_outcome(penstock_client):
    client, seen = penstock_client, 0
    client.create_topic("t")
    producer = client.producer("t")
    sender = producer._core.senders[0]
    for interrupt in interrupts(("clients/producing", "transport/producer_session.py"), stride=3, above=30):
        values = [b"%d a" % interrupt.nth, BAD, b"%d b" % interrupt.nth, b"%d c" % interrupt.nth]
        with producer._driver.lock:
            futures = gathered(producer, *plain(*values))
            with interrupt:
                sender.ship()
                client._connection.turn()
                client._connection.turn()
        for future in futures:
            future.exception(timeout=5)
        found = stands(client, "t")[seen:]
        seen += len(found)
        known = [value for value, future in zip(values, futures, strict=True) if future.exception() is None]
        assert found == known, f"interrupted at moment {interrupt.nth}"


@pytest.mark.usefixtures("judging")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", [None, "named"])
def test_records_stand_once_and_in_order_whatever_is_refused_lost_or_put_off(penstock_broker, monkeypatch, name, seed):
    """Random lives of a producer whose requests and answers get lost, against what its futures say."""
    choose = random.Random(seed)
    put, receive = LocalChannel.put, type(penstock_broker._broker).receive
    monkeypatch.setattr(partition_sender, "PATIENCE_S", 0.0)
    monkeypatch.setattr(partition_sender, "BACKOFF_MIN_S", 0.0)
    monkeypatch.setattr(partition_sender, "BACKOFF_MAX_S", 0.0)

    def answer(channel, message, payload):
        if type(message) in (Produced, Failure) and choose.random() < 0.05:
            channel.break_off()
            return True
        return put(channel, message, payload)

    def request(broker, channel, message, payload):
        if type(message) is Produce and choose.random() < 0.1:
            return channel.put(Failure(message.request, StorageFull.code, "the disk is full", True), b"")
        return receive(broker, channel, message, payload)

    with penstock_broker.connect(timeout=20) as client:
        client.create_topic("t")
        monkeypatch.setattr(LocalChannel, "put", answer)
        monkeypatch.setattr(type(penstock_broker._broker), "receive", request)
        producer, sent = client.producer("t", name=name), []
        for number in range(150):
            marks = [BAD if choose.random() < 0.1 else b"" for _ in range(choose.randint(1, 9))]
            values = [mark + b"%d.%d" % (number, each) for each, mark in enumerate(marks)]
            sent += zip(values, gathered(producer, *plain(*values)), strict=True)
            if choose.random() < 0.3:
                sent[-1][1].exception()
        outcomes = [(value, future.exception(), future) for value, future in sent]
        monkeypatch.undo()
        stood = stands(client, "t")
        assert [(value, future.result()) for value, error, future in outcomes if error is None] == [
            (value, offset) for offset, value in enumerate(stood)
        ]
        assert not any(value.startswith(BAD) for value in stood)
        producer.close()


def test_a_batch_can_be_given_to_another_producer():
    batch = partition_sender.encode([b"a", b"b"], keys=[b"k", None], producer_id=1, producer_epoch=2, first_sequence=3)
    moved = parse(partition_sender.of_producer(batch, 7, 8, 9))
    moved.check()
    assert (moved.producer_id, moved.producer_epoch, moved.first_sequence) == (7, 8, 9)
    assert (moved.values(), parse(batch).producer_id) == ([b"a", b"b"], 1)
