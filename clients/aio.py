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

import asyncio
import time
from collections.abc import AsyncIterator, Generator, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from ..storage.errors import Closed
from ..storage.record import Record
from .aio_driver import AsyncDriver
from .bulk import pieces
from .columnar import Columns, Format, converter
from .consumer_core import ConsumerCore
from .descriptions import Group, Topic, group_of, topic_of
from .errors import TimedOut
from .opening import open_connection
from .pending import Future, Pending
from .producer import wall_us
from .producer_core import ProducerCore, Sent
from .quantities import Duration, Size, Start, seconds, size_bytes, start_time
from .steps import FOREVER
from .verbs import Delivery, Verbs, consumer_options

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["AsyncClient", "AsyncConsumer", "AsyncFuture", "AsyncProducer", "connect"]

PIECES_PER_BREATH = 8
"""After so many pieces of a send_many the loop gets its turn, even when nothing had to be waited for."""


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


class AsyncFuture(Future, eq=False, gc=False):
    """The offset of a record that was sent without waiting: `await` it."""

    def __await__(self) -> Generator[Any, None, int]:
        """Wait for the record's offset. Raises what prevented it, or TimedOut."""
        return self._offset().__await__()

    async def _offset(self) -> int:
        if not self._pending.settled:
            await self._pending.owner.wait_async(self._pending)
        return Future.result(self)


