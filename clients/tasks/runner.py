"""The runner: leases tasks of an app's queues, has their functions called, and says what became of each.

Idea: one loop of its own that only leases, waits and settles; the functions run in threads, in processes, and on
another loop (calls.py). So nothing that an application does keeps a heartbeat from being sent.

Contract: at most `concurrency` calls run at once, over all queues; as many tasks may be leased ahead. `stop` drains:
nothing more is leased, what runs may finish for `drain_s` seconds, the rest is released without counting an attempt.
While the broker is away the runner waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from ...broker.errors import LeaseLost, UnknownLease
from ...storage.errors import Error
from ..errors import InvalidArgument
from .calls import Calls, Leased, Running
from .outcome import Done, Dropped, Failed, Outcome, Refused
from .queues import configure
from .slots import Slots

if TYPE_CHECKING:
    from ..aio import AsyncClient
    from .app import Tasks
    from .queues import Queue

log = logging.getLogger("penstock.tasks")

WAIT_S = 1.0
"""How long a request for tasks is out at most: a drain waits for it."""

PAUSE_S = 0.5
"""Before something is tried again that the broker refused for now."""

ALWAYS = timedelta(days=366)
"""The runner's own loop is never away for long: what takes too long is for the timeouts of functions to say."""

CLOSE_S = 10.0
"""How long giving back the rest may take at the end; a lease that is not given back runs out."""


class Task(Leased, Protocol):
    """A leased task with its verbs."""

    async def ack(self, result: bytes | None = None) -> None: ...
    async def nack(self, *, reason: str = "") -> None: ...
    async def reject(self, reason: str = "") -> None: ...
    async def release(self) -> None: ...
    async def progress(self, value: bytes) -> None: ...


class Worker(Protocol):
    """Leases tasks of one queue, keeps them, and gives back what it holds when it is closed."""

    async def fetch(self, max_records: int = 1, wait: float = 0.0) -> Sequence[Task]: ...
    async def close(self) -> None: ...


