"""Serializers of producers and consumers: what is sent comes back, and what cannot be read holds nothing else up."""

from __future__ import annotations

import inspect
import json
import threading
from typing import Any

import msgspec
import pytest
from penstock.clients import Client, InvalidArgument, connect
from penstock.clients.aio.client import AsyncClient
from penstock.clients.arguments.settings import ProducerSettings
from penstock.clients.consuming.options import ConsumerSettings
from penstock.clients.errors import CannotDeserialize, CannotSerialize
from support.reading import fetched, until

PATIENCE_S = 60.0

VALUES: list[Any] = [{"flight": "UA 1545", "late": 12}, [1, 2.5, None, True], "text", 7, None]
SERIALIZERS = [
    "json",
    "msgpack",
    (lambda value: json.dumps(value).encode(), json.loads),
    (msgspec.json.encode, msgspec.json.decode),
]


def numbers(data: bytes) -> int:
    """A deserializer that does not read everything."""
    return int(data)


def interrupted(nth: int):
    """The same, with Ctrl-C at one call."""
    calls = iter(range(100))

    def loads(data: bytes) -> int:
        if next(calls) == nth:
            raise KeyboardInterrupt
        return int(data)

    return loads


DIGITS = (lambda number: b"%d" % number, numbers)


@pytest.fixture
def spoiled(client, topic):
    """A topic with the numbers from 0 to 9, of which 3, 4 and 9 are none."""
    client.create_topic(topic)
    with client.producer(topic) as producer:
        producer.send_many([b"%d" % each if each not in (3, 4, 9) else b"x" for each in range(10)])
    return topic


def test_other_threads_go_on_while_a_value_is_serialized(penstock_broker, topic):
    """The function may be slow, or ask the client itself: it never has the client's lock."""
    asked: list[str] = []

    def dumps(value: bytes) -> bytes:
        other = threading.Thread(target=lambda: asked.append(client.topic(topic).name), daemon=True)
        other.start()
        other.join(PATIENCE_S)
        assert not other.is_alive(), "it waits for the function"
        return value

    with connect(penstock_broker.url) as client:
        client.create_topic(topic)
        with client.producer(topic, value=(dumps, bytes)) as producer:
            assert producer.send(b"x") == 0
            assert producer.send_nowait(b"y").result() == 1
            assert producer.send_many([b"z"]) == 1
    assert asked == [topic] * 3


@pytest.mark.parametrize("serializer", SERIALIZERS)
def test_what_is_sent_comes_back(client, topic, serializer):
    client.create_topic(topic)
    with client.producer(topic, value=serializer) as producer:
        for value in VALUES:
            producer.send(value)
        producer.send_nowait(VALUES[0], key=b"k").result()
        producer.send_many(VALUES, keys=[b"k"] * len(VALUES))
        producer.send_many_nowait(iter(VALUES))
        producer.flush()
        assert [count for _, _, count in producer.place_many(VALUES)] == [len(VALUES)]
        told = []
        producer.post(VALUES[1], on_done=told.append)
        producer.flush()
        assert told[0].offset == 3 * len(VALUES) + len(VALUES) + 1
    wanted = [*VALUES, VALUES[0], *VALUES, *VALUES, *VALUES, VALUES[1]]
    with client.consumer(topic, value=serializer) as consumer:
        read = fetched(consumer, len(wanted))
        assert [record.value for record in read] == wanted
        assert [record.offset for record in read] == list(range(len(wanted)))
        assert read[5].key == b"k"
        assert {record.topic for record in read} == {topic}


def test_the_broker_has_bytes(client, topic):
    client.create_topic(topic)
    with client.producer(topic, value="json") as producer:
        producer.send({"a": [1]}, headers={"h": b"1"})
        producer.send(None)
    first, second = client.read(topic, 0, 0)
    assert (first.value, second.value) == (b'{"a":[1]}', None)
    with client.consumer(topic, value="json") as consumer:
        assert fetched(consumer, 1)[0].headers == {"h": b"1"}


def test_transactions_serialize_too(client, topic):
    client.create_topic(topic)
    with client.producer(topic, value="json") as producer:
        with producer.transaction():
            producer.send([1])
        with client.transaction() as transaction:
            transaction.producer(topic, value="msgpack").send([2])
            transaction.producer(topic).send(b"3")
    assert [record.value for record in client.read(topic, 0, 0)] == [b"[1]", b"\x91\x02", b"3"]


def test_iterating_goes_on_behind_what_cannot_be_read(client, spoiled):
    with client.consumer(spoiled, value=DIGITS) as consumer:
        got = []
        while len(got) < 10:
            try:
                for record in consumer:
                    got.append((record.offset, record.value))
                    assert consumer.position == {0: record.offset + 1}
            except CannotDeserialize as error:
                got.append((error.record.offset, error.record.value))
                behind = {0: error.offset}
            else:
                continue
            assert consumer.position == behind
    assert got == [(each, each if each not in (3, 4, 9) else b"x") for each in range(10)]


