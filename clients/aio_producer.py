"""The producer for asyncio: as producer.py, awaited.

Contract: everything happens on the loop that connected; `send_nowait` suspends only while the window is full.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from .aio_driver import AsyncDriver
from .bulk import pieces
from .errors import TimedOut
from .pending import Future, Pending
from .producer_core import ProducerCore, Sent
from .quantities import Duration, seconds

if TYPE_CHECKING:
    import pyarrow as pa

PIECES_PER_BREATH = 8
"""After so many pieces of a send_many the loop gets its turn, even when nothing had to be waited for."""


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
        delay: Duration | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        dedup: bytes | None = None,
        timeout: Duration | None = None,
    ) -> int:
        """Send one record and wait until it is committed. Returns what `Producer.send` returns."""
        core = self._core
        task = core.as_task(delay, at, priority, dedup)
        deadline = core.connection.deadline(None if timeout is None else seconds(timeout, "timeout"))
        return await self._driver.run(core.send(value, key, headers, timestamp, partition, task, deadline))

    async def send_nowait(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: int | None = None,
        partition: int | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        dedup: bytes | None = None,
    ) -> AsyncFuture:
        """Send one record; suspends only while the window is full. `await` the future for the offset."""
        core = self._core
        task = None if delay is at is priority is dedup is None else core.as_task(delay, at, priority, dedup)
        if core.jammed is not None:
            await self._driver.run(core.unjam(core.connection.deadline()))
        if core.closed:
            core.check_open()
        if not self._driver.nudged:
            self._driver.nudge()
        future = core.append(value, key, headers, timestamp, partition, task)
        assert isinstance(future, AsyncFuture), "the core makes this producer's kind of future"
        return future

    async def send_many(
        self,
        values: Iterable[bytes] | pa.Table | pa.RecordBatch | pa.Array | pa.ChunkedArray,
        *,
        keys: Iterable[bytes | None] | pa.Array | pa.ChunkedArray | None = None,
        partition: int | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        priority: int | None = None,
    ) -> int:
        """Send many records in large batches, wait until all are committed, return how many."""
        core, run = self._core, self._driver.run
        sent = Sent()
        for number, piece in enumerate(pieces(values, keys, core.shape_of(delay, at, priority), partition), 1):
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


def _not_known_yet(pending: Pending, timeout: float | None) -> None:
    raise TimedOut("the outcome is not known yet: await the future")
