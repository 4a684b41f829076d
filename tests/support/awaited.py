"""The asyncio client with the manners of the other one, so that one test body holds both to the same promises.

`Awaited` wraps an async object: awaiting methods wait, async iterators iterate, `async with` becomes `with`.
The loop only runs inside calls, as it would for a program that awaits nothing else.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

from penstock.clients.aio.client import AsyncClient, connect
from penstock.clients.aio.consumer import AsyncConsumer
from penstock.clients.aio.futures import AsyncFuture, AsyncSettleFuture
from penstock.clients.aio.producer import AsyncProducer, AsyncStaging
from penstock.clients.aio.task import AsyncTask
from penstock.clients.aio.topics_consumer import AsyncTopicsConsumer
from penstock.clients.aio.worker import AsyncWorker

WRAPPED = (
    AsyncClient, AsyncConsumer, AsyncFuture, AsyncProducer, AsyncSettleFuture, AsyncStaging, AsyncTask,
    AsyncTopicsConsumer, AsyncWorker, AbstractAsyncContextManager,
)  # fmt: skip
BEGUN_AT_ONCE = ("staging", "transaction")
"""Methods that do not wait, and give something that has to be wrapped."""


class Awaited:
    """See the module."""

    def __init__(self, inner: Any, runner: asyncio.Runner) -> None:
        self._inner = inner
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if inspect.iscoroutinefunction(inspect.unwrap(found)):
            return lambda *args, **kwargs: self._wrap(self._runner.run(found(*map(_unwrap, args), **kwargs)))
        if name in BEGUN_AT_ONCE:
            return lambda *args, **kwargs: self._wrap(found(*args, **kwargs))
        if name == "batches":
            return lambda *args, **kwargs: self._iterate(found(*args, **kwargs))
        return found

    def result(self, timeout: float | None = None) -> Any:
        """Of a future."""
        return self._runner.run(_awaited(self._inner))

    def __iter__(self) -> Iterator[Any]:
        return self._iterate(aiter(self._inner))

    def __enter__(self) -> Awaited:
        return self._wrap(self._runner.run(self._inner.__aenter__()))

    def __exit__(self, *error: Any) -> None:
        self._runner.run(self._inner.__aexit__(*error))

    def _iterate(self, source: Any) -> Iterator[Any]:
        while True:
            try:
                yield self._wrap(self._runner.run(_next(source)))
            except StopAsyncIteration:
                return

    def _wrap(self, found: Any) -> Any:
        if isinstance(found, list):
            return [self._wrap(each) for each in found]
        if inspect.isasyncgen(found):
            return self._iterate(found)
        return Awaited(found, self._runner) if isinstance(found, WRAPPED) else found


def _unwrap(given: Any) -> Any:
    """What was wrapped, to be handed back to its own kind."""
    if isinstance(given, (list, tuple)):
        return [_unwrap(each) for each in given]
    return given._inner if isinstance(given, Awaited) else given


async def _awaited(thing: Any) -> Any:
    return await thing


async def _next(source: Any) -> Any:
    return await anext(source)


def connect_awaited(url: str, runner: asyncio.Runner, **how: Any) -> Any:
    """As `penstock.connect`."""
    return Awaited(runner.run(connect(url, **how)), runner)
