"""A shell waits on behalf of a core, which never waits. Threads have `Driver`, an event loop `AsyncDriver`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from .steps import Steps

if TYPE_CHECKING:
    from .connection import Connection


class Shell(Protocol):
    """See the module."""

    connection: Connection
    may_append: bool

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Held while anything of the client changes."""
        ...

    def run(self, steps: Steps[Any]) -> Any:
        """Drive steps to their end. Returns their result, or what to await for it."""
        ...

    def do(self, call: Callable[[], Any]) -> Any:
        """Run a step that does not wait, with the lock held."""
        ...

    def glance(self) -> None:
        """Take arrived answers in the middle of a call that does not wait (lock held)."""
        ...

    def told(self) -> None:
        """Wake threads that wait for outcomes which the present call knew by itself (lock held)."""
        ...
