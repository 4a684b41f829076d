"""The asyncio twin of the client: the same names, awaited.

    async with await penstock.aio.connect("tcp://host:7070") as client:
        async with await client.producer("flights") as producer:
            offset = await producer.send(b"...")
            future = await producer.send_nowait(b"...")     # suspends only while the window is full
            offset = await future
        async with await client.consumer("flights", group="report") as consumer:
            async for record in consumer: ...

Contract: as client.py, on one event loop. Every decision is made by the same code (steps.py).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

from ...storage.record import Record
from ..arguments.checking import checked, checks
from ..arguments.quantities import Duration, Size, Start, seconds, size_bytes
from ..connection.opened import Opened
from ..consuming.core import ConsumerCore
from ..descriptions import Group, Topic, group_of, topic_of
from ..opening import open_connection
from ..producer import wall_us
from ..producing.core import ProducerCore
from ..verbs import Delivery, Verbs, consumer_options
from ..working.options import worker_options
from .consumer import AsyncConsumer
from .driver import AsyncDriver
from .producer import AsyncFuture, AsyncProducer
from .queue_client import AsyncQueueClient
from .range_client import AsyncRangeClient
from .staging import AsyncStaging, AsyncTransaction
from .transaction_client import AsyncTransactionClient
from .worker import AsyncTask, AsyncWorker

__all__ = [
    "AsyncClient", "AsyncConsumer", "AsyncFuture", "AsyncProducer", "AsyncStaging", "AsyncTask", "AsyncTransaction",
    "AsyncWorker", "connect",
]  # fmt: skip


@checked
async def connect(
    url: str, *, timeout: Duration = 30.0, name: str | None = None, delivery: Delivery = "auto"
) -> AsyncClient:
    """As `penstock.connect`."""
    patience = seconds(timeout, "timeout")
    client = AsyncClient(AsyncDriver(open_connection(url, timeout=patience, name=name, clock=time.monotonic)), delivery)
    try:
        await client.ping()
    except BaseException:
        await client.close()
        raise
    return client


@checks
class AsyncClient(AsyncQueueClient, AsyncRangeClient, AsyncTransactionClient):
    """One connection to one broker. Made by `connect`. See `Client`."""

    def __init__(self, driver: AsyncDriver, delivery: Delivery = "auto") -> None:
        self._open = Opened()
        AsyncQueueClient.__init__(self, driver)
        AsyncRangeClient.__init__(self, driver, delivery)
        AsyncTransactionClient.__init__(self, driver, self._open)
        self._connection = driver.connection
        self._verbs = Verbs(driver.connection)

    @property
    def url(self) -> str:
        """What it is connected to."""
        return self._connection.url

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._driver.closed

    async def producer(
        self, topic: str, *, name: str | None = None, codec: str | None = None, window_bytes: Size = "8MB"
    ) -> AsyncProducer:
        """A producer for one topic. See `Client.producer`."""
        self._driver.check_open()
        window = size_bytes(window_bytes, "window_bytes")
        found = await self._driver.run(self._connection.find_topic(topic, self._connection.deadline()))
        core = ProducerCore(
            self._connection,
            found,
            name=name or "",
            window_bytes=window,
            codec=codec,
            now_us=wall_us,
            future=AsyncFuture,
        )
        return self._open.add(AsyncProducer(self._driver, core))

    async def consumer(
        self,
        topic: str,
        *,
        group: str | None = None,
        member: str | None = None,
        start: Start = "earliest",
        positions: Mapping[int, int] | None = None,
        delivery: Delivery | None = None,
        auto_commit: Duration | None = None,
        session_timeout: Duration = 10.0,
        max_processing: Duration = 300.0,
        window_bytes: Size = "4MB",
        window_records: int = 1 << 18,
        verify: bool = True,
    ) -> AsyncConsumer:
        """A consumer of one topic, which has joined when this returns. See `Client.consumer`.

        With delivery="auto" nothing is mapped: an event loop has no thread to sleep until the broker wakes it.
        """
        self._driver.check_open()
        options = consumer_options(
            self._connection, group=group, member=member, start=start, positions=positions,
            delivery=delivery or self._delivery, may_map=False, auto_commit=auto_commit,
            session_timeout=session_timeout, max_processing=max_processing, window_bytes=window_bytes,
            window_records=window_records, verify=verify,
        )  # fmt: skip
        deadline = self._connection.deadline()
        found = await self._driver.run(self._connection.find_topic(topic, deadline))
        core = ConsumerCore(self._connection, found, options)
        consumer = AsyncConsumer(self._driver, core)
        try:
            await self._driver.run(core.joined(deadline))
        except BaseException:
            await consumer.close()
            raise
        return self._open.add(consumer)

    async def worker(
        self,
        topic: str,
        *,
        group: str,
        lease: Duration | None = None,
        prefetch: int = 1,
        lease_records: int = 1,
        start: Start = "earliest",
        name: str | None = None,
        max_bytes: Size = "1MB",
        max_processing: Duration = 300.0,
    ) -> AsyncWorker:
        """A worker of one topic. See `Client.worker`."""
        self._driver.check_open()
        options = worker_options(
            group=group, lease=lease, prefetch=prefetch, lease_records=lease_records, start=start, name=name,
            max_bytes=max_bytes, max_processing=max_processing,
        )  # fmt: skip
        found = await self._driver.run(self._connection.find_topic(topic, self._connection.deadline()))
        return self._open.add(AsyncWorker(self._driver, found, options))

    async def read(
        self, topic: str, partition: int, offset: int, *, max_records: int = 500, wait: Duration = 0.0
    ) -> list[Record]:
        """Records of one partition from `offset` on, without a consumer."""
        return await self._driver.run(self._verbs.read(topic, partition, offset, max_records, wait))

    async def create_topic(self, name: str, *, partitions: int = 1, **settings: Any) -> Topic:
        """Create a topic. See `Client.create_topic`."""
        return topic_of(await self._driver.run(self._verbs.create_topic(name, partitions, settings)))

    async def topics(self) -> list[Topic]:
        """All topics, with their partitions."""
        return [topic_of(found) for found in await self._driver.run(self._verbs.topics([]))]

    async def topic(self, name: str) -> Topic:
        """One topic. Raises UnknownTopic."""
        return topic_of((await self._driver.run(self._verbs.topics([name])))[0])

    async def alter_topic(self, name: str, *, partitions: int | None = None, **settings: Any) -> Topic:
        """Change settings, or grow to `partitions`."""
        return topic_of(await self._driver.run(self._verbs.alter_topic(name, partitions or 0, settings)))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records and groups."""
        await self._driver.run(self._verbs.delete_topic(name))

    async def offsets(self, topic: str, at: Start) -> dict[int, int]:
        """By partition, the first offset appended at or after a time, or an end."""
        return await self._driver.run(self._verbs.offsets(topic, at))

    async def groups(self, topic: str | None = None) -> list[Group]:
        """All groups, or those of one topic."""
        return [group_of(found) for found in await self._driver.run(self._verbs.groups(topic))]

    async def group(self, topic: str, name: str) -> Group:
        """One group. Raises UnknownGroup."""
        return group_of(await self._driver.run(self._verbs.group(topic, name)))

    async def reset_group(self, topic: str, name: str, to: Start | Mapping[int, int]) -> None:
        """Move a group's cursors. Raises GroupActive while it has members."""
        await self._driver.run(self._verbs.reset_group(topic, name, to))

    async def delete_group(self, topic: str, name: str) -> None:
        """Forget a group. Raises GroupActive while it has members."""
        await self._driver.run(self._verbs.delete_group(topic, name))

    async def stats(self) -> dict[str, Any]:
        """Counters and sizes of the broker, by dotted name."""
        return await self._driver.run(self._verbs.stats())

    async def ping(self) -> float:
        """Seconds of one round trip."""
        return await self._driver.run(self._verbs.ping())

    async def close(self) -> None:
        """Close its producers (flushing them), transactions (dropping them) and consumers, then the connection."""
        if self._driver.closed:
            return
        async with AsyncExitStack() as closing:  # each is closed, also when another one has something to say
            closing.callback(self._driver.close)
            closing.callback(self._open.clear)
            for opened in self._open.newest_first():
                closing.push_async_callback(opened.close)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
