"""Workers without a broker for tests of the runner: they lease what a test gives them, and note each outcome."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from penstock.clients.tasks.message import ENCODING_HEADER, NAME_HEADER
from penstock.clients.tasks.runner import Runner

PATIENCE_S = 30.0


class FakeTask:
    """A leased task that notes what became of it."""

    def __init__(self, worker: FakeWorker, function: str, value: bytes, headers: dict[str, bytes] | None = None):
        self.id = f"q-0-{len(worker.made)}"
        self._value = value
        self.begun = asyncio.Event()
        self.headers: Mapping[str, bytes] = headers or {NAME_HEADER: function.encode(), ENCODING_HEADER: b"json"}
        self.attempt = 2
        self.cancelled = False
        self.told: list[bytes] = []
        self.errors: list[Exception] = []
        self.refusal: Exception | None = None
        self.settled: asyncio.Future[tuple[Any, ...]] = asyncio.get_running_loop().create_future()
        worker.made.append(self)

    @property
    def value(self) -> bytes:
        self.begun.set()
        return self._value

    async def settle(self, *verdict: Any) -> None:
        await asyncio.sleep(0)
        if self.errors:
            raise self.errors.pop(0)
        self.settled.set_result(verdict)

    async def nack(self, *, delay: Any = None, reason: str = "") -> None:
        await self.settle("nack", reason, *(() if delay is None else (delay,)))

    async def reject(self, reason: str = "") -> None:
        await self.settle("reject", reason)

    async def release(self, *, delay: Any = None) -> None:
        await self.settle("later", delay)

    async def progress(self, value: bytes) -> None:
        self.told.append(value)


class Said:
    """What was said without waiting: known when the test says so."""

    def __init__(self, task: FakeTask, result: bytes | None) -> None:
        self._task = task
        self._result = result
        self._error: Exception | None = None
        self._callback: Callable[[Said], Any] | None = None

    def exception(self) -> Any:
        return self._error

    def add_done_callback(self, callback: Callable[[Said], Any]) -> None:
        self._callback = callback

    def known(self) -> None:
        if self._task.refusal is not None:
            self._error = self._task.refusal
        else:
            self._task.settled.set_result(("ack", self._result))
        assert self._callback is not None
        self._callback(self)


class FakeWorker:
    """Hands out what it was given; then a fetch waits."""

    def __init__(self) -> None:
        self.made: list[FakeTask] = []
        self.errors: list[Exception] = []
        self.asked: list[int] = []
        self.closed = False
        self.commits = asyncio.Event()  # when what was said without waiting becomes known
        self.commits.set()
        self._committing: set[asyncio.Task[None]] = set()
        self.generous = False  # gives more than was asked for, as if it had been leased ahead
        self._ready: list[FakeTask] = []
        self._some = asyncio.Event()

    def give(self, function: str, value: bytes = b"[[],{}]", **more: Any) -> FakeTask:
        task = FakeTask(self, function, value, **more)
        self._ready.append(task)
        self._some.set()
        return task

    async def fetch(self, max_records: int = 1, wait: float = 0.0) -> list[FakeTask]:
        self.asked.append(max_records)
        if self.errors:
            raise self.errors.pop(0)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._some.wait(), wait)
        count = len(self._ready) if self.generous else max_records
        found, self._ready = self._ready[:count], self._ready[count:]
        if not self._ready:
            self._some.clear()
        return found

    async def ack_nowait(self, task: FakeTask, result: bytes | None = None) -> Said:
        if task.errors:
            raise task.errors.pop(0)
        said = Said(task, result)
        committing = asyncio.create_task(self._commit(said))
        self._committing.add(committing)
        committing.add_done_callback(self._committing.discard)
        return said

    async def _commit(self, said: Said) -> None:
        await self.commits.wait()
        said.known()

    async def release(self, tasks: Sequence[FakeTask]) -> None:
        for task in tasks:
            await task.settle("release")

    async def close(self) -> None:
        self.closed = True


@asynccontextmanager
async def working(runner: Runner, *workers: FakeWorker) -> AsyncIterator[asyncio.Task[None]]:
    """A runner at work; it is stopped at the end."""
    work = asyncio.create_task(runner.work(workers))
    try:
        yield work
    finally:
        runner.stop()
        await asyncio.wait_for(work, PATIENCE_S)
        assert all(worker.closed for worker in workers)


async def settled(task: FakeTask) -> tuple[Any, ...]:
    return await asyncio.wait_for(asyncio.shield(task.settled), PATIENCE_S)


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test, with a bound."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 2 * PATIENCE_S))

    return run
