"""One timer of the loop serves all deadlines and all tries."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from penstock import aio
from penstock.clients import TimedOut
from penstock.clients.aio import driver as aio_driver
from penstock.clients.connection import connection
from penstock.clients.embedded.local import LocalChannel
from penstock.clients.memory_broker import MemoryBroker
from penstock.clients.producing import partition_sender as sender
from penstock.clients.reading.mapped import MappedSource
from penstock.transport.messages import Produced


@pytest.fixture
def silent(monkeypatch):
    """`silent(n)`: the first n answers to batches are lost; waits are short."""
    put, seen = LocalChannel.put, []

    def lose(count: int) -> None:
        def selective(channel, message, payload):
            if type(message) is Produced:
                seen.append(message)
                if len(seen) <= count:
                    return True
            return put(channel, message, payload)

        monkeypatch.setattr(LocalChannel, "put", selective)

    for module, name in ((aio_driver, "WAIT_MAX_S"), (connection, "LOOK_PERIOD_S"), (sender, "PATIENCE_S")):
        monkeypatch.setattr(module, name, 0.01)
    return lose


def sent(*values: bytes, timeout: float) -> list[int]:
    async def send() -> list[int]:
        with MemoryBroker() as broker:
            async with await aio.connect(broker.url, timeout=timeout) as client:
                await client.create_topic("t")
                async with await client.producer("t") as producer:
                    return [await producer.send(value) for value in values]

    return asyncio.run(send())


def test_a_deadline_beyond_the_timer_is_kept_by_it(silent, monkeypatch):
    monkeypatch.setattr(sender, "PATIENCE_S", 1000.0)
    silent(1)
    with pytest.raises(TimedOut, match=r"\(batches: 1\) are on their way"):
        sent(b"x", timeout=0.3)


def test_the_timer_sends_again_what_was_not_answered(silent):
    silent(2)
    assert sent(b"a", b"b", timeout=60) == [0, 1]


def test_mapped_readers_that_sleep_leave_the_loops_own_threads_to_the_application(unix, topic, monkeypatch):
    really, ran = MappedSource.sleep, threading.Event()

    async def look() -> None:
        loop, asleep = asyncio.get_running_loop(), asyncio.Event()
        loop.set_default_executor(ThreadPoolExecutor(1))

        def until_it_ran(source: MappedSource, seconds: float) -> None:
            loop.call_soon_threadsafe(asleep.set)
            assert ran.wait(10), "the application's thread was taken"
            really(source, seconds)

        monkeypatch.setattr(MappedSource, "sleep", until_it_ran)
        async with await aio.connect(unix, timeout=60) as client:
            await client.create_topic(topic)
            async with await client.consumer(topic, delivery="mapped") as consumer, await client.producer(topic) as to:
                fetching = asyncio.create_task(consumer.fetch(wait=60))
                await asleep.wait()
                await asyncio.wait_for(asyncio.to_thread(ran.set), 5)
                await to.send(b"x")
                assert [record.value for record in await fetching] == [b"x"]

    asyncio.run(look())


def test_a_second_close_finishes_what_an_interrupted_one_began(monkeypatch):
    def interrupt() -> None:
        raise KeyboardInterrupt

    async def close_thrice() -> int:
        with MemoryBroker() as broker:
            client = await aio.connect(broker.url)
            driver = client._driver
            channel, closed = driver.connection.channel, list[None]()
            close = channel.close
            for place, name in ((driver, "_tell_all"), (channel, "close")):
                with monkeypatch.context() as patch:
                    patch.setattr(place, name, interrupt)
                    with pytest.raises(KeyboardInterrupt):
                        driver.close()
            assert client.closed
            monkeypatch.setattr(channel, "close", lambda: (closed.append(None), close()))
            await client.close()
            return len(closed)

    assert asyncio.run(close_thrice()) == 1
