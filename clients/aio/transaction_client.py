"""The verbs of an asyncio client that concern transactions: as client.py, awaited.

Contract: as aio.py of clients, of which this is a part.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...transport.messages import Stage
from ..arguments.quantities import Duration, seconds
from ..producer import wall_us
from ..transactions.staging_core import StagingCore, begin
from ..transactions.verbs import TransactionVerbs, checked_epoch, checked_name, checked_stages
from .staging import AsyncStagedFuture, AsyncStaging, AsyncTransaction

if TYPE_CHECKING:
    from ..connection.opened import Opened
    from .driver import AsyncDriver


class AsyncTransactionClient:
    """The part of `AsyncClient` that concerns transactions."""

    def __init__(self, driver: AsyncDriver, opened: Opened) -> None:
        self._driver = driver
        self._opened = opened
        self._transaction_verbs = TransactionVerbs(driver.connection)

    def transaction(self, id: str | None = None, epoch: int | None = None) -> AsyncTransaction:
        """Records that are published together: an `async with` block that commits. See `Client.transaction`."""
        self._driver.check_open()
        core = begin(self._driver.connection, id, epoch, now_us=wall_us, future=AsyncStagedFuture)
        return self._opened.add(AsyncTransaction(self._driver, core))

    def staging(self) -> AsyncStaging:
        """Records for a transaction that is committed elsewhere. See `Client.staging`."""
        self._driver.check_open()
        core = StagingCore(self._driver.connection, now_us=wall_us, future=AsyncStagedFuture)
        return self._opened.add(AsyncStaging(self._driver, core))

    async def commit_stages(
        self, id: str, epoch: int, stages: Iterable[Stage], timeout: Duration | None = None
    ) -> bool:
        """Publish what was staged, by however many processes: all of it, or nothing. See `Client.commit_stages`."""
        name, number, found = checked_name(id), checked_epoch(epoch), checked_stages(stages)
        return await self._driver.run(self._transaction_verbs.commit(name, number, found, self._until(timeout)))

    async def drop_stages(self, stages: Iterable[Stage], timeout: Duration | None = None) -> None:
        """Have the broker forget what nobody will commit. See `Client.drop_stages`."""
        await self._driver.run(self._transaction_verbs.drop(checked_stages(stages), self._until(timeout)))

    async def transaction_epoch(self, id: str) -> int | None:
        """The last epoch that was committed under a name; None when the broker knows of none."""
        return await self._driver.run(self._transaction_verbs.epoch(checked_name(id), self._until(None)))

    def _until(self, timeout: Duration | None) -> float:
        return self._driver.connection.deadline(None if timeout is None else seconds(timeout, "timeout"))
