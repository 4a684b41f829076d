"""Reports the outcomes of tasks to the broker.

Idea: most tasks succeed and are acked without waiting, so that those that end together are committed together. Other
outcomes are sent one by one.

Contract: `outcomes` counts committed outcomes. A task that another worker has by now is logged and not counted. While
the broker is away, reports are retried until the runner stops.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from ...broker.errors import LeaseLost, UnknownLease
from ...storage.errors import Error
from ...storage.printable import printable, printable_below
from ..arguments.quantities import Duration
from ..errors import InvalidArgument
from .calls import Leased, LoggedTask
from .message import NAME_HEADER
from .outcome import Deferred, Dropped, Failed, Outcome, RefusedCall, Returned

T = TypeVar("T")

log = logging.getLogger("penstock.tasks")

COUNTED_AS = {Failed: "failed", RefusedCall: "rejected", Deferred: "deferred", Dropped: "released"}
"""The words for outcomes that are not "done"; operators read them."""

PAUSE_S = 0.5
"""Delay before a request that the broker refused for now is retried."""


class SettledTask(Leased, Protocol):
    """A leased task with its verbs."""

    async def nack(self, *, delay: Duration | None = None, reason: str = "") -> None: ...
    async def reject(self, reason: str = "") -> None: ...
    async def release(self, *, delay: Duration | None = None) -> None: ...
    async def progress(self, value: bytes) -> None: ...


class DeferredOutcome(Protocol):
    """The outcome of a settle that was not waited for."""

    def exception(self) -> Error | None: ...
    def add_done_callback(self, callback: Callable[[Any], Any], /) -> None: ...


class SettlingWorker(Protocol):
    """Leases tasks of one queue, keeps them, and releases what it holds when closed."""

    async def fetch(self, max_records: int = 1, wait: float = 0.0) -> Sequence[SettledTask]: ...
    async def ack_nowait(self, task: Any, result: bytes | None = None) -> DeferredOutcome: ...
    async def release(self, tasks: Sequence[Any]) -> None: ...
    async def close(self) -> None: ...


class OutcomeReporter:
    """Reports outcomes from one event loop. `open` counts the tasks whose reports the broker has not answered yet."""

    def __init__(self, stopping: asyncio.Event) -> None:
        self.outcomes: Counter[str] = Counter()
        self.open = 0
        self._stopping = stopping
        self._done: deque[tuple[SettlingWorker, SettledTask, bytes]] = deque()
        self._acking = False
        self._saying: set[asyncio.Task[None]] = set()
        self._quiet = asyncio.Event()
        self._quiet.set()

    def settle(self, worker: SettlingWorker, task: SettledTask, outcome: Outcome) -> None:
        """Report an outcome. Never waits."""
        log_outcome(task, outcome)
        match outcome:
            case Returned(result):
                self._begin(1)
                self._done.append((worker, task, result))
                if not self._acking:
                    self._acking = True
                    self._spawn(self._ack())
            case Failed(reason, rejects=True):
                self._say(worker, [task], outcome, lambda: task.reject(reason))
            case Failed(reason, delay_s=delay_s):
                self._say(worker, [task], outcome, lambda: task.nack(delay=delay_s, reason=reason))
            case RefusedCall(reason):
                self._say(worker, [task], outcome, lambda: task.reject(reason))
            case Deferred(delay_s):
                self._say(worker, [task], outcome, lambda: task.release(delay=delay_s))
            case Dropped():
                self.release(worker, [task])

    def release(self, worker: SettlingWorker, tasks: Sequence[SettledTask]) -> None:
        """Release tasks whose calls did not finish."""
        if tasks:
            self._say(worker, tasks, Dropped(), lambda: worker.release(tasks))

    async def known(self) -> None:
        """Wait until all reports are answered."""
        await self._quiet.wait()

    def close(self) -> None:
        """Stop reporting."""
        for saying in self._saying:
            saying.cancel()

    # -- successes ------------------------------------------------------------------------------------

    async def _ack(self) -> None:
        """Ack finished tasks as long as there are any."""
        try:
            while self._done:
                worker, task, result = self._done.popleft()
                future: DeferredOutcome | None = None
                try:
                    future = await self._again(task, partial(worker.ack_nowait, task, result))
                except InvalidArgument as error:
                    refused = RefusedCall(f"it was done, but its result cannot be kept: {error.message}")
                    self.settle(worker, task, refused)
                if future is None:
                    self._end(1)
                else:
                    future.add_done_callback(partial(self._acked, task))
        finally:
            self._acking = False

    def _acked(self, task: SettledTask, future: DeferredOutcome) -> None:
        error = future.exception()
        if error is None:
            self.outcomes["done"] += 1
        else:
            _complain(task, error)
        self._end(1)

    # -- failures, rejections and releases ------------------------------------------------------------

    def _say(
        self,
        worker: SettlingWorker,
        tasks: Sequence[SettledTask],
        outcome: Outcome,
        verb: Callable[[], Awaitable[None]],
    ) -> None:
        async def committed() -> bool:
            await verb()
            return True

        async def say() -> None:
            try:
                if await self._again(tasks[0], committed):
                    self.outcomes[COUNTED_AS[type(outcome)]] += len(tasks)
            except InvalidArgument as error:  # a pause that no broker gives: kept, it would be leased for ever
                for task in tasks:
                    self.settle(worker, task, RefusedCall(f"it cannot wait for its next attempt: {error.message}"))
            finally:
                self._end(len(tasks))

        self._begin(len(tasks))
        self._spawn(say())

    async def _again(self, task: SettledTask, verb: Callable[[], Awaitable[T]]) -> T | None:
        """Retry a verb until it succeeds; None once that is pointless or the runner stops. Raises InvalidArgument."""
        while True:
            try:
                return await verb()
            except InvalidArgument:
                raise
            except Error as error:
                _complain(task, error)
                if not error.retry or self._stopping.is_set():
                    return None
            waiting = asyncio.create_task(self._stopping.wait())
            await asyncio.wait([waiting], timeout=PAUSE_S)
            waiting.cancel()

    # -- reports without an answer --------------------------------------------------------------------

    def _spawn(self, saying: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(saying)
        self._saying.add(task)
        task.add_done_callback(self._saying.discard)

    def _begin(self, count: int) -> None:
        self.open += count
        self._quiet.clear()

    def _end(self, count: int) -> None:
        self.open -= count
        if not self.open:
            self._quiet.set()


def log_outcome(task: LoggedTask, outcome: Outcome) -> None:
    """Log what went wrong, and in which function. Senders and exceptions choose names and reasons: they are escaped."""
    if not isinstance(outcome, Failed | RefusedCall | Deferred):
        return
    name = printable(task.headers.get(NAME_HEADER, b"no function").decode(errors="replace"))
    reason = printable(outcome.reason)
    if isinstance(outcome, RefusedCall):
        log.error("task %s (%s) is dead-lettered: %s", task.id, name, reason)
        return
    if isinstance(outcome, Deferred):
        why = f": {reason}" if reason else ""
        log.info("task %s (%s) is to run again in %g s%s", task.id, name, outcome.delay_s, why)
        return
    if task.cancelled:
        log.info("task %s (%s) was cancelled and has ended: %s", task.id, name, reason)
        return
    lines = f"{reason}\n{printable_below(outcome.trace)}" if outcome.trace else reason
    if outcome.is_last:
        sentence = "task %s (%s) failed in attempt %d and is dead-lettered: %s"
        log.error(sentence, task.id, name, task.attempt, lines)
    else:
        log.warning("task %s (%s) failed in attempt %d and is retried: %s", task.id, name, task.attempt, lines)


def _complain(task: SettledTask, error: Error) -> None:
    if isinstance(error, (LeaseLost, UnknownLease)):
        log.warning("task %s went to another worker meanwhile: %s", task.id, error.message)
    else:
        log.warning("what became of task %s cannot be said: %s", task.id, error.message)
