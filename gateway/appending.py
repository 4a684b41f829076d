"""Appends records for connections, without a future for each.

Idea: all connections of one principal that write to a topic share a producer, so their records gather in one batch. A
record is known by its `SharedBatch` and its place there; when the batch is settled, each connection that has records in
it is told once.

Contract: `append` never waits, and raises for a record that the topic would refuse. While `jammed`, the caller must not
append, but wait with `room`. This module alone knows how the client's producer works.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, cast

from ..clients.aio.driver import AsyncDriver
from ..clients.producing.core import ProducerCore
from ..clients.producing.pending import Pending
from ..storage.errors import Error
from ..transport.messages import Topic

WINDOW_BYTES = 8 << 20
"""On its way to one partition before connections that write there wait."""


class Told(Protocol):
    """A connection that waits for its records."""

    def settled(self) -> None:
        """Handle that some batch with records of it is settled."""
        ...


class SharedBatch:
    """Records that become one batch, and the connections that have some of them."""

    __slots__ = ("pending", "settled", "tellers")

    def __init__(self, pending: Pending) -> None:
        self.pending = pending
        self.tellers: dict[Told, None] = {}
        self.settled = False

    def place(self, index: int) -> tuple[int, int]:
        """Once `settled`: when a record was appended, in milliseconds, and its offset. Raises what prevented it."""
        pending = self.pending
        if pending.parts is not None:
            pending, index = pending.place_of(index)
        if pending.error is not None:
            raise pending.error.with_traceback(None)
        return pending.time_us // 1000, pending.offset + index


class Appender:
    """The records of one principal for one topic. See the module."""

    def __init__(self, driver: AsyncDriver, topic: Topic, refused: Callable[[Error], None]) -> None:
        """`refused` gets the error of each batch that could not be appended."""
        self._driver = driver
        self._refused = refused
        self._open: dict[int, SharedBatch] = {}  # what records go to now, by partition
        self._core = ProducerCore(
            driver, topic, name="", window_bytes=WINDOW_BYTES, codec=None,
            now_us=driver.connection.channel.now_us, future=cast("Any", _place),
        )  # fmt: skip
        self._unjamming: asyncio.Task[None] | None = None

    @property
    def jammed(self) -> bool:
        """Whether the window is full."""
        return self._core.jammed is not None

    @property
    def idle(self) -> bool:
        """Whether nothing is on its way."""
        return all(sender.is_empty for sender in self._core.senders)

    def append(
        self, value: bytes, key: bytes | None, headers: dict[str, bytes] | None, partition: int, teller: Told
    ) -> tuple[SharedBatch, int]:
        """Take one record; `teller` hears when it is settled. Returns its batch, and its number there.

        Raises RecordTooLarge, InvalidBatch, InvalidArgument.
        """
        pending, index = self._core.append(value, key, headers, None, partition)
        batch = self._open.get(partition)
        if batch is None or batch.pending is not pending:
            batch = self._begun(pending, partition)
        batch.tellers[teller] = None
        if not self._driver.nudged:
            self._driver.nudge()
        return batch, index

    def _begun(self, pending: Pending, partition: int) -> SharedBatch:
        batch = self._open[partition] = SharedBatch(pending)
        if not self._core.call_when_settled(pending, lambda: self._settle(batch)):
            self._settle(batch)
        return batch

    def _settle(self, batch: SharedBatch) -> None:
        pending = batch.pending
        if self._open.get(pending.partition) is batch:
            del self._open[pending.partition]
        batch.settled = True
        failed, self._core.failed = self._core.failed, []  # every connection answers its own
        for each in failed:
            assert each.error is not None, "it failed"
            self._refused(each.error)
        for teller in batch.tellers:
            teller.settled()

    async def room(self) -> None:
        """Wait until the window has room. Raises what keeps the producer from going on."""
        if self._unjamming is None:
            self._unjamming = asyncio.ensure_future(self._unjam())
        await asyncio.shield(self._unjamming)

    async def _unjam(self) -> None:
        try:
            while self._core.jammed is not None:
                await self._driver.run(self._core.unjam(self._driver.connection.deadline()))
        finally:
            self._unjamming = None

    async def close(self) -> None:
        """Wait for what is on its way, and end."""
        await self._driver.run(self._core.close(self._driver.connection.deadline()))


def _place(pending: Pending, index: int) -> tuple[Pending, int]:
    """In place of a future."""
    return pending, index
