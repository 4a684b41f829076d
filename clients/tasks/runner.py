"""The runner: leases tasks of an app's queues, calls their functions, and settles each task.

Idea: its own loop only leases, waits and settles; functions run in threads, in processes, and on another loop
(calls.py), so an application never delays a heartbeat. Calls that end while the loop is busy are taken together: one
wake-up, one request (settling.py).

Contract: at most `concurrency` calls run at once, over all queues; each queue leases about as many tasks ahead as end
within a moment (pace.py), and returns those that cannot begin soon. `stop` drains: it leases no more, gives running
calls `drain_s` seconds to finish, and releases the rest without counting an attempt; finished work is committed before
the runner ends. While the broker is away the runner waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import sys
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ...storage.errors import Closed, Error
from ..errors import InvalidArgument
from .app import Tasks
from .calls import Calls, RunningCall
from .outcome import Dropped, Failed, Outcome, RefusedCall, reason_of
from .pace import QueuePace
from .queues import configure
from .retry import names_of
from .settling import OutcomeReporter, SettledTask, SettlingWorker
from .slots import Slots
from .verdicts import judged

if TYPE_CHECKING:
    from ..aio.client import AsyncClient
    from .queues import TaskQueue

log = logging.getLogger("penstock.tasks")

WAIT_S = 1.0
"""How long a request for tasks is out at most."""

PAUSE_S = 0.5
"""Delay before a request that the broker refused for now is retried."""

BEGIN_S = 1.0
"""A task that cannot begin for so long, because all slots are taken, is released: other workers may have one."""

ALWAYS = timedelta(days=366)
"""The runner's own loop is never away for long: what takes too long is for the timeouts of functions to say."""

CLOSE_S = 10.0
"""How long releasing the rest may take at the end; a lease that is not released runs out."""


class RunningTask:
    """One running call, its task and its worker."""

    __slots__ = ("alarm", "pace", "running", "task", "worker")

    def __init__(self, worker: SettlingWorker, pace: QueuePace, task: SettledTask, running: RunningCall) -> None:
        self.worker = worker
        self.pace = pace
        self.task = task
        self.running = running
        self.alarm: asyncio.TimerHandle | None = None


