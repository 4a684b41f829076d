"""Staging and transactions for asyncio: as staging.py, awaited."""

from __future__ import annotations

from typing import Self

from ...transport.messages import Stage
from ..arguments.checking import checks
from ..arguments.quantities import Duration, Size, seconds, size_bytes
from ..transactions.staging_core import StagingCore, TransactionCore
from ..transactions.staging_producer import NO_OFFSET
from . import producer as aio_producer
from .driver import AsyncDriver
from .producer import AsyncFuture, AsyncProducer


class AsyncStagedFuture(AsyncFuture, eq=False, gc=False):
    """Of a record that was staged: `await` it, for -1 once it is."""

    def result(self, timeout: float | None = None) -> int:
        """-1 once the record is staged. Raises what prevented it."""
        super().result(timeout)
        return NO_OFFSET

    async def _offset(self) -> int:
        await super()._offset()
        return NO_OFFSET


@checks
class AsyncStaging:
    """Records that nobody reads until somebody commits their stages. See `Staging`."""

    def __init__(self, driver: AsyncDriver, core: StagingCore) -> None:
        """Made by `AsyncClient.staging`."""
        self._driver = driver
        self._core = core

    @property
    def closed(self) -> bool:
        """Whether nothing more can be staged."""
        return bool(self._core.ended) or self._driver.closed

    async def producer(self, topic: str, *, codec: str | None = None, window_bytes: Size = "8MB") -> AsyncProducer:
        """A producer of one topic whose records are staged. See `Staging.producer`."""
        self._core.check_open()
        window, connection = size_bytes(window_bytes, "window_bytes"), self._driver.connection
        found = await self._driver.run(connection.find_topic(topic, connection.deadline()))
        return AsyncProducer(self._driver, self._core.new_producer(found, codec=codec, window_bytes=window))

    async def stages(self, timeout: Duration | None = None) -> list[Stage]:
        """What was staged, for `commit_stages` of any process: waits until all of it is durable."""
        return await self._driver.run(self._core.stages(self._deadline(timeout)))

    async def drop(self, timeout: Duration | None = None) -> None:
        """End, and have the broker forget what was staged. Repeating it does nothing."""
        await self._driver.run(self._core.drop(self._deadline(timeout)))

    async def close(self) -> None:
        """Flush and end; what was staged waits for whoever commits it. Repeating it does nothing."""
        if not self.closed:
            await self._driver.run(self._core.close(self._deadline(None)))

    def _deadline(self, timeout: Duration | None) -> float:
        return self._core.connection.deadline(None if timeout is None else seconds(timeout, "timeout"))

    async def _give_up(self) -> None:
        if not self._driver.closed:
            await self._driver.run(self._core.give_up())

    async def __aenter__(self) -> Self:
        self._core.check_open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            await self.close()
        else:
            await self._give_up()


@checks
class AsyncTransaction(AsyncStaging):
    """Records that are published together, or not at all. See `Transaction`."""

    def __init__(self, driver: AsyncDriver, core: TransactionCore) -> None:
        """Made by `AsyncClient.transaction`."""
        super().__init__(driver, core)
        self._transaction = core

    @property
    def id(self) -> str:
        """Its name, made up where none was given."""
        return self._transaction.name

    @property
    def epoch(self) -> int:
        """Its number under that name."""
        return self._transaction.epoch

    async def commit(self, timeout: Duration | None = None) -> bool:
        """Publish everything that was sent, and wait until it can be read. See `Transaction.commit`."""
        return await self._driver.run(self._transaction.commit(self._deadline(timeout)))

    async def close(self) -> None:
        """End without a commit: drop what was staged, unless a commit was begun. Repeating it does nothing."""
        if not self.closed:
            await self._give_up()

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None:
            await self._give_up()
        elif not self._core.ended:
            await self.commit()


# As in staging.py.
setattr(aio_producer, AsyncTransaction.__name__, AsyncTransaction)
