"""How tasks of a loop send one record without waiting, and many without blocking the loop.

Contract: suspends only while the window is full, or to let the loop run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime

from ..arguments.quantities import Duration
from ..producing.core import ProducerCore
from ..producing.pieces import Piece
from ..producing.transaction_switch import TransactionSwitch
from .driver import AsyncDriver
from .futures import AsyncFuture

PIECES_PER_BREATH = 8
"""After so many pieces of a send_many the loop gets its turn, even when nothing had to be waited for."""


class AsyncSending(TransactionSwitch):
    """The part of `AsyncProducer` that threads have their own way of."""

    def __init__(self, driver: AsyncDriver, core: ProducerCore) -> None:
        """Made by `AsyncClient.producer`."""
        super().__init__(core)
        self._driver = driver
        self._lock = driver.lock

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
        """Send one record; suspends only while the window is full. `await` the future for the offset.

        Args:
            value, key, headers, timestamp, partition, delay, at, priority, dedup: as in `AsyncProducer.send`.
        """
        core = self._sending
        task = None if delay is at is priority is dedup is None else core.as_task(delay, at, priority, dedup)
        if core.jammed is not None:
            await self._driver.run(self._unjam(core))
            core = self._sending
        if core.closed:
            core.check_open()
        if not self._driver.nudged:
            self._driver.nudge()
        return core.append(value, key, headers, timestamp, partition, task)


async def in_breaths(cut: Iterable[Piece]) -> AsyncIterator[Piece]:
    """Pieces to be sent, with a turn of the loop now and then."""
    for number, piece in enumerate(cut, 1):
        yield piece
        if not number % PIECES_PER_BREATH:
            await asyncio.sleep(0)
