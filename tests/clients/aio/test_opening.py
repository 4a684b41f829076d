"""What opens something on a loop is awaited first or used at once, and is a coroutine for everything else."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from penstock import aio
from penstock.clients.errors import InvalidArgument
from penstock.clients.memory_broker import MemoryBroker
from penstock.errors import UnknownTopic

OPENED = ["producer", "consumer", "worker"]


@asynccontextmanager
async def connected() -> AsyncIterator[aio.AsyncClient]:
    with MemoryBroker() as broker:
        async with aio.connect(broker.url) as client:
            await client.create_topic("t")
            yield client


def opening(client: aio.AsyncClient, verb: str):
    return getattr(client, verb)("t", **({"group": "g"} if verb == "worker" else {}))


async def committed(client: aio.AsyncClient) -> dict[int, int]:
    group = await client.group("t", "g")
    return {each.partition: each.cursor for each in group.partitions if each.cursor >= 0}


@pytest.mark.parametrize("verb", OPENED)
def test_what_is_opened_is_entered_at_once_and_closed(verb):
    async def main():
        async with connected() as client:
            async with opening(client, verb) as found:
                assert not found.closed
            assert found.closed

    asyncio.run(main())


@pytest.mark.parametrize("verb", OPENED)
def test_what_is_opened_is_awaited_and_left_open(verb):
    async def main():
        async with connected() as client:
            found = await opening(client, verb)
            assert not found.closed
            async with found as same:
                assert same is found
            assert found.closed

    asyncio.run(main())


def test_both_ways_to_connect():
    async def main(url):
        async with aio.connect(url) as one, await aio.connect(url) as two:
            assert await one.topics() == await two.topics()
        assert one.closed
        assert two.closed

    with MemoryBroker() as broker:
        asyncio.run(main(broker.url))


def test_a_producer_of_a_transaction_is_entered_at_once():
    async def main():
        async with connected() as client:
            async with client.transaction() as transaction, transaction.producer("t") as producer:
                await producer.send(b"together")
            assert [record.value for record in await client.read("t", 0, 0)] == [b"together"]

    asyncio.run(main())


@pytest.mark.parametrize("verb", ["transaction", "staging"])
def test_what_is_begun_without_a_request_is_entered_at_once_or_awaited_first(verb):
    async def main():
        async with connected() as client:
            async with getattr(client, verb)() as found:
                assert not found.closed
            assert found.closed
            found = await getattr(client, verb)()
            assert type(found) is type(getattr(client, verb)())
            async with found as same:
                assert same is found
            assert found.closed

    asyncio.run(main())


def test_a_range_is_iterated_at_once_or_awaited_first():
    async def main():
        async with connected() as client:
            async with client.producer("t") as producer:
                await producer.send_many([b"1", b"2"])
            at_once = [batch.record_count async for batch in client.range("t", 0, 0, 2)]
            awaited = [batch.record_count async for batch in await client.range("t", 0, 0, 2)]
            assert sum(at_once) == sum(awaited) == 2

    asyncio.run(main())


def test_what_is_raised_in_the_block_is_told_to_what_was_opened():
    async def main():
        async with connected() as client, client.producer("t") as producer:
            await producer.send(b"x")
            with pytest.raises(ZeroDivisionError):
                async with client.consumer("t", group="g", auto_commit=60) as consumer:
                    raise ZeroDivisionError(await consumer.fetch())
            assert consumer.closed
            assert await committed(client) == {}, "what fails commits nothing"
            async with client.consumer("t", group="g", auto_commit=60) as consumer:
                await consumer.fetch()
            assert await committed(client) == {0: 1}

    asyncio.run(main())


def test_what_cannot_be_opened_is_raised_either_way():
    async def main():
        async with connected() as client:
            with pytest.raises(UnknownTopic):
                await client.producer("none")
            with pytest.raises(UnknownTopic):
                async with client.producer("none"):
                    pytest.fail("there is nothing to enter")
            with pytest.raises(UnknownTopic):
                await anext(aiter(client.range("none", 0, 0, 1)))
            with pytest.raises(InvalidArgument):
                async with client.producer(b"t"):  # pyright: ignore[reportArgumentType]
                    pytest.fail("there is nothing to enter")

    asyncio.run(main())


def test_an_opening_is_a_coroutine_for_tasks_groups_and_runners():
    async def main():
        async with connected() as client:
            task = asyncio.create_task(client.producer("t"))
            consumer, worker = await asyncio.gather(client.consumer("t"), opening(client, "worker"))
            async with await task as producer, consumer, worker:
                await producer.send(b"x")
            async with await asyncio.wait_for(client.producer("t"), 30) as producer:
                await producer.send(b"y")

    asyncio.run(main())
    with MemoryBroker() as broker:
        assert not asyncio.run(aio.connect(broker.url)).closed


def test_a_task_that_opens_something_can_be_cancelled():
    async def main():
        async with connected() as client:
            task = asyncio.create_task(client.consumer("t"))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())


def test_an_opening_that_is_closed_says_no_more_and_one_that_is_forgotten_says_what_it_was(recwarn):
    gc.collect()  # what other tests have left says so here
    recwarn.clear()

    async def main():
        async with connected() as client:
            client.producer("t").close()
            gc.collect()
            assert [str(each.message) for each in recwarn] == []
            client.consumer("t")
            gc.collect()
            (told,) = [str(each.message) for each in recwarn]
            assert told == "coroutine 'AsyncConsumerClient.consumer' was never awaited"

    asyncio.run(main())
