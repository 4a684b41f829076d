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
from .context import CurrentTask
from .encoding import ENCODINGS, Encoding
from .function import AsyncTaskFunction, BaseFunction, home
from .message import ENCODING_HEADER, NAME_HEADER
from .outcome import Outcome, RefusedCall
from .performing import perform, perform_async
from .processes import Processes
from .retry import RetryRule
from .threads import Threads
from .verdicts import refusal, rule_of
from .wire import Order

if TYPE_CHECKING:
    from .app import Tasks


class Leased(Protocol):
    """A leased task, as a call sees it."""

    @property
    def id(self) -> str: ...
    @property
    def value(self) -> bytes: ...
    @property
    def headers(self) -> Mapping[str, bytes]: ...
    @property
    def attempt(self) -> int: ...
    @property
    def cancelled(self) -> bool: ...


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
        name = task.headers.get(NAME_HEADER, b"").decode(errors="replace")
        function = self._app.functions.get(name)
        if function is None:
            known = ", ".join(sorted(self._app.functions)) or "none"
            return RefusedCall(f"no function is called {name!r} here; there are: {known}" if name else _NAMELESS)
        encoding = _encoding(task.headers.get(ENCODING_HEADER, b"json").decode(errors="replace"))
        if encoding is None:
            return RefusedCall(f"its encoding is none of {', '.join(ENCODINGS)}")
        if task.value is None:
            return RefusedCall(f"{name}: the record has no value, so it has no arguments")
        try:
            rule = rule_of(task.headers, function.declared.retry)
            refused = refusal(task.headers, task.attempt, rule, now_us)
            if refused is not None:
                return refused
            if function.declared.process:
                return self._start_process(function, task, encoding, tell, rule)
            call = function.arguments.unpack(encoding, task.value)
        except ValueError as error:
            return RefusedCall(f"{name}: {error}")
        current = CurrentTask(
            task.id, task.attempt, encoding=encoding, tell=tell, is_cancelled=lambda: task.cancelled,
            headers=task.headers,
        )  # fmt: skip
        if isinstance(function, AsyncTaskFunction):
            future = asyncio.run_coroutine_threadsafe(
                perform_async(function.function, function.arguments, call, encoding, current), self._applications_loop()
            )
            return RunningCall(future, function.declared.timeout_s, partial(_cancel, future), rule)
        future = self._threads.submit(
            partial(perform, function.function, function.arguments, call, encoding, current)
        )  # fmt: skip
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
            tracing.carried(task.headers),
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
_NAMELESS = f"it has no header {NAME_HEADER}, so it is no call of a function: it was not sent by Tasks"


def _encoding(name: str) -> Encoding | None:
    return next((known for known in ENCODINGS if known == name), None)


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