class AsyncProducer:
    """Sends records to one topic. Leaving its `async with` block flushes. See `Producer`."""

    def __init__(self, driver: AsyncDriver, core: ProducerCore) -> None:
        """Made by `AsyncClient.producer`."""
        self._driver = driver
        self._core = core
        core.wait = _not_known_yet
        core.wait_async = self._settled

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._core.topic.name

    @property
    def partitions(self) -> int:
        """How many partitions it spreads records over."""
        return len(self._core.lanes)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._core.closed

    async def send(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: int | None = None,
        partition: int | None = None,
        timeout: Duration | None = None,
    ) -> int:
        """Send one record and wait until it is committed; returns its offset."""
        core = self._core
        deadline = core.connection.deadline(None if timeout is None else seconds(timeout, "timeout"))
        return await self._driver.run(core.send(value, key, headers, timestamp, partition, deadline))

    async def send_nowait(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> AsyncFuture:
        """Send one record; suspends only while the window is full. `await` the future for the offset."""
        core = self._core
        if core.jammed is not None:
            await self._driver.run(core.unjam(core.connection.deadline()))
        if core.closed:
            core.check_open()
        if not self._driver.nudged:
            self._driver.nudge()
        future = core.append(value, key, headers, timestamp, partition)
        assert isinstance(future, AsyncFuture), "the core makes this producer's kind of future"
        return future

    async def send_many(
        self,
        values: Iterable[bytes] | pa.Table | pa.RecordBatch | pa.Array | pa.ChunkedArray,
        *,
        keys: Iterable[bytes | None] | pa.Array | pa.ChunkedArray | None = None,
        partition: int | None = None,
    ) -> int:
        """Send many records in large batches, wait until all are committed, return how many."""
        core, run = self._core, self._driver.run
        sent = Sent()
        for number, piece in enumerate(pieces(values, keys, core.shape, partition), 1):
            sent.add(await run(core.send_piece(piece, core.connection.deadline())))
            if not number % PIECES_PER_BREATH:
                await asyncio.sleep(0)
        await run(core.finish(sent.waiting))
        return sent.count

    async def flush(self, timeout: Duration | None = None) -> None:
        """Wait until everything sent is committed. Raises the first error that no future was asked about."""
        core = self._core
        core.check_open()
        limit = core.connection.deadline(None if timeout is None else seconds(timeout, "timeout"))
        await self._driver.run(core.flush(limit))

    async def next_sequence(self, partition: int = 0) -> int:
        """How many records this (named) producer has sent to a partition, over all its lives."""
        return await self._driver.run(self._core.next_sequence(partition, self._core.connection.deadline()))

    async def _settled(self, pending: Pending) -> None:
        """What futures do when they are awaited."""
        await self._driver.run(self._core.settled(pending, self._core.connection.deadline()))

    async def close(self) -> None:
        """Flush and close. Repeating it does nothing."""
        if not self._core.closed and not self._driver.ended:
            await self._driver.run(self._core.close(self._core.connection.deadline()))

    async def __aenter__(self) -> AsyncProducer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncConsumer:
    """Reads one topic. See `Consumer`."""

    def __init__(self, driver: AsyncDriver, core: ConsumerCore) -> None:
        """Made by `AsyncClient.consumer`."""
        self._driver = driver
        self._core = core

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._core.topic.name

    @property
    def group(self) -> str | None:
        """The group's name, None for a consumer that reads alone."""
        return self._core.options.group or None

    @property
    def member(self) -> str:
        """This consumer's name within its group."""
        return self._core.options.member

    @property
    def delivery(self) -> str:
        """How records travel now: push, control or mapped."""
        return self._core.life.delivery

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._core.closed

    async def __aiter__(self) -> AsyncIterator[Record]:
        """Every record, waiting for those to come; ends when the consumer is closed by another task."""
        core, run = self._core, self._driver.run
        core.check_open()
        while True:
            try:
                found = await run(core.next_list(FOREVER, one_by_one=True))
            except Closed:
                return
            assert found is not None, "a wait without a deadline ends with records"
            for record in found.iterator:
                yield record

    async def fetch(self, max_records: int = 500, wait: Duration = 1.0) -> list[Record]:
        """At most `max_records` records: at once what is there, else the first within `wait` seconds, or []."""
        core = self._core
        deadline = core.connection.clock() + seconds(wait, "wait")
        return await self._driver.run(core.fetch(max_records, deadline))

    @overload
    def batches(
        self, format: Literal["records"] = "records", *, wait: Duration | None = None
    ) -> AsyncIterator[list[Record]]: ...
    @overload
    def batches(self, format: Literal["arrow"], *, wait: Duration | None = None) -> AsyncIterator[pa.RecordBatch]: ...
    @overload
    def batches(self, format: Literal["numpy"], *, wait: Duration | None = None) -> AsyncIterator[Columns]: ...

    def batches(self, format: Format = "records", *, wait: Duration | None = None) -> AsyncIterator[Any]:
        """Batches as they are stored. `wait`: end after so many seconds without a record."""
        self._core.check_open()
        return self._batches(converter(format), None if wait is None else seconds(wait, "wait"))

    async def _batches(self, convert: Any, patience: float | None) -> AsyncIterator[Any]:
        core, run, topic = self._core, self._driver.run, self._core.topic.name
        while True:
            deadline = FOREVER if patience is None else core.connection.clock() + patience
            try:
                found = await run(core.next_batch(deadline))
            except Closed:
                return
            if found is None:
                return
            yield convert(*found, topic)

    async def commit(self, positions: Mapping[int, int] | None = None) -> None:
        """Commit the group's cursor, at the topic's level: all handed out so far, or next offsets by partition."""
        core = self._core
        core.check_open()
        await self._driver.run(core.commit(positions, core.connection.deadline()))

    async def seek(self, to: int | datetime | Literal["earliest", "latest"], *, partition: int | None = None) -> None:
        """Go on elsewhere: an offset (of one partition), a time, or an end."""
        core = self._core
        core.check_open()
        is_time = not isinstance(to, int)
        place = start_time(to, "to") if is_time else to
        await self._driver.run(core.seek(place, is_time, partition, core.connection.deadline()))

    @property
    def position(self) -> dict[int, int]:
        """The next offset to be handed out, by partition."""
        return self._core.positions()

    @property
    def assignment(self) -> list[int]:
        """The partitions this consumer reads now."""
        return list(self.position)

    async def lags(self) -> dict[int, int]:
        """Records still to be handed out, by partition, as the broker has it now."""
        core = self._core
        core.check_open()
        return await self._driver.run(core.lag(core.connection.deadline()))

    async def lag(self) -> int:
        """Records still to be handed out, over the partitions of this consumer."""
        return sum((await self.lags()).values())

    async def close(self) -> None:
        """Commit when that is automatic, and leave the group. Repeating it does nothing."""
        await self._close(failed=False)

    async def _close(self, *, failed: bool) -> None:
        if not self._core.closed and not self._driver.ended:
            await self._driver.run(self._core.close(self._core.connection.deadline(), failed=failed))

    async def __aenter__(self) -> AsyncConsumer:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self._close(failed=kind is not None)


T = TypeVar("T", AsyncProducer, AsyncConsumer)


class AsyncClient:
    """One connection to one broker. Made by `connect`. See `Client`."""

    def __init__(self, driver: AsyncDriver, delivery: Delivery = "auto") -> None:
        self._driver = driver
        self._connection = driver.connection
        self._verbs = Verbs(driver.connection)
        self._delivery: Delivery = delivery
        self._open: dict[AsyncProducer | AsyncConsumer, None] = {}

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
        producer = AsyncProducer(self._driver, core)
        return self._remember(producer)

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
        return self._remember(consumer)

    def _remember(self, opened: T) -> T:
        """To be closed with the client, unless it is closed before."""
        self._open = {other: None for other in self._open if not other.closed} | {opened: None}
        return opened

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
        """Close its producers (flushing them) and consumers, then the connection. Repeating it does nothing."""
        if self._driver.ended:
            return
        try:
            for opened in list(self._open):
                await opened.close()
        finally:
            self._open.clear()
            self._driver.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _not_known_yet(pending: Pending, timeout: float | None) -> None:
    raise TimedOut("the outcome is not known yet: await the future")