class Runner:
    """See the module. To be used on one loop, once."""

    def __init__(self, app: Tasks, *, concurrency: int = 1, queues: Sequence[str] = (), drain_s: float = 30.0) -> None:
        """
        Args:
            queues: only these of the app's; all when empty.
        """
        if concurrency < 1:
            raise InvalidArgument(f"concurrency={concurrency!r} is below 1: then nothing would run")
        self.queues = _chosen(app, queues)
        self._app = app
        self.outcomes: Counter[str] = Counter()
        """How many tasks were done, failed, refused, dropped."""
        self._drain_s = drain_s
        self._slots = Slots(concurrency)
        self._stopping = asyncio.Event()
        self._abandoned = asyncio.Event()
        self._working: set[asyncio.Task[None]] = set()
        self._telling: set[asyncio.Task[None]] = set()
        self._calls = Calls(app, concurrency)

    def stop(self) -> None:
        """Drain; called a second time: do not wait for what runs."""
        (self._abandoned if self._stopping.is_set() else self._stopping).set()
        self._slots.close()

    async def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Work until stopped. Calls `ready` once it leases. Raises what makes working impossible."""
        from ..aio import connect

        client = await connect(self._app.url, timeout=self._app.timeout_s, name="penstock-worker")
        try:
            workers = [await self._worker(client, queue) for queue in self.queues]
            ready()
            await self.work(workers)
        finally:
            await _bounded(client.close())

    async def _worker(self, client: AsyncClient, queue: Queue) -> Worker:
        await configure(client, queue)
        return await client.worker(queue.topic, group=queue.group, prefetch=1, max_processing=ALWAYS)

    async def work(self, workers: Sequence[Worker]) -> None:
        """Work off what these workers lease, until stopped."""
        leasing = [asyncio.create_task(self._lease(worker)) for worker in workers]
        stopped = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([stopped, *leasing], return_when=asyncio.FIRST_COMPLETED)
            self._stopping.set()  # also when one could not go on
            self._slots.close()
            await asyncio.gather(*leasing, return_exceptions=True)
            await self._drain()
            for ended in leasing:
                ended.result()
        finally:
            await self._abandon(stopped, *leasing)
            self._calls.close()
            for worker in workers:
                await _bounded(worker.close())

    async def _drain(self) -> None:
        """Let what runs finish, until time is up or nobody wants to wait. What is left is cancelled, and released."""
        if not self._working:
            return
        log.info("draining: %d tasks run", len(self._working))
        abandoned = asyncio.create_task(self._abandoned.wait())
        finished = asyncio.create_task(asyncio.wait(self._working))
        await asyncio.wait([abandoned, finished], timeout=self._drain_s, return_when=asyncio.FIRST_COMPLETED)
        abandoned.cancel()
        finished.cancel()

    async def _abandon(self, *waiting: asyncio.Task[Any]) -> None:
        """Cancel what is left. Tasks whose calls still run are given back."""
        left = [*waiting, *self._working]
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=CLOSE_S)

    # -- leasing ------------------------------------------------------------------------------------

    async def _lease(self, worker: Worker) -> None:
        """Lease as many as may be started, and start them, until stopped."""
        while await self._slots.wait():
            tasks = await self._fetched(worker)
            for place, task in enumerate(tasks):
                if not await self._slots.wait():
                    await asyncio.gather(*(self._settle(left, Dropped()) for left in tasks[place:]))
                    return
                self._start(task)

    async def _fetched(self, worker: Worker) -> Sequence[Task]:
        """The next tasks; none when the broker cannot give any for now."""
        try:
            return await worker.fetch(max_records=self._slots.free or 1, wait=WAIT_S)
        except Error as error:
            if not error.retry:
                raise
            log.warning("no tasks for now: %s", error.message)
            await self._pause()
            return []

    async def _pause(self) -> None:
        """A moment, or until the runner stops."""
        waiting = asyncio.create_task(self._stopping.wait())
        await asyncio.wait([waiting], timeout=PAUSE_S)
        waiting.cancel()

    # -- working ------------------------------------------------------------------------------------

    def _start(self, task: Task) -> None:
        """Have a task worked on; its place is free again when its call has ended."""
        self._slots.take()
        running = self._calls.start(task, self._teller(task))
        if isinstance(running, Refused):
            self._slots.give_back()
            work = asyncio.create_task(self._settle(task, running))
        else:
            loop = asyncio.get_running_loop()
            running.future.add_done_callback(lambda _: _call_soon(loop, self._slots.give_back))
            work = asyncio.create_task(self._work(task, running))
        self._working.add(work)
        work.add_done_callback(self._working.discard)

    async def _work(self, task: Task, running: Running) -> None:
        try:
            outcome = await _outcome(running)
        except asyncio.CancelledError:
            log.warning("task %s is given back: %s", task.id, running.stop())
            outcome = Dropped()
        await self._settle(task, outcome)

    async def _settle(self, task: Task, outcome: Outcome) -> None:
        """Say what became of a task, again and again while the broker is away."""
        while True:
            try:
                await _said(task, outcome)
                self.outcomes[type(outcome).__name__.lower()] += 1
                return
            except (LeaseLost, UnknownLease) as error:
                log.warning("task %s is somebody else's by now: %s", task.id, error.message)
                return
            except Error as error:
                log.warning("what became of task %s cannot be said: %s", task.id, error.message)
                if not error.retry or self._stopping.is_set():
                    return
            await self._pause()

    def _teller(self, task: Task) -> Callable[[bytes], None]:
        """Takes progress from any thread, and sends the latest."""
        loop = asyncio.get_running_loop()
        latest: list[bytes] = []

        async def send() -> None:
            while latest:
                value = latest[-1]
                try:
                    await task.progress(value)
                except Error as error:
                    log.warning("the progress of task %s is not known: %s", task.id, error.message)
                del latest[: latest.index(value) + 1]

        def take(value: bytes) -> None:
            latest.append(value)
            if len(latest) == 1:
                sending = asyncio.create_task(send())
                self._telling.add(sending)
                sending.add_done_callback(self._telling.discard)

        return lambda value: _call_soon(loop, lambda: take(value))


async def _outcome(running: Running) -> Outcome:
    """What becomes of a call."""
    future = asyncio.wrap_future(running.future)
    done, _ = await asyncio.wait([future], timeout=running.timeout_s)
    if done:
        return future.result()
    future.cancel()
    return Failed(f"it took longer than {running.timeout_s:g} s: {running.stop()}")


async def _said(task: Task, outcome: Outcome) -> None:
    match outcome:
        case Done(result):
            await task.ack(result)
        case Failed(reason):
            await task.nack(reason=reason)
        case Refused(reason):
            log.error("task %s is rejected: %s", task.id, reason)
            await task.reject(reason)
        case Dropped():
            await task.release()


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """From any thread; nothing once the loop is closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call)


async def _bounded(closing: Awaitable[None]) -> None:
    """Wait for something to close, not for ever. What is not given back comes back when its lease has run out."""
    try:
        await asyncio.wait_for(closing, CLOSE_S)
    except (Error, TimeoutError) as error:
        log.warning("closing did not go well: %s", error or "it took too long")


def _chosen(app: Tasks, names: Sequence[str]) -> list[Queue]:
    """The queues to work on. Raises InvalidArgument."""
    unknown = [name for name in names if name not in app.queues]
    if unknown or not app.queues:
        known = ", ".join(sorted(app.queues)) or "none: no function is decorated with its task()"
        raise InvalidArgument(f"the app has no queue {unknown[0]!r}; it has {known}" if unknown else f"queues: {known}")
    return [app.queues[name] for name in names or app.queues]
