"""The verbs of an asyncio client that concern queues: as queue_client.py, awaited.

Contract: as aio.py, of which this is a part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..arguments.quantities import Duration, Start
from ..queues.descriptions import DeadTask, Queue, Schedule, TaskInfo, queue_of, schedule_of
from ..queues.verbs import QueueVerbs

if TYPE_CHECKING:
    from .driver import AsyncDriver


class AsyncQueueClient:
    """The part of `AsyncClient` that concerns queues."""

    def __init__(self, driver: AsyncDriver) -> None:
        self._driver = driver
        self._queue_verbs = QueueVerbs(driver.connection)

    # -- queue groups ----------------------------------------------------------------------------------------

    async def queues(self, topic: str | None = None) -> list[Queue]:
        """All queue groups, or those of one topic."""
        return [queue_of(found) for found in await self._driver.run(self._queue_verbs.queues(topic))]

    async def queue(self, topic: str, group: str) -> Queue:
        """One queue group: its settings, and what it has to do. Raises UnknownGroup."""
        return queue_of(await self._driver.run(self._queue_verbs.queue(topic, group)))

    async def set_queue(self, topic: str, group: str, *, start: Start = "earliest", **settings: Any) -> Queue:
        """Create a queue group, or change its settings. See `Client.set_queue`."""
        return queue_of(await self._driver.run(self._queue_verbs.set_queue(topic, group, start, settings)))

    async def pause_queue(self, topic: str, group: str, until: datetime | None = None) -> None:
        """Lease nothing until then, or until `resume_queue`. Workers may settle and extend what they have."""
        await self._driver.run(self._queue_verbs.pause_queue(topic, group, until))

    async def resume_queue(self, topic: str, group: str) -> None:
        """Lease again."""
        await self._driver.run(self._queue_verbs.resume_queue(topic, group))

    async def delete_queue(self, topic: str, group: str) -> None:
        """Forget a queue group: leases, attempts, dead ones. The records stay."""
        await self._driver.run(self._queue_verbs.delete_queue(topic, group))

    # -- tasks -----------------------------------------------------------------------------------------------

    async def task(self, id: str, group: str) -> TaskInfo:
        """What became of a task; its id is `topic-partition-offset`. Raises UnknownGroup, OutOfBounds."""
        return await self._driver.run(self._queue_verbs.task(id, group))

    async def wait_task(self, id: str, group: str, timeout: Duration | None = None) -> TaskInfo:
        """The same, once it is completed, dead, discarded or cancelled. Raises TimedOut, which says how it stands."""
        return await self._driver.run(self._queue_verbs.wait_task(id, group, timeout))

    async def cancel_task(self, id: str, group: str) -> TaskInfo:
        """See that nobody gets it any more. A worker that has it sees `Task.cancelled` at its next heartbeat."""
        return await self._driver.run(self._queue_verbs.cancel_task(id, group))

    async def why(self, id: str, group: str) -> str:
        """In a sentence, what holds a task back, or what became of it."""
        return (await self._driver.run(self._queue_verbs.task(id, group))).why

    # -- dead tasks ------------------------------------------------------------------------------------------

    async def dead(
        self,
        topic: str,
        group: str,
        *,
        partition: int | None = None,
        offset: int = 0,
        reason: str = "",
        max_records: int = 100,
    ) -> list[DeadTask]:
        """The first dead tasks by partition and offset; `reason`: only those that have this in theirs.

        Args:
            offset: where to begin in `partition`, as in going on behind the last one that was listed.
        """
        return await self._driver.run(self._queue_verbs.dead(topic, group, partition, offset, reason, max_records))

    async def redrive(
        self, topic: str, group: str, ids: Iterable[str] | None = None, *, reason: str = "", per_s: float = 0
    ) -> int:
        """Try dead tasks again, from attempt 1. See `Client.redrive`."""
        return await self._driver.run(self._queue_verbs.redrive(topic, group, ids, reason, per_s))

    async def discard(self, topic: str, group: str, ids: Iterable[str] | None = None, *, reason: str = "") -> int:
        """Give dead tasks up: those with these ids, those with this in their reason, or all. Returns how many."""
        return await self._driver.run(self._queue_verbs.discard(topic, group, ids, reason))

    # -- schedules -------------------------------------------------------------------------------------------

    async def schedule(
        self,
        topic: str,
        name: str,
        spec: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        zone: str = "UTC",
        priority: int = 0,
    ) -> Schedule:
        """Append a record at stated times, each once. See `Client.schedule`."""
        return schedule_of(
            await self._driver.run(self._queue_verbs.schedule(topic, name, spec, value, key, headers, zone, priority))
        )

    async def schedules(self, topic: str | None = None) -> list[Schedule]:
        """All schedules, or those of one topic."""
        return [schedule_of(found) for found in await self._driver.run(self._queue_verbs.schedules(topic))]

    async def delete_schedule(self, topic: str, name: str) -> None:
        """Forget a schedule. Raises UnknownSchedule."""
        await self._driver.run(self._queue_verbs.delete_schedule(topic, name))
