"""Notifies objects of a parent process about a fork, before anything else runs in the child.

Idea: a fork copies locks that other threads hold, sockets and descriptors; using them in the child would hang, or send
messages as the parent. A notified object refuses its verbs through state they check anyway, so no call has to ask
which process it is in.

Contract: objects are held weakly. `_forked` neither waits nor touches anything the parent still uses.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any, Protocol


class Shared(Protocol):
    """Anything that a child must not use as its parent does."""

    def _forked(self) -> None:
        """This process is a child of the one that made the object."""
        ...


_shared: weakref.WeakSet[Shared] = weakref.WeakSet()


def tell(shared: Shared) -> None:
    """Have `shared._forked()` called in forked children for as long as it lives."""
    _shared.add(shared)


def in_child(call: Callable[[], None]) -> None:
    """Have `call` called in every forked child; without an effect where processes do not fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=call)


def renew(lock: Any) -> None:
    """Free the copy of an RLock that a thread of the parent may hold, unless it is the one that goes on here."""
    if not lock._is_owned():
        lock._at_fork_reinit()


class Parents:
    """Replaces an object of the parent in a child: any use raises `error()`."""

    def __init__(self, error: Callable[[], Exception]) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        raise self._error()

    def __enter__(self) -> Any:
        raise self._error()

    def __exit__(self, *_: object) -> None:
        """Never entered."""


def _tell_all() -> None:
    for shared in list(_shared):
        shared._forked()


in_child(_tell_all)
