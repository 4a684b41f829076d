"""Steps: a verb written once, for threads and event loops.

Idea: a verb is a plain generator. It does what it can now and yields a `Pause` when it needs something to arrive; a
shell then waits (a thread in poll, or a task on the loop) and resumes it. Its return value is the verb's result, and
its exception the verb's error.

Contract: a step never blocks or waits by itself; its driver holds the client's lock while it runs, and not while it
pauses. Resuming early is harmless: a step checks again what it waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Protocol, TypeVar

import msgspec

T = TypeVar("T")


class Sleeper(Protocol):
    """Something besides the connection to wait for: a mapped reader's slot on the board."""

    def sleep(self, seconds: float) -> None:
        """Block this thread until woken, at most `seconds`. Called without the client's lock."""
        ...

    def wake(self) -> None:
        """End another thread's `sleep`."""
        ...


class Pause(msgspec.Struct, frozen=True, gc=False):
    """Wait until something arrives, or until `until` on the client's clock.

    `outcome`: nothing else than the end of this can let the step go on: a question's answer, a batch's offset. Of
    thousands that wait, one answer then wakes one.
    """

    until: float
    sleeper: Sleeper | None = None
    outcome: object = None


Steps = Generator[Pause, None, T]

FOREVER = float("inf")
"""A deadline that never comes."""


class Once:
    """A callback that is begun once, however often it is asked: a driver asks again after Ctrl-C."""

    __slots__ = ("_callback", "_known")

    def __init__(self, callback: Callable[[Any], object], known: object) -> None:
        """To call `callback(known)`."""
        self._callback: Callable[[Any], object] | None = callback
        self._known = known

    def __call__(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback(self._known)
