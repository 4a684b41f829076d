"""Calls task functions: a `def` in a thread, an `async def` on a loop, or either in a process.

Idea: to the runner all three are alike: a future of an outcome, and a way to stop it.

Contract: the loop of the application is not the runner's own: code that blocks it stops no heartbeat. An exception in
a call is an outcome; a task of an unknown function is refused before it is started.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from .. import tracing
from ..encoding import Encoding
from .callbacks import how_called
from .context import CurrentTask
from .function import AsyncTaskFunction, BaseFunction, home
from .outcome import Outcome, RefusedCall
from .performing import perform, perform_async
from .preparing import prepared
from .processes import Processes
from .retry import RetryRule
from .threads import Threads
from .wire import Order

if TYPE_CHECKING:
    from .app import Tasks


class LoggedTask(Protocol):
    """A task that the log speaks of."""

    @property
    def id(self) -> str: ...
    @property
    def headers(self) -> Mapping[str, bytes]: ...
    @property
    def attempt(self) -> int: ...
    @property
    def cancelled(self) -> bool: ...


class Leased(LoggedTask, Protocol):
    """A leased task, as a call sees it."""

    @property
    def value(self) -> bytes: ...


class RunningCall:
    """One started call."""

    def __init__(
        self, future: Future[Outcome], timeout_s: float | None, stop: Callable[[], str], rule: RetryRule | None
    ) -> None:
        """`timeout_s`: what the runner has to see to; `stop` says what it could do; `rule` is for its failure."""
        self.future = future
        self.timeout_s = timeout_s
        self.stop = stop
        self.rule = rule


class Calls:
    """See the module."""

    def __init__(self, app: Tasks, most: int) -> None:
        self._app = app
        self._threads = Threads(most)
        self._processes = Processes()
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, task: Leased, tell: Callable[[bytes], None], now_us: int) -> RunningCall | RefusedCall:
        """Start the call of a task, unless it expired by `now_us`. `tell` takes its progress, from any thread."""
        found = prepared(self._app.functions, task.headers, task.value, task.attempt, now_us)
        if isinstance(found, RefusedCall):
            return found
        function, encoding, rule, call = found
        if call is None:
            return self._start_process(function, task, encoding, tell, rule)
        current = CurrentTask(
            task.id, task.attempt, encoding=encoding, tell=tell, is_cancelled=lambda: task.cancelled,
            headers=task.headers, name=function.name,
        )  # fmt: skip
        about = (function.function, function.arguments, call, encoding, current, self._app.hooks)
        if isinstance(function, AsyncTaskFunction):
            future = asyncio.run_coroutine_threadsafe(perform_async(*about), self._applications_loop())
            return RunningCall(future, function.declared.timeout_s, partial(_cancel, future), rule)
        future = self._threads.submit(partial(perform, *about))
        return RunningCall(future, function.declared.timeout_s, lambda: _UNSTOPPABLE, rule)

    def _start_process(
        self,
        function: BaseFunction[..., Any],
        task: Leased,
        encoding: Encoding,
        tell: Callable[[bytes], None],
        rule: RetryRule | None,
    ) -> RunningCall:
        place = function.function
        order = Order(
            home(place),
            place.__qualname__,
            encoding,
            bytes(task.value),
            task.id,
            task.attempt,
            self._app.url,
            {**tracing.carried(task.headers), **how_called(task.headers)},
        )
        run = partial(self._processes.run, order, _Told(task, tell), function.declared.timeout_s)
        return RunningCall(self._threads.submit(run), None, lambda: "its process is killed", rule)

    def _applications_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=_serve, args=(self._loop,), name="penstock-loop", daemon=True).start()
        return self._loop

    def close(self) -> None:
        """Kill processes and end the loop; no more calls are started. Threads finish their calls."""
        self._processes.close()
        self._threads.close()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop = None


class _Told:
    """A task for a child process: whether it was cancelled, and where its progress goes."""

    def __init__(self, task: Leased, tell: Callable[[bytes], None]) -> None:
        self._task = task
        self.tell = tell

    @property
    def cancelled(self) -> bool:
        return self._task.cancelled


_UNSTOPPABLE = "its thread cannot be stopped and goes on"


def _cancel(future: Future[Outcome]) -> str:
    future.cancel()
    return "it was cancelled"


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop until it is stopped, then end what still runs on it."""
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
