"""The return type of verbs that open something: `await` it, or use it at once.

    producer = await client.producer("flights")
    async with client.producer("flights") as producer: ...      # closes it, too
    async for batch in client.range("flights", 0, 0, 100): ...

Contract: a coroutine in all respects (tasks, `asyncio.run`, `gather`), which also is what it opens. Used once.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from typing import Any, ParamSpec, Self, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C", bound=AbstractAsyncContextManager[Any])


class _Verb(Coroutine[Any, Any, T]):
    """A coroutine, handed through."""

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        """As of a coroutine."""
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """As of a coroutine."""
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """As of a coroutine."""
        self._coroutine.close()


class Opening(_Verb[C]):
    """Opens something that is closed again: `await` it, or `async with`."""

    async def __aenter__(self) -> C:
        self._opened = await self
        return await self._opened.__aenter__()

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._opened.__aexit__(*error)


class OpeningIterator(_Verb[AsyncIterator[T]]):
    """Begins to read something: `await` it for an iterator, or `async for`."""

    async def __aiter__(self) -> AsyncIterator[T]:
        async for found in await self:
            yield found


class Begun:
    """What is opened without a request is there at once. It may be awaited as well, as what an `Opening` opens."""

    def __await__(self) -> Generator[Any, Any, Self]:
        return self
        yield  # it is a generator, which ends at once


def opens(function: Callable[P, Coroutine[Any, Any, C]]) -> Callable[P, Opening[C]]:
    """Have a coroutine function return an `Opening`."""

    @functools.wraps(function)
    def verb(*args: P.args, **kwargs: P.kwargs) -> Opening[C]:
        return Opening(function(*args, **kwargs))

    return verb


def reads(function: Callable[P, Coroutine[Any, Any, AsyncIterator[T]]]) -> Callable[P, OpeningIterator[T]]:
    """Have a coroutine function return an `OpeningIterator`."""

    @functools.wraps(function)
    def verb(*args: P.args, **kwargs: P.kwargs) -> OpeningIterator[T]:
        return OpeningIterator(function(*args, **kwargs))

    return verb
