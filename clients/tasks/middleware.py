"""Middleware: what an app puts around each call of its functions.

Idea: a hook is a function of the current task that gives a context manager: its beginning runs before the call, its
end after it, and exceptions of the call pass through it. A generator with one `yield` is made one.

Contract: hooks run where the function runs: in its thread, on its loop, in its process. The first that was added is
the outermost. One that raises fails the call; one that swallows an exception completes it without a result.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from typing import Any

from ..errors import InvalidArgument
from .context import CurrentTask

Hook = Callable[[CurrentTask], AbstractContextManager[Any] | AbstractAsyncContextManager[Any]]
"""What runs around each call."""

GivenHook = Hook | Callable[[CurrentTask], Iterator[Any] | AsyncIterator[Any]]
"""The same, or a generator function."""


def as_hook(given: Any) -> Hook:
    """A hook of what an application gives. Raises InvalidArgument."""
    if not callable(given):
        raise InvalidArgument(f"hook={given!r} is not a function of the current task")
    if inspect.isgeneratorfunction(given):
        return contextmanager(given)
    made: Any = asynccontextmanager(given) if inspect.isasyncgenfunction(given) else given
    return made


def around(hooks: Sequence[Hook], task: CurrentTask, call: Callable[[], Any]) -> Any:
    """Call a `def` within hooks. Returns its result, None if a hook swallowed its exception."""
    with ExitStack() as stack:
        for hook in hooks:
            stack.enter_context(_entered(hook, task))
        return call()


async def around_async(hooks: Sequence[Hook], task: CurrentTask, call: Callable[[], Any]) -> Any:
    """As `around`, of an `async def`."""
    async with AsyncExitStack() as stack:
        for hook in hooks:
            made = hook(task)
            if isinstance(made, AbstractAsyncContextManager):
                await stack.enter_async_context(made)
            else:
                stack.enter_context(made)
        return await call()


def _entered(hook: Hook, task: CurrentTask) -> AbstractContextManager[Any]:
    made = hook(task)
    if isinstance(made, AbstractContextManager):
        return made
    raise InvalidArgument(f"middleware {hook!r} is asynchronous, and {task.name} is a def: give it a plain generator")
