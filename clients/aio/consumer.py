"""The consumer for asyncio: as consumer.py, awaited.

Contract: everything happens on the loop that connected. One task at a time reads from a consumer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, overload

from ...storage.errors import Closed
from ...storage.record import Record
from ..arguments.checking import checks
from ..arguments.quantities import Duration, seconds, start_time
from ..connection.steps import FOREVER
from ..consuming.columnar import Columns, Convert, Format, converter
from ..consuming.core import ConsumerCore
from .driver import AsyncDriver

if TYPE_CHECKING:
    import pyarrow as pa


@checks
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
                core.connection.check_ours()
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
    def batches(
        self, format: Literal["arrow"], *, columns: Sequence[str] | None = None, wait: Duration | None = None
    ) -> AsyncIterator[pa.RecordBatch]: ...
    @overload
    def batches(self, format: Literal["numpy"], *, wait: Duration | None = None) -> AsyncIterator[Columns]: ...

    def batches(
        self, format: Format = "records", *, columns: Sequence[str] | None = None, wait: Duration | None = None
    ) -> AsyncIterator[Any]:
        """Batches as they are stored. See `Consumer.batches`."""
        self._core.check_open()
        return self._batches(converter(format, columns), None if wait is None else seconds(wait, "wait"))

    async def _batches(self, convert: Convert, patience: float | None) -> AsyncIterator[Any]:
        core, run = self._core, self._driver.run
        while True:
            deadline = FOREVER if patience is None else core.connection.clock() + patience
            try:
                found = await run(core.next_batch(convert, deadline))
            except Closed:
                core.connection.check_ours()
                return
            if found is None:
                return
            yield found

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
        if not self._core.closed and not self._driver.closed:
            await self._driver.run(self._core.close(self._core.connection.deadline(), failed=failed))

    async def __aenter__(self) -> AsyncConsumer:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self._close(failed=kind is not None)