def test_fetch_gives_what_stands_before_and_tells_with_the_next_call(client, spoiled):
    with client.consumer(spoiled, value=DIGITS) as consumer:
        assert [record.value for record in consumer.fetch()] == [0, 1, 2]
        assert consumer.position == {0: 3}, "a commit here covers nothing that the application was not told of"
        for offset in (3, 4):
            with pytest.raises(CannotDeserialize, match=f"{spoiled}/0 offset {offset}: the value of 1 bytes") as caught:
                consumer.fetch()
            assert caught.value.record == client.read(spoiled, 0, offset, max_records=1)[0]
            assert consumer.position == {0: offset + 1}
        assert [record.value for record in consumer.fetch(2)] == [5, 6]
        assert [record.value for record in consumer.fetch()] == [7, 8]
        with pytest.raises(CannotDeserialize, match=r"by <lambda> and numbers: ValueError: invalid literal"):
            consumer.fetch()
        assert consumer.fetch(wait=0) == []


def test_fetch_keeps_what_it_has_when_the_next_batch_begins_with_one(client, topic):
    client.create_topic(topic)
    with client.producer(topic) as producer:
        producer.send(b"0")
        producer.send(b"x")
        producer.send(b"2")
    with client.consumer(topic, value=DIGITS) as consumer:
        values: list[Any] = []
        while len(values) < 3:
            try:
                values += [record.value for record in consumer.fetch()]
            except CannotDeserialize:
                values.append("told")
    assert values == [0, "told", 2]


def test_batches_are_lists_that_end_before_it(client, spoiled):
    with client.consumer(spoiled, value=DIGITS) as consumer:
        assert next(iter(consumer)).value == 0
        runs: list[Any] = []
        while sum(map(len, runs)) < 9:
            try:
                for batch in until(9 - sum(map(len, runs)), consumer.batches()):
                    runs.append([record.value for record in batch])
            except CannotDeserialize:
                runs.append("x")
    assert runs == [[1, 2], "x", "x", [5, 6, 7, 8], "x"]


@pytest.mark.parametrize("format", ["arrow", "numpy"])
def test_columns_are_not_handed_out_as_something_else(client, spoiled, format):
    with client.consumer(spoiled, value="json") as consumer, pytest.raises(InvalidArgument, match="without value="):
        consumer.batches(format)


def test_a_commit_passes_what_the_application_was_told_of_and_nothing_else(client, spoiled):
    with client.consumer(spoiled, value=DIGITS, group="g") as consumer:
        fetched(consumer, 3)
        consumer.commit()
    with client.consumer(spoiled, value=DIGITS, group="g") as consumer:
        with pytest.raises(CannotDeserialize):
            consumer.fetch()
        consumer.commit()
    assert client.group(spoiled, "g").lag == 6


def test_a_program_that_ends_by_it_meets_it_again(client, spoiled):
    for _ in range(2):
        with (
            pytest.raises(CannotDeserialize, match="offset 3"),
            client.consumer(spoiled, value=DIGITS, group="g", auto_commit=60) as consumer,
        ):
            for _record in consumer:
                pass


@pytest.mark.parametrize("when", [0, 2, 5])
def test_an_interrupt_in_the_middle_of_reading_a_value_loses_none(dial, topic, when):
    client = dial(f"mem://{topic}")
    client.create_topic(topic)
    with client.producer(topic) as producer:
        producer.send_many([b"%d" % each for each in range(6)])
    with client.consumer(topic, value=(str.encode, interrupted(when))) as consumer:
        got: list[Any] = []
        with pytest.raises(KeyboardInterrupt):
            got.extend(record.value for record in consumer)
        got += [record.value for record in consumer.fetch()]
    assert got == list(range(6))


@pytest.mark.parametrize("when", [0, 2, 5])
def test_records_of_a_fetch_that_is_interrupted_come_again(topic, when):
    with connect(f"mem://{topic}") as client:
        client.create_topic(topic)
        with client.producer(topic) as producer:
            producer.send_many([b"%d" % each for each in range(6)])
        with client.consumer(topic, value=(str.encode, interrupted(when))) as consumer:
            with pytest.raises(KeyboardInterrupt):
                consumer.fetch()
            assert [record.value for record in fetched(consumer, 6)] == list(range(6))


def test_what_is_closed_while_a_value_is_read_hands_out_no_more(topic):
    with connect(f"mem://{topic}") as client:
        client.create_topic(topic)
        with client.producer(topic) as producer:
            producer.send_many([b"%d" % each for each in range(6)])

        def loads(data: bytes) -> int:
            if data == b"2":
                consumer.close()
            return int(data)

        consumer = client.consumer(topic, value=(str.encode, loads))
        assert [record.value for record in consumer] == [0, 1, 2]


