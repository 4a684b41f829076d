"""`post`: a function instead of a future, called once with the outcome of its record, and no wait."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections import Counter
from typing import Any

import pytest
from penstock import Posted, aio
from penstock.broker.errors import Fenced, UnknownTopic
from penstock.clients import InvalidArgument, TimedOut, WindowFull
from penstock.clients.embedded.local import LocalChannel
from penstock.storage.errors import Closed, InvalidBatch, RecordTooLarge
from penstock.transport.messages import Produced
from support.interrupts import interrupts


@pytest.fixture
def heard() -> list[Any]:
    return []


def fill(producer: Any, heard: list[Any]) -> tuple[int, WindowFull]:
    """Post until the window is full; how many were taken, and the error."""
    for taken in itertools.count():
        try:
            producer.post(bytes(100_000), on_done=heard.append)
        except WindowFull as error:
            return taken, error
    raise AssertionError("it goes on for ever")


def test_each_function_gets_the_place_of_its_record(client, topic):
    client.create_topic(topic, partitions=2)
    found: dict[bytes, Any] = {}
    with client.producer(topic) as producer:
        values = [b"%d" % number for number in range(1000)]
        for value in values:
            producer.post(value, on_done=lambda outcome, value=value: found.setdefault(value, outcome), key=value)
        producer.flush()
        client.ping()
    assert all(isinstance(outcome, Posted) and outcome.repeats is None for outcome in found.values())
    stood = {
        (partition, record.offset): (record.value, record.timestamp)
        for partition in (0, 1)
        for record in client.read(topic, partition, 0, max_records=2000)
    }
    assert {(each.partition, each.offset): (value, each.time_us) for value, each in found.items()} == stood


def test_functions_and_futures_go_together(penstock_client, heard):
    penstock_client.create_topic("t")
    with penstock_client.producer("t") as producer:
        with producer._driver.lock:
            producer._core.senders[0].trigger = 1 << 20
            producer.post(b"0", on_done=heard.append)
            first = producer.send_nowait(b"1")
            second = producer.send_nowait(b"2", key=b"k")
            producer.post(b"3", on_done=heard.append, headers={"h": b"v"})
        producer.flush()
    assert [outcome.offset for outcome in heard] == [0, 3]
    assert (first.result(), second.result()) == (1, 2)


def test_a_record_that_is_not_taken_calls_nothing(penstock_client, heard):
    penstock_client.create_topic("t", max_record_bytes=10)
    with penstock_client.producer("t") as producer:
        with pytest.raises(RecordTooLarge):
            producer.post(bytes(11), on_done=heard.append)
        with pytest.raises(InvalidBatch):
            producer.post("text", on_done=heard.append)
        with pytest.raises(InvalidArgument, match="on_done=5 is not a function to call"):
            producer.post(b"v", on_done=5)
        with pytest.raises(TypeError):
            producer.post(b"v")
        assert producer.send(b"v") == 0
    with pytest.raises(Closed):
        producer.post(b"v", on_done=heard.append)
    assert heard == []


def test_a_refused_record_is_told_its_error_and_flush_does_not_repeat_it(client, topic, heard):
    client.create_topic(topic)
    with client.producer(topic) as producer:
        client.alter_topic(topic, max_record_bytes=100)
        for number in range(20):
            producer.post(bytes(200 if number == 7 else 1), on_done=heard.append)
        producer.flush()
        client.ping()
    assert heard.pop(7).code == "record_too_large"
    assert [outcome.offset for outcome in heard] == list(range(19))


def test_repeats_of_a_dedup_key_are_told(penstock_client, heard):
    penstock_client.create_topic("t")
    with penstock_client.producer("t") as producer:
        for _ in range(2):
            producer.post(b"v", on_done=heard.append, dedup=b"d")
            producer.flush()
    assert [outcome.repeats for outcome in heard] == [None, 0]


def test_in_a_transaction_there_is_no_offset(client, topic, heard):
    client.create_topic(topic)
    with client.producer(topic) as producer:
        with producer.transaction():
            producer.post(b"v", on_done=heard.append)
            producer.flush()
            client.ping()
        producer.post(b"w", on_done=heard.append)
        producer.flush()
        client.ping()
    assert [outcome.offset for outcome in heard] == [-1, 1]


def test_a_full_window_is_an_error_and_room_waits(client, topic, heard):
    client.create_topic(topic)
    with client.producer(topic, window_bytes="1MB") as producer:
        taken = 0
        for _ in range(3):
            posted, error = fill(producer, heard)
            assert error.retry
            assert f"topic {topic} is full, and the record was not taken: wait with room()" in str(error)
            producer.room()
            taken += posted
    client.ping()
    assert [outcome.offset for outcome in heard] == list(range(taken))


def test_room_gives_up_after_its_timeout(penstock_client, losing, heard):
    penstock_client.create_topic("t")
    producer = penstock_client.producer("t", window_bytes="1MB")
    losing(Produced)
    fill(producer, heard)
    with pytest.raises(TimeoutError, match="window is 1048576"):
        producer.room(timeout=0.05)
    producer._core.abandon()
    penstock_client.ping()
    assert {outcome.code for outcome in heard} == {"closed"}
    with pytest.raises(Closed):
        producer.room()


def test_closing_calls_what_is_left(penstock_client, heard):
    penstock_client.create_topic("t")
    producer = penstock_client.producer("t")
    for _ in range(5):
        producer.post(b"v", on_done=heard.append)
    producer.close()
    assert len(heard) == 5


def test_a_fenced_producer_tells_all_that_waited(penstock_client, heard):
    penstock_client.create_topic("t")
    old = penstock_client.producer("t", name="p")
    old.send(b"v")
    penstock_client.producer("t", name="p").send(b"w")
    for _ in range(3):
        old.post(b"x", on_done=heard.append)
    with pytest.raises(Fenced):
        old.room() or old.send(b"y")
    assert {type(outcome) for outcome in heard} == {Fenced}


def test_what_a_function_raises_stops_no_other_and_is_reported(penstock_client, heard, monkeypatch):
    reported: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda told: reported.append(told.exc_value))
    penstock_client.create_topic("t")

    def fail(outcome):
        heard.append(outcome)
        raise ValueError(outcome.offset)

    with penstock_client.producer("t") as producer:
        with producer._driver.lock:
            producer._core.senders[0].trigger = 1 << 20
            for _ in range(3):
                producer.post(b"v", on_done=fail)
        producer.flush()
    assert len(heard) == 3
    (group,) = reported
    assert [error.args for error in group.exceptions] == [(0,), (1,), (2,)]


def test_a_function_may_post_the_next_record_for_ever(penstock_client, monkeypatch):
    """Answers that are taken in the middle of a post run after the function that posted, not inside of it."""
    monkeypatch.setattr(LocalChannel, "remote", True)
    penstock_client.create_topic("t")
    depths: Counter[int] = Counter()  # by thread
    deepest = posted = 0
    with penstock_client.producer("t") as producer:

        def again(outcome):
            nonlocal deepest, posted
            me = threading.get_ident()
            depths[me] += 1
            deepest = max(deepest, depths[me])
            if posted < 3000:
                posted += 1
                producer.post(bytes(5000), on_done=again)
            depths[me] -= 1

        for _ in range(40):
            producer.post(bytes(5000), on_done=again)
        while posted < 3000:
            producer.flush()
        producer.flush()
    assert deepest == 1


def test_ctrl_c_in_the_middle_of_functions_leaves_the_others_to_be_called(penstock_client, heard):
    penstock_client.create_topic("t")
    with penstock_client.producer("t") as producer:

        def interrupted(outcome):
            heard.append(outcome.offset)
            if outcome.offset == 1:
                raise KeyboardInterrupt

        with producer._driver.lock:
            producer._core.senders[0].trigger = 1 << 20
            for _ in range(4):
                producer.post(b"v", on_done=interrupted)
            with pytest.raises(KeyboardInterrupt):
                producer.flush()
        producer.flush()
    assert heard == [0, 1, 2, 3]


def test_a_record_that_is_interrupted_on_its_way_in_lends_its_function_to_no_other(penstock_client):
    penstock_client.create_topic("t")
    producer = penstock_client.producer("t")
    found: dict[str, int] = {}

    def told(name: str) -> Any:
        return lambda outcome: found.setdefault(name, outcome.offset)

    sure = 0
    for interrupt in interrupts(("clients/producing",), above=5):
        producer._core.senders[0].trigger = 1 << 20
        with interrupt:
            producer.post(b"half", on_done=told(f"half {interrupt.nth}"))
        producer.send_nowait(b"future")
        producer.post(b"whole %d" % interrupt.nth, on_done=told(f"whole {interrupt.nth}"))
        producer.flush()
        sure += 1
    stood = penstock_client.read("t", 0, 0, max_records=10_000)
    for name, offset in found.items():
        assert stood[offset].value == (b"half" if name.startswith("half") else name.encode())
    assert len([name for name in found if name.startswith("whole")]) == sure


def test_a_forked_child_calls_nothing(penstock_broker, heard):
    with penstock_broker.connect() as client:
        client.create_topic("t")
        producer = client.producer("t")
        with producer._driver.lock:
            producer._core.senders[0].trigger = 1 << 20
            producer.post(b"v", on_done=heard.append)
            child = os.fork()
            if not child:
                producer.close()
                os._exit(len(heard))
        assert os.waitpid(child, 0)[1] == 0
        producer.flush()
        assert len(heard) == 1


def test_a_loop_hears_of_its_records_in_order_and_of_what_functions_raise(penstock_broker, heard):
    async def main() -> None:
        reported: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, told: reported.append(told["exception"]))
        async with aio.connect(penstock_broker.url) as client:
            await client.create_topic("t")
            async with client.producer("t") as producer:
                done = asyncio.get_running_loop().create_future()
                for number in range(100):
                    producer.post(b"%d" % number, on_done=lambda outcome: heard.append(outcome.offset))
                producer.post(b"raises", on_done=lambda outcome: 1 / 0)
                producer.post(b"last", on_done=done.set_result)
                assert (await done).offset == 101
            with pytest.raises(Closed):
                producer.post(b"v", on_done=print)
            with pytest.raises(Closed):
                await producer.room()
        assert [type(error) for error in reported] == [ExceptionGroup]

    asyncio.run(main())
    assert heard == list(range(100))


def test_on_a_loop_functions_were_called_when_flush_close_and_the_block_return(penstock_broker, heard):
    def posted(producer: Any) -> None:
        heard.clear()
        for number in range(100):
            producer.post(b"%d" % number, on_done=heard.append)

    async def main() -> None:
        async with aio.connect(penstock_broker.url) as client:
            await client.create_topic("t")
            producer = await client.producer("t")
            posted(producer)
            await producer.flush()
            assert len(heard) == 100
            posted(producer)
            await producer.close()
            assert len(heard) == 100
            async with client.producer("t") as producer:
                posted(producer)
            assert len(heard) == 100
            async with client.transaction() as transaction:
                posted(await transaction.producer("t"))
            assert len(heard) == 100
            posted(await client.producer("t"))
        assert len(heard) == 100

    asyncio.run(main())


def test_on_a_loop_flush_that_fails_has_called_the_functions_of_what_was_settled(penstock_broker, heard):
    async def main() -> None:
        async with aio.connect(penstock_broker.url) as client:
            await client.create_topic("t", max_record_bytes=1000)
            async with client.producer("t") as producer:
                await client.delete_topic("t")
                producer.post(b"v", on_done=heard.append)
                future = await producer.send_nowait(b"v")
                with pytest.raises(UnknownTopic):
                    await producer.flush()
                assert [type(error) for error in heard] == [UnknownTopic]
                assert isinstance(await asyncio.wait_for(_error(future), 10), UnknownTopic)

    asyncio.run(main())


async def _error(future: Any) -> Any:
    try:
        return await future
    except UnknownTopic as error:
        return error


def test_on_a_loop_what_a_function_raises_in_flush_is_reported_and_not_raised(penstock_broker, heard):
    async def main() -> None:
        reported: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, told: reported.append(told["exception"]))

        def cancelled(outcome: Any) -> None:
            raise asyncio.CancelledError

        async with aio.connect(penstock_broker.url) as client:
            await client.create_topic("t", partitions=2)
            async with client.producer("t") as producer:
                producer.post(b"0", on_done=lambda outcome: 1 / 0, partition=0)
                producer.post(b"1", on_done=cancelled, partition=1)
                producer.post(b"2", on_done=heard.append, partition=1)
                await producer.flush()
                assert len(heard) == 1
        assert {type(error) for error in reported} == {ExceptionGroup, asyncio.CancelledError}

    asyncio.run(main())


def test_on_a_loop_a_function_that_posts_is_not_called_inside_of_itself(penstock_broker, heard):
    async def main() -> None:
        async with aio.connect(penstock_broker.url) as client:
            await client.create_topic("t")
            async with client.producer("t") as producer:
                inside = []

                def again(outcome: Any) -> None:
                    assert not inside
                    inside.append(outcome)
                    heard.append(outcome.offset)
                    if len(heard) < 50:
                        producer.post(b"v", on_done=again)
                    inside.clear()

                producer.post(b"v", on_done=again)
                while len(heard) < 50:
                    await producer.flush()

    asyncio.run(main())
    assert heard == list(range(50))


def test_ctrl_c_at_any_moment_of_a_flush_loses_no_function_and_calls_none_twice(penstock_client):
    penstock_client.create_topic("t")
    producer = penstock_client.producer("t")
    for interrupt in interrupts(("clients/producing", "clients/connection", "clients/producer.py"), above=30):
        heard: Counter[int | str] = Counter()
        with producer._driver.lock:  # so that this thread calls them
            producer._core.senders[0].trigger = 1 << 20
            for number in range(3):
                producer.post(b"v", on_done=lambda _, heard=heard, number=number: heard.update([number]))
            future = producer.send_nowait(b"f")
            future.add_done_callback(lambda _, heard=heard: heard.update(["future"]))
            with interrupt:
                producer.flush()
        producer.flush()
        assert heard == {0: 1, 1: 1, 2: 1, "future": 1}, interrupt.nth


def test_a_flush_waits_for_functions_that_another_thread_has_begun_to_call(penstock_client):
    penstock_client.create_topic("t")
    begun, go, order = threading.Event(), threading.Event(), list[str]()
    producer = penstock_client.producer("t")

    def slow(_):
        begun.set()
        go.wait(30)
        producer.flush()  # inside of one, it does not wait for itself
        order.append("called")

    def flush():
        producer.flush()
        order.append("flushed")

    producer.post(b"v", on_done=slow)
    assert begun.wait(30), "the pump calls it"
    with pytest.raises(TimedOut, match="callbacks of them run on in another thread"):
        producer.flush(timeout=0.01)
    flushing = threading.Thread(target=flush)
    flushing.start()
    while flushing.is_alive() and not producer._driver.busy:
        pass
    go.set()
    flushing.join(30)
    assert order == ["called", "flushed"]


def test_a_flush_waits_for_what_was_sent_before_it_and_not_for_what_comes_meanwhile(penstock_client, heard):
    """Without an end, as other threads do."""
    penstock_client.create_topic("t")
    goes_on = [True]

    def again(outcome):
        heard.append(outcome)
        if goes_on:
            producer.post(b"again", on_done=again)

    producer = penstock_client.producer("t")
    producer.post(b"first", on_done=again)
    producer.flush()
    assert heard
    goes_on.clear()
    producer.close()
    assert all(isinstance(outcome, Posted) for outcome in heard)
