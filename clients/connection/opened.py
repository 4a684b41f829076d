"""The objects a client has open, closed with it unless they were closed before.

Pure: knows nothing of them but whether they are closed.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar


class Closable(Protocol):
    """Whatever has to be closed."""

    @property
    def closed(self) -> bool:
        """Whether it was."""
        ...


T = TypeVar("T", bound=Closable)


class Opened:
    """See the module."""

    def __init__(self) -> None:
        self._open: dict[Any, None] = {}

    def add(self, opened: T) -> T:
        """Remember it; those that were closed meanwhile are forgotten."""
        self._open = {other: None for other in self._open if not other.closed} | {opened: None}
        return opened

    def clear(self) -> None:
        """Forget all."""
        self._open = {}

    def newest_first(self) -> list[Any]:
        """All of them: what was opened last may need what was opened before."""
        return list(reversed(self._open))
