"""Futures for asyncio: `await` them.

Contract: where the futures of threads block, these raise TimedOut while the outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from ..errors import TimedOut
from ..producing.pending import Future
from ..transactions.staging_producer import NO_OFFSET
from ..working.leases import SettleFuture

NOT_KNOWN = "the outcome is not known yet: await the future"


class AsyncFuture(Future, eq=False, gc=False):
    """The offset of a record that was sent without waiting: `await` it."""

    def __await__(self) -> Generator[Any, None, int]:
        """Wait for the record's offset. Raises what prevented it, or TimedOut."""
        return self._offset().__await__()

    async def _offset(self) -> int:
        if not self._pending.settled:
            owner = self._pending.owner
            await owner.run(owner.settled(self._pending, owner.connection.deadline()))
        return Future.result(self)

    def _wait(self, timeout: float | None) -> None:
        raise TimedOut(NOT_KNOWN)


class AsyncStagedFuture(AsyncFuture, eq=False, gc=False):
    """Of a record that was staged: `await` it, for -1 once it is."""

    def result(self, timeout: float | None = None) -> int:
        """-1 once the record is staged. Raises what prevented it."""
        super().result(timeout)
        return NO_OFFSET

    async def _offset(self) -> int:
        await super()._offset()
        return NO_OFFSET


class AsyncSettleFuture(SettleFuture):
    """What becomes of tasks that were settled without waiting: `await` it."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:
        """Wait until it is committed. Raises what prevented it, or TimedOut."""
        return self._outcome().__await__()

    async def _outcome(self) -> None:
        if not self.done():
            await self._core.run(self._core.settled(self, self._core.connection.deadline()))
        self.raise_error()

    def exception(self, timeout: float | None = None) -> Any:
        """What prevented it, None when it is committed. Raises TimedOut while that is not known: await it."""
        if not self.done():
            raise TimedOut(NOT_KNOWN)
        return super().exception(timeout)
