"""The producer for asyncio: as producer.py, awaited.

Contract: everything happens on the loop that connected; `send_nowait` suspends only while the window is full.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ...storage.errors import Closed
from ..arguments.checking import checks
from ..arguments.quantities import Duration, seconds
from ..connection.steps import Steps
from ..errors import InvalidArgument, TimedOut
from ..producer import wall_us
from ..producing.arrow_data import ArrowData
from ..producing.bulk import pieces
from ..producing.core import ProducerCore, Sent
from ..producing.pending import Future, Pending
from ..producing.pieces import Piece
from .driver import AsyncDriver

if TYPE_CHECKING:
    from .staging import AsyncTransaction

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


@checks
class AsyncProducer:
    """Sends records to one topic. Leaving its `async with` block flushes. See `Producer`."""

    def __init__(self, driver: AsyncDriver, core: ProducerCore) -> None:
        """Made by `AsyncClient.producer`."""
        self._driver = driver
        self._core = core
        self._sending = core  # or the core of the transaction that stages what is sent now
        self._adopt(core)

    def _adopt(self, core: ProducerCore) -> None:
        """Wait for its answers as tasks do."""
        core.wait = _not_known_yet
        core.wait_async = lambda pending: self._settled(core, pending)

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._core.topic.name

    @property
    def partitions(self) -> int:
        """How many partitions it spreads records over."""
        return len(self._core.senders)

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
        timestamp: int | datetime | None = None,
        partition: int | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        dedup: bytes | None = None,
        timeout: Duration | None = None,
    ) -> int:
        """Send one record and wait until it is committed. Returns what `Producer.send` returns."""
        core = self._sending
        task = core.as_task(delay, at, priority, dedup)
        deadline = core.connection.deadline(None if timeout is None else seconds(timeout, "timeout"))
        return await self._driver.run(self._send(value, key, headers, timestamp, partition, task, deadline))

    async def send_nowait(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: int | datetime | None = None,
        partition: int | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        dedup: bytes | None = None,
    ) -> AsyncFuture:
        """Send one record; suspends only while the window is full. `await` the future for the offset."""
        core = self._sending
        task = None if delay is at is priority is dedup is None else core.as_task(delay, at, priority, dedup)
        if core.jammed is not None:
            await self._driver.run(self._unjam(core))
            core = self._sending
        if core.closed:
            core.check_open()
        if not self._driver.nudged:
            self._driver.nudge()
        future = core.append(value, key, headers, timestamp, partition, task)
        assert isinstance(future, AsyncFuture), "the core makes this producer's kind of future"
        return future

    async def send_many(
        self,
        values: Iterable[bytes | ArrowData] | ArrowData,
        *,
        keys: Iterable[bytes | None] | ArrowData | None = None,
        partition: int | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        priority: int | None = None,
    ) -> int:
        """Send many records in large batches, wait for their commit, return how many. See `Producer.send_many`."""
        core = self._sending
        sent = Sent()
        await self._send_pieces(core, pieces(values, keys, core.shape_of(delay, at, priority), partition), sent.add)
        await self._driver.run(core.finish(sent.waiting))
        return sent.count

    async def send_many_nowait(
        self,
        values: Iterable[bytes | ArrowData] | ArrowData,
        *,
        keys: Iterable[bytes | None] | ArrowData | None = None,
        partition: int | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        priority: int | None = None,
    ) -> int:
        """As `send_many`, without waiting for commits; `flush` says what became of them."""
        core, sent = self._sending, []
        cut = pieces(values, keys, core.shape_of(delay, at, priority), partition)
        await self._send_pieces(core, cut, lambda pending: sent.append(pending.count))
        return sum(sent)

    async def _send_pieces(self, core: ProducerCore, cut: Iterable[Piece], taken: Callable[[Pending], object]) -> None:
        """Put pieces on their way; `taken` is told of each."""
        for number, piece in enumerate(cut, 1):
            taken(await self._driver.run(core.send_piece(piece, core.connection.deadline())))
            if not number % PIECES_PER_BREATH:
                await asyncio.sleep(0)

    @asynccontextmanager
    async def transaction(self, id: str | None = None, epoch: int | None = None) -> AsyncIterator[AsyncTransaction]:
        """Stage what this producer sends within an `async with` block. See `Producer.transaction`."""
        from ..transactions.staging_core import begin
        from .staging import AsyncStagedFuture, AsyncTransaction

        own = self._core
        own.check_open()
        core = begin(own.connection, id, epoch, now_us=wall_us, future=AsyncStagedFuture)
        staging = core.new_producer(own.topic, codec=own.codec.name.lower(), window_bytes=own.window_bytes)
        self._adopt(staging)
        async with AsyncTransaction(self._driver, core) as transaction:
            if self._sending is not own:
                raise InvalidArgument(f"this producer of topic {own.topic.name} is in a transaction already")
            self._sending = staging
            try:
                yield transaction
            finally:
                self._sending = own

    async def flush(self, timeout: Duration | None = None) -> None:
        """Wait until everything sent is committed. Raises the first error that no future was asked about."""
        deadline = self._core.connection.deadline(None if timeout is None else seconds(timeout, "timeout"))
        self._core.check_open()
        for core in {self._core: None, self._sending: None}:
            await self._driver.run(core.flush(deadline))

    async def next_sequence(self, partition: int = 0) -> int:
        """How many records this (named) producer has sent to a partition, over all its lives."""
        return await self._driver.run(self._core.next_sequence(partition, self._core.connection.deadline()))

    def _send(self, *record: Any) -> Steps[int]:
        """Send it through the core that is sending when there is room."""
        if self._sending.jammed is not None:
            yield from self._unjam(self._sending)
        return (yield from self._sending.send(*record))

    def _unjam(self, core: ProducerCore) -> Steps[None]:
        """Wait for room, unless the transaction ends meanwhile: what is sent next then goes elsewhere."""
        try:
            yield from core.unjam(core.connection.deadline())
        except Closed:
            if core is self._sending:
                raise

    async def _settled(self, core: ProducerCore, pending: Pending) -> None:
        """What futures do when they are awaited."""
        await self._driver.run(core.settled(pending, core.connection.deadline()))

    async def close(self) -> None:
        """Flush and close. Repeating it does nothing."""
        if not self._core.closed and not self._driver.closed:
            await self._driver.run(self._core.close(self._core.connection.deadline()))

    async def __aenter__(self) -> AsyncProducer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _not_known_yet(pending: Pending, timeout: float | None) -> None:
    raise TimedOut("the outcome is not known yet: await the future")
