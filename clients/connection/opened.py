"""The objects a client has open, closed with it unless they were closed before.

Pure: knows nothing of them but whether they are closed.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar


class Closable(Protocol):
    """An object that has to be closed."""

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        ...


T = TypeVar("T", bound=Closable)


class Opened:
    """See the module."""

    def __init__(self) -> None:
        self._open: dict[Any, None] = {}

    def add(self, opened: T) -> T:
        """Add an object, and remove those closed meanwhile. Threads may add at once."""
        self._open[opened] = None  # in place: what another thread adds stays, too
        for other in list(self._open):
            if other.closed:
                self._open.pop(other, None)
        return opened

    def clear(self) -> None:
        """Remove all."""
        self._open = {}

    def newest_first(self) -> list[Any]:
        """All of them, newest first: a new one may need an older one."""
        return list(reversed(self._open))
