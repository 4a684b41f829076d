"""The worker for asyncio: as worker.py, awaited.

Contract: everything happens on the loop that connected. Any number of the loop's tasks may share a worker: one
fetches, any settles.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Sequence
from typing import Any

from ...storage.errors import Closed
from ...transport.messages import Topic
from ...transport.queue_messages import Verb
from ..arguments.checking import checks
from ..arguments.quantities import Duration, seconds
from ..connection.steps import FOREVER
from ..errors import TimedOut
from ..task import TaskRecord
from ..working.core import WorkerCore
from ..working.leases import SettleFuture
from ..working.options import WorkerOptions
from .driver import AsyncDriver


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
            raise TimedOut("the outcome is not known yet: await the future")
        return super().exception(timeout)


@checks
class AsyncTask(TaskRecord, frozen=True, eq=False, gc=False):
    """One record to be worked off. See `Task`."""

    async def ack(self, result: bytes | None = None) -> None:
        """It is done. `result` is for whoever asks for the task. Raises LeaseLost."""
        core = self._lease.core
        await core.run(core.settle_now((self,), Verb.ACK, result=result))

    async def nack(self, *, delay: Duration | None = None, reason: str = "") -> None:
        """It failed: to be tried again after `delay` (None: the group's back-off), or dead after its last attempt."""
        core = self._lease.core
        await core.run(core.settle_now((self,), Verb.NACK, delay=delay, reason=reason))

    async def reject(self, reason: str = "") -> None:
        """It failed for good: dead now."""
        core = self._lease.core
        await core.run(core.settle_now((self,), Verb.REJECT, reason=reason))

    async def release(self) -> None:
        """It was not tried: somebody else may have it at once, and this attempt does not count."""
        core = self._lease.core
        await core.run(core.settle_now((self,), Verb.RELEASE))

    async def extend(self, lease: Duration | None = None) -> None:
        """Keep it, and what was leased with it, for `lease` from now on (None: as long as at first)."""
        core = self._lease.core
        await core.run(core.extend(self, lease))

    async def progress(self, value: bytes) -> None:
        """Say how far it is, to whoever asks for the task. Keeps it, too."""
        core = self._lease.core
        await core.run(core.extend(self, None, progress=value))


@checks
class AsyncWorker:
    """Works off one topic's records. See `Worker`."""

    def __init__(self, driver: AsyncDriver, topic: Topic, options: WorkerOptions) -> None:
        """Made by `AsyncClient.worker`."""
        self._driver = driver
        self._core = WorkerCore(
            driver.connection, topic, options, run=driver.run, do=_do, task=AsyncTask, future=AsyncSettleFuture
        )

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._core.topic.name

    @property
    def group(self) -> str:
        """The queue group's name."""
        return self._core.options.group

    @property
    def name(self) -> str:
        """This worker's name, for people who look at the queue."""
        return self._core.options.name

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._core.closed

    async def __aiter__(self) -> AsyncIterator[AsyncTask]:
        """Every task, waiting for those to come; ends when the worker is closed by another task of the loop."""
        core = self._core
        core.check_open()
        while True:
            task = core.left.popleft() if core.left else None
            try:
                if task is None:
                    core.left.extend(await self._driver.run(core.fetch(core.options.lease_records, FOREVER)))
            except Closed:
                core.connection.check_ours()
                return
            if task is not None and not task.lost and not core.closed:
                yield task

    async def fetch(self, max_records: int = 100, wait: Duration = 1.0) -> list[AsyncTask]:
        """At most `max_records` tasks: at once those that are there, else the first within `wait` seconds, or []."""
        core = self._core
        return await self._driver.run(core.fetch(max_records, core.connection.clock() + seconds(wait, "wait")))

    async def ack_and_fetch(
        self, tasks: Sequence[AsyncTask], max_records: int = 100, wait: Duration = 1.0
    ) -> list[AsyncTask]:
        """Ack a batch with the request that asks for the next one. See `Worker.ack_and_fetch`."""
        core = self._core
        deadline = core.connection.clock() + seconds(wait, "wait")
        return await self._driver.run(core.ack_and_fetch(tasks, max_records, deadline))

    async def ack(self, tasks: Sequence[AsyncTask]) -> None:
        """They are done; waits for the commit. Raises LeaseLost when somebody else has one: the others are acked."""
        await self._driver.run(self._core.settle_now(tasks, Verb.ACK))

    async def ack_nowait(self, task: AsyncTask, result: bytes | None = None) -> AsyncSettleFuture:
        """It is done, together with others, soon. Await the future, or `flush`; closing flushes."""
        future = await self._driver.run(self._core.ack_later(task, result))
        self._driver.nudge()
        assert isinstance(future, AsyncSettleFuture), "the core makes this worker's kind of future"
        return future

    async def nack(self, tasks: Sequence[AsyncTask], *, delay: Duration | None = None, reason: str = "") -> None:
        """They failed: to be tried again after `delay` (None: the group's back-off), or dead after the last attempt."""
        await self._driver.run(self._core.settle_now(tasks, Verb.NACK, delay=delay, reason=reason))

    async def reject(self, tasks: Sequence[AsyncTask], reason: str = "") -> None:
        """They failed for good: dead now."""
        await self._driver.run(self._core.settle_now(tasks, Verb.REJECT, reason=reason))

    async def release(self, tasks: Sequence[AsyncTask]) -> None:
        """They were not tried: somebody else may have them at once, and this attempt does not count."""
        await self._driver.run(self._core.settle_now(tasks, Verb.RELEASE))

    async def flush(self, timeout: Duration | None = None) -> None:
        """Wait until everything settled is committed. Raises the first error that nobody was told of."""
        limit = self._core.connection.deadline(None if timeout is None else seconds(timeout, "timeout"))
        await self._driver.run(self._core.flush(limit))

    async def close(self) -> None:
        """Flush, and give back what is held, uncounted. Repeating it does nothing."""
        if not self._core.closed and not self._driver.closed:
            await self._driver.run(self._core.close())

    async def __aenter__(self) -> AsyncWorker:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _do(call: Callable[[], Any]) -> Any:
    """On a loop nobody else is in the middle of anything."""
    return call()
