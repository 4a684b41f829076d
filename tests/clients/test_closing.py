"""Closing what another thread or task of the loop waits with: the wait ends at once, whatever time it has left.

The clients here never look by themselves, and brokers in memory have a clock that stands still: a wait that no wake-up
ends would last until the test gives up.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from penstock.clients import connect
from penstock.clients.aio import driver as async_driver
from penstock.clients.aio.client import connect as connect_async
from penstock.clients.connection import driver
from penstock.clients.embedded.local import LocalChannel
from penstock.clients.working import core as working
from penstock.storage.errors import Closed

PATIENCE_S = 60.0
EVER_S = 3600.0


@pytest.fixture(autouse=True)
def no_looking(monkeypatch):
    monkeypatch.setattr(driver, "WAIT_MAX_S", EVER_S)
    monkeypatch.setattr(async_driver, "WAIT_MAX_S", EVER_S)
    monkeypatch.setattr(working, "CLOSE_PATIENCE_S", EVER_S)


@pytest.fixture(params=["mem", "unix", "ipc"])
def url(request, penstock_broker):
    return penstock_broker.url if request.param == "mem" else request.getfixturevalue(request.param)


@pytest.fixture
def client(penstock_broker):
    with connect(penstock_broker.url, timeout=EVER_S) as client:
        yield client


@pytest.fixture
def away(monkeypatch, penstock_broker) -> Callable[[], None]:
    """Call it, and the broker in memory has gone."""

    def go() -> None:
        monkeypatch.setattr(LocalChannel, "connected", False)
        monkeypatch.setattr(LocalChannel, "send", lambda *_: False)
        monkeypatch.setattr(LocalChannel, "receive", lambda *_: None)
        monkeypatch.setattr(LocalChannel, "due", lambda *_: float("inf"))

    return go


class Waiting:
    """A call in a thread of its own, which waits when this is made."""

    def __init__(self, client: Any, call: Callable[[], object]) -> None:
        self.ended: Any = None
        waits, there = client._driver, threading.Event()
        lead, sleep = waits._lead, waits._sleep

        def tell(wait: Callable[..., None], *how: Any) -> None:
            if threading.current_thread() is self._thread:
                there.set()  # with the lock, which is let go once it waits
            wait(*how)

        waits._lead, waits._sleep = (lambda *how: tell(lead, *how)), (lambda *how: tell(sleep, *how))
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()
        assert there.wait(PATIENCE_S)

    def _run(self, call: Callable[[], object]) -> None:
        try:
            self.ended = call()
        except Exception as error:
            self.ended = error

    def result(self) -> Any:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "it still waits"
        return self.ended


def closing(client: Any, opened: Any, what: str) -> None:
    ender = threading.Thread(target=opened.close if what == "it" else client.close, daemon=True)
    ender.start()
    ender.join(PATIENCE_S)
    assert not ender.is_alive(), "closing waits"


def readers(client: Any, topic: str) -> dict[str, Callable[[], tuple[Any, Callable[[], object]]]]:
    def worker(**how: Any) -> Any:
        return client.worker(topic, group="g", **how)

    def of(opened: Any, call: Callable[[Any], object]) -> tuple[Any, Callable[[], object]]:
        return opened, lambda: call(opened)

    return {
        "worker fetch": lambda: of(worker(), lambda it: it.fetch(wait=EVER_S)),
        "worker fetch ahead": lambda: of(worker(prefetch=3), lambda it: it.fetch(wait=EVER_S)),
        "worker ack_and_fetch": lambda: of(worker(), lambda it: it.ack_and_fetch([], wait=EVER_S)),
        "worker loop": lambda: of(worker(), lambda it: list(it)),
        "consumer fetch": lambda: of(client.consumer(topic), lambda it: it.fetch(wait=EVER_S)),
        "consumer of a group": lambda: of(client.consumer(topic, group="s"), lambda it: it.fetch(wait=EVER_S)),
        "consumer loop": lambda: of(client.consumer(topic), lambda it: list(it)),
        "consumer batches": lambda: of(client.consumer(topic), lambda it: list(it.batches())),
    }


WAITS = list(readers(None, ""))


@pytest.mark.parametrize("what", ["it", "the client"])
@pytest.mark.parametrize("verb", WAITS)
def test_closing_ends_a_wait_in_another_thread(url, topic, verb, what):
    with connect(url, timeout=EVER_S) as client:
        client.create_topic(topic)
        opened, call = readers(client, topic)[verb]()
        waiting = Waiting(client, call)
        closing(client, opened, what)
        ended = waiting.result()
        assert ended == [] if verb.endswith(("loop", "batches")) else isinstance(ended, Closed)


@pytest.mark.parametrize("what", ["it", "the client"])
@pytest.mark.parametrize("verb", WAITS)
def test_closing_ends_a_wait_while_the_broker_is_away(client, away, topic, verb, what):
    client.create_topic(topic)
    opened, call = readers(client, topic)[verb]()
    waiting = Waiting(client, call)
    away()
    closing(client, opened, what)
    ended = waiting.result()
    assert ended == [] if verb.endswith(("loop", "batches")) else isinstance(ended, Closed)


@pytest.mark.parametrize("ask", ["flush", "result"])
def test_a_producer_that_gives_up_ends_what_waits_for_its_records(client, away, topic, ask):
    client.create_topic(topic)
    producer = client.producer(topic)
    away()
    future = producer.send_nowait(b"x")
    waiting = Waiting(client, producer.flush if ask == "flush" else future.result)
    with client._driver.lock:
        client._connection.timeout = 0.0  # of closing, which flushes
    with pytest.raises(TimeoutError):
        producer.close()
    assert isinstance(waiting.result(), Closed)


def test_all_that_a_client_closes_has_one_timeout_together(client, away, topic):
    client.create_topic(topic)
    producers = [client.producer(topic) for _ in range(20)]
    client._connection.timeout = 0.2
    away()
    for producer in producers:
        producer.send_nowait(b"x")
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        client.close()
    assert time.monotonic() - begun < len(producers) * 0.2 / 2
    assert client.closed
    assert all(producer.closed for producer in producers)


@pytest.mark.parametrize("how", ["ack", "flush", "result"])
def test_a_worker_that_gives_up_ends_what_waits_for_its_outcomes(client, away, topic, monkeypatch, how):
    monkeypatch.setattr(working, "CLOSE_PATIENCE_S", 0.0)
    client.create_topic(topic)
    client.producer(topic).send(b"x")
    worker = client.worker(topic, group="g")
    (task,) = worker.fetch()
    away()
    future = None if how == "ack" else worker.ack_nowait(task)
    calls = {"ack": task.ack, "flush": worker.flush, "result": future.result if future else None}
    waiting = Waiting(client, calls[how])
    with pytest.raises(TimeoutError):
        worker.close()
    assert isinstance(waiting.result(), Closed)
    assert not worker._core.settling.unconfirmed


def test_a_worker_that_is_closed_right_after_a_lost_connection_leaves_no_lease(unix, topic):
    """One that lasted for a moment is made anew after a pause: until then there is none to release a lease over."""
    with connect(unix) as client, connect(unix) as other:
        client.create_topic(topic)
        client.producer(topic).send_many([b"x"] * 3)
        worker = client.worker(topic, group="g")
        assert len(worker.fetch(3, wait=EVER_S)) == 3
        with client._driver.lock:
            channel = client._connection.channel
            channel._socket._made_at = client._connection.clock()
            channel.break_off()
            while channel.connected:
                channel.receive()
        worker.close()
        assert other.queue(topic, "g").in_flight == 0


def test_what_is_closed_leaves_no_request_at_the_broker(penstock_broker, topic):
    with connect(penstock_broker.url) as client:
        client.create_topic(topic)
        worker = client.worker(topic, group="g", prefetch=3)
        assert worker.fetch(wait=0) == []
        worker.close()
        client.producer(topic).send(b"for another worker")
        assert client.queue(topic, "g").ready == 1
        client.delete_queue(topic, "g")


# -- on a loop ----------------------------------------------------------------------------------------------


def async_readers(client: Any, topic: str) -> dict[str, Any]:
    async def loop(opened: Any) -> list[object]:
        return [each async for each in opened]

    return {
        "worker fetch": (lambda: client.worker(topic, group="g"), lambda it: it.fetch(wait=EVER_S)),
        "worker loop": (lambda: client.worker(topic, group="g"), loop),
        "consumer fetch": (lambda: client.consumer(topic), lambda it: it.fetch(wait=EVER_S)),
        "consumer loop": (lambda: client.consumer(topic), loop),
    }


@pytest.mark.parametrize("is_away", [False, True], ids=["there", "away"])
@pytest.mark.parametrize("what", ["it", "the client"])
@pytest.mark.parametrize("verb", list(async_readers(None, "")))
def test_closing_ends_a_wait_in_another_task(penstock_broker, away, topic, verb, what, is_away):
    async def main() -> Any:
        client = await connect_async(penstock_broker.url, timeout=EVER_S)
        await client.create_topic(topic)
        make, call = async_readers(client, topic)[verb]
        opened = await make()
        waiting = asyncio.ensure_future(call(opened))
        while not (client._driver._waiters or client._driver._expected):
            await asyncio.sleep(0)
        if is_away:
            away()
        await asyncio.wait_for((opened if what == "it" else client).close(), PATIENCE_S)
        (ended,) = await asyncio.wait_for(asyncio.gather(waiting, return_exceptions=True), PATIENCE_S)
        await client.close()
        return ended

    ended = asyncio.run(main())
    assert ended == [] if verb.endswith("loop") else isinstance(ended, Closed)


def test_a_task_that_takes_the_answer_of_another_wakes_it(penstock_broker, topic):
    """What arrives while one task sends a piece is told to those that wait, without another turn of the loop."""

    async def main() -> None:
        client = await connect_async(penstock_broker.url, timeout=EVER_S)
        await client.create_topic(topic)
        async with client.consumer(topic) as consumer, client.producer(topic) as producer:
            client._driver._loop.remove_reader(client._connection.channel.fileno())
            reading = asyncio.ensure_future(consumer.fetch(wait=EVER_S))
            while not client._driver._waiters:
                await asyncio.sleep(0)
            await producer.send_many([b"x"])
            assert [record.value for record in await asyncio.wait_for(reading, PATIENCE_S)] == [b"x"]
            client._driver._loop.add_reader(client._connection.channel.fileno(), client._driver._turn)
        await client.close()

    asyncio.run(main())