class Runner:
    """Leases the tasks of an app and calls their functions, as `penstock worker` does: `await Runner(app).run()`.

    To be used on one loop, once. `stop` ends it.
    """

    def __init__(self, app: Tasks, *, concurrency: int = 1, queues: Sequence[str] = (), drain_s: float = 30.0) -> None:
        """
        Args:
            app: whose functions are called.
            concurrency: calls at once, over all queues.
            queues: only these of the app's; all when empty.
            drain_s: how long running calls may take once it is stopped.

        Raises: InvalidArgument.
        """
        if concurrency < 1:
            raise InvalidArgument(f"concurrency={concurrency!r} is below 1: then nothing would run")
        self.queues = _chosen(app, queues)
        self._app = app
        self._drain_s = drain_s
        self._slots = Slots(concurrency)
        self._stopping = asyncio.Event()
        self._abandoned = asyncio.Event()
        self._calls = Calls(app, concurrency)
        self._settling = OutcomeReporter(self._stopping)
        self._attempts_most: dict[SettlingWorker, int] = {}
        self._running: dict[RunningTask, None] = {}
        self._finished = asyncio.Event()  # drained: nothing runs any more
        self._ended: deque[RunningTask] = deque()  # by the threads they ran in
        self._woken = False  # the loop looks at them soon
        self._now_us: Callable[[], int] = lambda: time.time_ns() // 1000
        self._telling: set[asyncio.Task[None]] = set()
        self._fetching: set[asyncio.Timeout] = set()

    @property
    def outcomes(self) -> Counter[str]:
        """How many tasks were done, failed, refused and dropped, as committed."""
        return self._settling.outcomes

    def stop(self) -> None:
        """Drain; when called again, stop without waiting for running calls."""
        (self._abandoned if self._stopping.is_set() else self._stopping).set()
        self._slots.close()

    async def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Work until stopped. Calls `ready` once it leases. Raises if work is impossible."""
        async with AsyncExitStack() as closing:
            opening = asyncio.create_task(self._open(closing))
            stopped = asyncio.create_task(self._stopping.wait())
            await asyncio.wait((opening, stopped), return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            if opening.done():
                workers = opening.result()
                ready()
                await self.work(workers)
            else:  # there is no broker, and a second stop ended the wait
                opening.cancel()
                await asyncio.wait([opening])

    async def _open(self, closing: AsyncExitStack) -> list[SettlingWorker]:
        """Open a worker for each queue. Raises if work is impossible."""
        from ..aio.client import connect

        client = await connect(self._app.url, timeout=self._app.timeout_s, name="penstock-worker")
        closing.push_async_callback(lambda: _bounded(client.close()))
        self._now_us = lambda: client.now_us
        return [await self._worker(client, queue) for queue in self.queues]

    async def _worker(self, client: AsyncClient, queue: TaskQueue) -> SettlingWorker:
        most = (await configure(client, queue))["max_attempts"] or sys.maxsize
        ahead = min(most - 1, 1)  # as of QueuePace: nothing that a kill would leave dead-lettered and never begun
        worker = await client.worker(queue.topic, group=queue.group, prefetch=ahead, max_processing=ALWAYS)
        self._attempts_most[worker] = most
        return worker

    async def work(self, workers: Sequence[SettlingWorker]) -> None:
        """Work off what `workers` lease, until stopped. `run` uses it."""
        leasing = [asyncio.create_task(self._lease(worker)) for worker in workers]
        stopped = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([stopped, *leasing], return_when=asyncio.FIRST_COMPLETED)
            self._stopping.set()  # also when one could not go on
            self._slots.close()
            for fetching in self._fetching:
                fetching.reschedule(0.0)
            await asyncio.gather(*leasing, return_exceptions=True)
            await self._drain()
            for ended in leasing:
                ended.result()
        finally:
            await self._abandon(stopped, *leasing)
            self._calls.close()
            for worker in workers:
                await _bounded(worker.close())
            self._settling.close()

    async def _drain(self) -> None:
        """Let running calls finish, until time is up or `stop` is called again."""
        if not self._running:
            return
        log.info("draining: still at work on %d of its tasks", len(self._running))
        waiting = [asyncio.create_task(event.wait()) for event in (self._abandoned, self._finished)]
        await asyncio.wait(waiting, timeout=self._drain_s, return_when=asyncio.FIRST_COMPLETED)
        for each in waiting:
            each.cancel()

    async def _abandon(self, *waiting: asyncio.Task[Any]) -> None:
        """Release tasks whose calls still run; outcomes so far are committed."""
        for task in waiting:
            task.cancel()
        for call in list(self._running):
            log.warning("task %s is given back: %s", call.task.id, call.running.stop())
            self._decide(call, Dropped())
        await asyncio.wait([*waiting, known := asyncio.create_task(self._settling.known())], timeout=CLOSE_S)
        known.cancel()

    # -- leasing ------------------------------------------------------------------------------------

    async def _lease(self, worker: SettlingWorker) -> None:
        """Lease as many as may be started soon, and start them, until stopped."""
        pace = QueuePace(self._attempts_most.get(worker, sys.maxsize))
        while await self._slots.wait():
            tasks = await self._fetched(worker, max(self._slots.free, pace.ahead(time.monotonic()), 1))
            for place, task in enumerate(tasks):
                if not (self._slots.free and not self._slots.closed) and not await self._slots.wait(BEGIN_S):
                    self._settling.release(worker, tasks[place:])
                    break
                self._start(worker, pace, task)

    async def _fetched(self, worker: SettlingWorker, most: int) -> Sequence[SettledTask]:
        """The next tasks; empty when the broker cannot give any for now and when the runner stops."""
        try:
            async with asyncio.timeout(None) as fetching:
                self._fetching.add(fetching)
                try:
                    return await worker.fetch(max_records=most, wait=WAIT_S)
                finally:
                    self._fetching.discard(fetching)
        except Error as error:
            if not error.retry:
                raise
            log.warning("no tasks for now: %s", error.message)
            await self._pause()
            return []
        except TimeoutError:
            return []

    async def _pause(self) -> None:
        """Wait a moment, or until the runner stops."""
        waiting = asyncio.create_task(self._stopping.wait())
        await asyncio.wait([waiting], timeout=PAUSE_S)
        waiting.cancel()

    # -- working ------------------------------------------------------------------------------------

    def _start(self, worker: SettlingWorker, pace: QueuePace, task: SettledTask) -> None:
        """Start a task's call; its slot is free again when the call has ended."""
        running = self._calls.start(task, self._teller(task), self._now_us())
        if isinstance(running, RefusedCall):
            self._settling.settle(worker, task, running)
            return
        self._slots.take()
        call = RunningTask(worker, pace, task, running)
        self._running[call] = None
        loop = asyncio.get_running_loop()
        if running.timeout_s is not None:
            call.alarm = loop.call_later(running.timeout_s, self._too_long, call)
        running.future.add_done_callback(lambda _: self._note(loop, call))

    def _note(self, loop: asyncio.AbstractEventLoop, call: RunningTask) -> None:
        """Report the end of a call, from any thread. The loop is woken once for all that end before it looks."""
        self._ended.append(call)
        if not self._woken:
            self._woken = True
            _call_soon(loop, self._look)

    def _look(self) -> None:
        """Take the outcomes of ended calls."""
        self._woken = False  # first: what ends from here on wakes the loop again
        now = time.monotonic()
        while self._ended:
            call = self._ended.popleft()
            call.pace.note(1, now)
            self._slots.give_back()
            if call in self._running:
                self._decide(call, _outcome(call.running))

    def _too_long(self, call: RunningTask) -> None:
        if call in self._running and not call.running.future.done():
            call.running.future.cancel()
            stopped = call.running.stop()
            too_long = f"it took longer than {call.running.timeout_s:g} s: {stopped}"
            self._decide(call, Failed(too_long, kinds=names_of(TimeoutError())))

    def _decide(self, call: RunningTask, outcome: Outcome) -> None:
        """Set a call's outcome, whatever it still does."""
        del self._running[call]
        if call.alarm is not None:
            call.alarm.cancel()
        if isinstance(outcome, Failed):
            most = self._attempts_most.get(call.worker, sys.maxsize)
            outcome = judged(outcome, call.running.rule, call.task.attempt, most, random.random)
        self._settling.settle(call.worker, call.task, outcome)
        if self._slots.closed and not self._running:
            self._finished.set()

    def _teller(self, task: SettledTask) -> Callable[[bytes], None]:
        """A function that takes progress from any thread and sends the latest."""
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


def _outcome(running: RunningCall) -> Outcome:
    """The outcome of an ended call."""
    try:
        return running.future.result()
    except (CancelledError, Closed):  # by the end of the runner
        return Dropped()
    except Exception as error:  # it was never called: no thread, no process
        return Failed(reason_of(error))


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Schedule a call from any thread; does nothing once the loop is closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call)


async def _bounded(closing: Awaitable[None]) -> None:
    """Wait for a close, but not for ever. Leases not released run out."""
    try:
        await asyncio.wait_for(closing, CLOSE_S)
    except (Error, TimeoutError) as error:
        log.warning("closing did not go well: %s", error or "it took too long")


def _chosen(app: Tasks, names: Sequence[str]) -> list[TaskQueue]:
    """The queues to work on. Raises InvalidArgument."""
    unknown = [name for name in names if name not in app.queues]
    if unknown or not app.queues:
        known = ", ".join(sorted(app.queues)) or "none: no function is decorated with its task()"
        raise InvalidArgument(f"the app has no queue {unknown[0]!r}; it has {known}" if unknown else f"queues: {known}")
    return [app.queues[name] for name in names or app.queues]
