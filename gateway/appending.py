"""Appends records for connections and requests, without a future for each.

Idea: all connections of one principal that write to a topic share a producer, so their records gather in one batch. A
record is known by its `SharedBatch` and its place there; when the batch is settled, each connection that has records in
it is told once.

Contract: `append` never waits, and raises for a record that the topic would refuse, and NotLeader where another node
leads: a record that was taken there would wait, and be appended after its client had sent it to that node. A batch
without an outcome is given up after the connection's time-out: its records have TimedOut as theirs, and may still be
appended. While `jammed`, the caller must not append, but wait with `room`. `append_many` waits, and makes batches of
its own. This module alone knows how the client's producer works.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

from msgspec import Struct

from ..clients.aio.driver import AsyncDriver
from ..clients.connection.request_ids import current_ids
from ..clients.producing.arrow_data import ArrowData
from ..clients.producing.bulk import pieces
from ..clients.producing.core import ProducerCore
from ..clients.producing.pending import Pending
from ..clients.producing.queued import Queued
from ..storage.errors import Error, StorageFull
from ..transport.messages import Topic

JOINING = 0.1
"""Of the time-out: records that come to one batch within so long time out together, when the last of them does."""

WINDOW_BYTES = 8 << 20
"""On its way to one partition before connections that write there wait."""


class Told(Protocol):
    """A connection that waits for its records."""

    def settled(self) -> None:
        """Handle that some batch with records of it is settled."""
        ...


class RecordRun(Struct, frozen=True):
    """Where records are that were appended one behind the other."""

    partition: int
    first: int
    count: int


class SharedBatch:
    """Records that become one batch, and the connections that have some of them."""

    __slots__ = ("pending", "settled", "tellers", "timer")

    def __init__(self, pending: Pending) -> None:
        self.pending = pending
        self.timer: asyncio.TimerHandle | None = None
        self.tellers: dict[Told, None] = {}
        self.settled = False

    def settle(self) -> None:
        """Tell everyone with records in it that the outcome is known, or not waited for any longer."""
        self.settled = True
        for teller in self.tellers:
            teller.settled()

    def outcomes(self, first: int, count: int) -> list[tuple[Pending, int, int]]:
        """Once `settled`: what has the outcomes of so many records from number `first` on: batches, the number of the
        first record in each, and how many."""
        if self.pending.parts is None:
            return [(self.pending, first, count)]
        return [(*self.pending.place_of(index), 1) for index in range(first, first + count)]

    def offset(self, index: int) -> int:
        """Once `settled`: where a record was appended. Raises what prevented it."""
        pending, index = self._outcome(index)
        return pending.offset + index

    def repeats(self, index: int) -> int | None:
        """Once `settled`: the offset of the record whose dedup key a record repeats. Raises what prevented it."""
        pending, index = self._outcome(index)
        return pending.repeats.get(index)

    def _outcome(self, index: int) -> tuple[Pending, int]:
        pending, index = self.pending.place_of(index)
        if pending.error is not None:
            raise pending.error.with_traceback(None)
        return pending, index


class Appender:
    """The records of one principal for one topic. See the module."""

    def __init__(self, driver: AsyncDriver, topic: Topic, refused: Callable[[Error], None]) -> None:
        """`refused` gets the error of each batch that could not be appended, or that is not waited for any longer."""
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

    @property
    def lacks_room(self) -> bool:
        """Whether records wait because the broker's disk is full."""
        troubles = (sender.trouble for sender in self._core.senders)
        return any(trouble is not None and trouble.code == StorageFull.code for trouble in troubles)

    @property
    def partitions(self) -> int:
        """How many partitions records go to: those that the topic had when this was made."""
        return len(self._core.senders)

    def append(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: Mapping[str, bytes] | None,
        partition: int | None,
        teller: Told,
        timestamp: int | None = None,
        queued: Queued | None = None,
    ) -> tuple[SharedBatch, int]:
        """Take one record; `teller` hears when it is settled. Returns its batch, and its number there.

        Without a partition, the key chooses it. Raises RecordTooLarge, InvalidBatch, InvalidArgument, UnknownPartition,
        NotLeader.
        """
        self._driver.connection.check_here()
        pending, index = self._core.append(value, key, headers, timestamp, partition, queued, ids=current_ids())
        return self._shared(pending, teller), index

    def append_run(
        self,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        headers: Sequence[dict[str, bytes] | None] | None,
        partition: int,
        teller: Told,
    ) -> list[tuple[SharedBatch, int, int]]:
        """As `append`, for records of one partition. Returns their batches, the number of the first one in each, and
        how many. All are taken, or none where one is refused."""
        self._driver.connection.check_here()
        taken = self._core.append_run(values, keys, headers, partition, current_ids())
        return [(self._shared(pending, teller), first, count) for pending, first, count in taken]

    def _shared(self, pending: Pending, teller: Told) -> SharedBatch:
        """What tells `teller` of a batch that has just got a record."""
        batch = self._open.get(pending.partition)
        if batch is None or batch.pending is not pending:
            batch = self._begun(pending, pending.partition)
        batch.tellers[teller] = None
        if not self._driver.nudged:
            self._driver.nudge()
        return batch

    async def append_many(
        self, values: Sequence[bytes | None] | ArrowData, keys: Sequence[bytes | None] | None, partition: int | None
    ) -> list[RecordRun]:
        """Append records in batches of their own, and wait until they are committed. Returns where they are.

        An error stops it, and what was appended before stays. Raises as `append`, and what prevented a batch.
        """
        self._driver.connection.check_here()
        core, sent = self._core, list[Pending]()
        for piece in pieces(values, keys, core.shape, partition):
            sent.append(await self._driver.run(core.send_piece(piece, self._driver.connection.deadline())))
        try:
            await self._driver.run(core.finish(sent))
        finally:
            self._tell_failed()
        return [RecordRun(pending.partition, pending.offset, pending.count) for pending in sent]

    def _begun(self, pending: Pending, partition: int) -> SharedBatch:
        batch = self._open[partition] = SharedBatch(pending)
        if not self._core.call_when_settled(pending, lambda: self._settle(batch)):
            self._settle(batch)
        else:
            seconds = JOINING * self._driver.connection.timeout
            batch.timer = asyncio.get_running_loop().call_later(seconds, self._joined, batch)
        return batch

    def _settle(self, batch: SharedBatch) -> None:
        self._tell_failed()
        if not batch.settled:
            self._seal(batch)
            batch.settle()

    def _seal(self, batch: SharedBatch) -> None:
        """Have no more records join a batch."""
        if batch.timer is not None:
            batch.timer.cancel()
        if self._open.get(batch.pending.partition) is batch:
            del self._open[batch.pending.partition]

    def _joined(self, batch: SharedBatch) -> None:
        """Let records that come later wait for as long as these."""
        self._seal(batch)
        timeout = self._driver.connection.timeout
        batch.timer = asyncio.get_running_loop().call_later(timeout, self._give_up, batch)

    def _give_up(self, batch: SharedBatch) -> None:
        """Wait no longer for a batch; the producer goes on."""
        partition = batch.pending.partition
        error = self._core.overdue(self._core.senders[partition])
        batch.pending = Pending(self._core, partition)
        batch.pending.error = type(error)(f"{error.message}; whether the record will be appended is not known")
        self._refused(batch.pending.error)
        batch.settle()

    def _tell_failed(self) -> None:
        """Every connection answers its own errors; what the link remembers may be wrong now."""
        failed, self._core.failed = self._core.failed, []
        for each in failed:
            assert each.error is not None, "it failed"
            self._refused(each.error)

    async def room(self) -> None:
        """Wait until the window has room. Raises what keeps the producer from going on, NotLeader for one."""
        self._driver.connection.check_here()
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
