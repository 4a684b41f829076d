"""How tasks of a loop send one record without waiting, and many without blocking the loop.

Contract: suspends only while the window is full, or to let the loop run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import datetime
from typing import Any

from ...storage.errors import Error
from ...storage.header_list import GivenHeaders
from ..arguments.quantities import Duration
from ..producing.core import ProducerCore
from ..producing.pending import Posted, not_callable
from ..producing.pieces import Piece
from ..producing.transaction_switch import TransactionSwitch
from ..serializing import Dumping, Sent
from .driver import AsyncDriver
from .futures import AsyncFuture

PIECES_PER_BREATH = 8
"""After so many pieces of a send_many the loop gets its turn, even when nothing had to be waited for."""


class AsyncSending(TransactionSwitch[Sent]):
    """The part of `AsyncProducer` that threads have their own way of."""

    def __init__(self, driver: AsyncDriver, core: ProducerCore, dump: Dumping | None) -> None:
        """Made by `AsyncClient.producer`."""
        super().__init__(core, dump)
        self._driver = driver
        self._lock = driver.lock

    async def send_nowait(
        self,
        value: Sent | None,
        *,
        key: bytes | None = None,
        headers: GivenHeaders | None = None,
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
        given: Any = value if self._dump is None else self._dump(value)
        core = self._sending
        task = None if delay is at is priority is dedup is None else core.as_task(delay, at, priority, dedup)
        if core.jammed is not None:
            await self._driver.run(self._unjam(core))
            core = self._sending
        if core.closed:
            core.check_open()
        if not self._driver.nudged:
            self._driver.nudge()
        return core.append(given, key, headers, timestamp, partition, task)

    def post(
        self,
        value: Sent | None,
        *,
        on_done: Callable[[Posted | Error], object],
        key: bytes | None = None,
        headers: GivenHeaders | None = None,
        timestamp: int | datetime | None = None,
        partition: int | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        dedup: bytes | None = None,
    ) -> None:
        """Send one record without ever waiting, and have a function called with its outcome. Not awaited.

        Args:
            value, key, headers, timestamp, partition, delay, at, priority, dedup: as in `AsyncProducer.send`.
            on_done: called by the loop once for each record that was taken, in the order of the records of a partition,
                with `penstock.Posted` or the error. What it raises goes to the loop's exception handler. `flush`
                and `close` wait for outcomes, and return after the calls; a forked child calls none.

        Raises: WindowFull when the window has no room: the record was not taken; wait with `room`. What is wrong with
        a record is raised here, and `on_done` is not called then.
        """
        given: Any = value if self._dump is None else self._dump(value)
        core = self._sending
        task = None if delay is at is priority is dedup is None else core.as_task(delay, at, priority, dedup)
        if not callable(on_done):
            raise not_callable("on_done", on_done)
        if core.closed or core.jammed is not None:
            core.check_room()
        if not self._driver.nudged:
            self._driver.nudge()
        core.append(given, key, headers, timestamp, partition, task, on_done)


async def in_breaths(cut: Iterable[Piece]) -> AsyncIterator[Piece]:
    """Pieces to be sent, with a turn of the loop now and then."""
    for number, piece in enumerate(cut, 1):
        yield piece
        if not number % PIECES_PER_BREATH:
            await asyncio.sleep(0)