@pytest.mark.parametrize(
    ("serializer", "value", "message"),
    [
        ("json", b"bytes", 'as json: .*bytes cannot be written as JSON: take "msgpack"'),
        ("json", float("nan"), "as json"),
        ("msgpack", 1 << 70, "as msgpack"),
        ((json.dumps, json.loads), 1, "as str, .*encode"),
        ((lambda value: 1 / value, json.loads), 0, "by <lambda> and loads: ZeroDivisionError: division by zero"),
    ],
)
def test_what_cannot_be_written_is_not_sent(client, topic, serializer, value, message):
    client.create_topic(topic)
    with client.producer(topic, value=serializer) as producer:
        for send in (producer.send, producer.send_nowait):
            with pytest.raises(CannotSerialize, match=f"a value for topic {topic} .*{message}"):
                send(value)
        with pytest.raises(CannotSerialize, match=message):
            producer.post(value, on_done=print)
        for send in (producer.send_many, producer.send_many_nowait, producer.place_many):
            with pytest.raises(CannotSerialize, match=message):
                send([value])
    assert client.read(topic, 0, 0) == []


def test_arrow_is_refused_by_a_producer_with_a_serializer(client, topic):
    pa = pytest.importorskip("pyarrow", reason="the extra arrow is not installed")
    client.create_topic(topic)
    with client.producer(topic, value="json") as producer:
        for data in (pa.array([b"a"]), pa.table({"value": [b"a"]})):
            with pytest.raises(InvalidArgument, match="Arrow data is sent as it is"):
                producer.send_many(data)
        with pytest.raises(InvalidArgument, match="is one record"):
            producer.send_many("text")
        with pytest.raises(InvalidArgument, match="no list"):
            producer.send_many(7)


@pytest.mark.parametrize("serializer", ["pickle", (json.dumps,), (json.dumps, 1), json.dumps])
def test_what_is_no_serializer_is_refused(client, topic, serializer):
    client.create_topic(topic)
    for opened in (client.producer, client.consumer):
        with pytest.raises(InvalidArgument, match="value"):
            opened(topic, value=serializer)
    with client.transaction() as transaction, pytest.raises(InvalidArgument, match="value"):
        transaction.producer(topic, value=serializer)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize(("verb", "options"), [("consumer", ConsumerSettings), ("producer", ProducerSettings)])
def test_the_typed_options_are_the_arguments(kind, verb, options):
    found = inspect.signature(getattr(kind, verb)).parameters
    assert set(found) - {"self", "topic", "value"} == set(options.__annotations__)
    assert {name: found[name].annotation for name in options.__annotations__} == {
        name: hint.__forward_arg__ for name, hint in options.__annotations__.items()
    }


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("way", ["fetch", "batches"])
def test_a_slow_function_keeps_no_other_thread_of_the_client_waiting(several, way) -> None:
    """It runs without the client's lock: another thread sends from within it."""
    with connect(f"mem://slow-{several}-{way}") as client:
        client.create_topic("t")
        client.create_topic("other")
        client.producer("t").send_many([b"1", b"2", b"3"])
        other = client.producer("other")

        def loads(value: bytes) -> int:
            sending = threading.Thread(target=other.send, args=(value,), daemon=True)
            sending.start()
            sending.join(20)
            assert not sending.is_alive(), "it waits for the lock"
            return int(value)

        consumer = client.consumer(["t"] if several else "t", value=(str, loads))
        found = consumer.fetch(wait=20) if way == "fetch" else next(consumer.batches(wait=20))
        assert [record.value for record in found] == [1, 2, 3]
        assert client.topic("other").records == 3


@pytest.mark.parametrize("several", [False, True])
def test_what_is_no_error_of_the_function_gives_all_records_of_the_call_back(several) -> None:
    """A timeout of an event loop, say: records that the call had loaded come again, and no commit passes them."""

    class Late(BaseException):
        pass

    late = [3]

    def loads(value: bytes) -> int:
        if int(value) in late:
            late.clear()
            raise Late
        return int(value)

    with connect(f"mem://late-{several}") as client:
        client.create_topic("t")
        for number in range(5):  # a batch each
            client.producer("t").send(b"%d" % number)
        with client.consumer(["t"] if several else "t", group="g", value=(str, loads)) as consumer:
            with pytest.raises(Late):
                consumer.fetch(wait=20)
            consumer.commit()
            values: list[int] = []
            while len(values) < 5:
                values += [record.value for record in consumer.fetch(wait=20)]
            assert values == [0, 1, 2, 3, 4]
