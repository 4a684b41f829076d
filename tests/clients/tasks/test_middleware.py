"""What an app puts around each call: in which order, where, and what becomes of exceptions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from penstock import CurrentTask, Tasks, current_task
from penstock.clients.tasks.outcome import Failed, Returned
from penstock.clients.tasks.performing import perform, perform_async
from penstock.errors import InvalidArgument


@pytest.fixture
def app() -> Tasks:
    return Tasks("mem://nowhere")


def call(app: Tasks, function: Any) -> Any:
    made = app.task(name="it")(function)
    return perform(function, made.arguments, ([], {}), "json", CurrentTask("q-0-1", 2, name="it"), app.hooks)


def test_middleware_is_around_each_call_and_the_first_is_outermost(app: Tasks) -> None:
    seen: list[Any] = []

    @app.middleware
    def outer(task: CurrentTask) -> Iterator[None]:
        seen.append(("begin", task.id, task.attempt, task.name, current_task() is task))
        yield
        seen.append("end")

    @app.middleware
    @contextmanager
    def inner(task: CurrentTask) -> Iterator[None]:
        seen.append("inner")
        yield

    assert call(app, lambda: seen.append("call")) == Returned(b"")
    assert seen == [("begin", "q-0-1", 2, "it", True), "inner", "call", "end"]


def test_exceptions_of_the_call_go_through_middleware(app: Tasks) -> None:
    seen: list[str] = []

    @app.middleware
    def counts(task: CurrentTask) -> Iterator[None]:
        try:
            yield
        except ZeroDivisionError:
            seen.append("failed")
            raise

    assert isinstance(call(app, lambda: 1 // 0), Failed)
    assert seen == ["failed"]


def test_middleware_that_raises_fails_the_call_and_one_that_swallows_completes_it(app: Tasks) -> None:
    @app.middleware
    def swallows(task: CurrentTask) -> Iterator[None]:
        try:
            yield
        except KeyError:
            return

    def fails() -> int:
        raise KeyError

    assert call(app, fails) == Returned(b"")

    @app.middleware
    def refuses(task: CurrentTask) -> Iterator[None]:
        raise OSError("no session")
        yield

    other = Tasks("mem://nowhere")
    other.middleware(refuses)
    found = call(other, lambda: 1)
    assert (found.reason, "builtins.OSError" in found.kinds) == ("OSError: no session", True)


def test_an_async_call_has_middleware_of_both_kinds(app: Tasks) -> None:
    seen: list[str] = []

    @app.middleware
    async def session(task: CurrentTask) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        seen.append("opened")
        yield
        seen.append("closed")

    @app.middleware
    def counts(task: CurrentTask) -> Iterator[None]:
        seen.append("counted")
        yield

    @app.task(name="far")
    async def far() -> int:
        seen.append("called")
        return 3

    about = (far.function, far.arguments, ([], {}), "json", CurrentTask(name="far"), app.hooks)
    assert asyncio.run(perform_async(*about)) == Returned(b"3")  # pyright: ignore[reportArgumentType]
    assert seen == ["opened", "counted", "called", "closed"]
    found = call(app, lambda: 1)
    assert "is asynchronous, and it is a def" in found.reason


def test_middleware_is_a_function(app: Tasks) -> None:
    with pytest.raises(InvalidArgument, match="is not a function of the current task"):
        app.middleware(3)  # pyright: ignore[reportArgumentType]
