"""Waits for descriptors: by Linux's own calls, or by portable ones elsewhere.

    Front      one descriptor that tells of several               epoll            else a thread in select
    waiting    a call that waits until a descriptor is readable   poll             else select

Contract: a front is level-triggered. It is used under its owner's lock, except that several threads may wait for
`fileno` at once. Must not know: what is read.
"""

from __future__ import annotations

import select
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ...transport.bell import Bell


class EpollFront:
    """A front that is an epoll."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self.fileno = self._epoll.fileno
        self.remove = self._epoll.unregister
        self.close = self._epoll.close

    def add(self, descriptor: int) -> None:
        """Watch a descriptor."""
        self._epoll.register(descriptor, select.EPOLLIN)

    def ready(self) -> list[int]:
        """The descriptors that are readable now."""
        return [descriptor for descriptor, _ in self._epoll.poll(0)]


class SelectFront:
    """A front that is a bell, rung by a thread that waits until one of the descriptors is readable."""

    def __init__(self) -> None:
        self._bell = Bell()
        self._changed = Bell()  # wakes the thread
        self._watched: dict[int, None] = {}
        self._looked = threading.Event()  # the thread may look again: what it told of was seen to
        self._looked.set()
        self._closed = False
        self.fileno = self._bell.fileno
        self._thread = threading.Thread(target=self._run, name="penstock-select", daemon=True)
        self._thread.start()

    def add(self, descriptor: int) -> None:
        """Watch a descriptor."""
        self._watched[descriptor] = None
        self._changed.ring()

    def remove(self, descriptor: int) -> None:
        """Stop watching a descriptor; call it before the descriptor is closed."""
        del self._watched[descriptor]
        self._changed.ring()

    def ready(self) -> list[int]:
        """The descriptors that are readable now."""
        self._bell.hush()
        found = select.select(list(self._watched), [], [], 0)[0]
        self._looked.set()
        return found

    def close(self) -> None:
        """End the thread."""
        self._closed = True
        self._looked.set()
        if self._thread.is_alive():  # not when an interrupted close has seen to it: the bells may be closed
            self._changed.ring()
            self._thread.join()
        self._bell.close()
        self._changed.close()

    def _run(self) -> None:
        while True:
            self._looked.wait()
            if self._closed:
                return
            found: list[Any] = []
            with suppress(OSError, ValueError):  # one was removed and closed meanwhile
                found = select.select([self._changed, *list(self._watched)], [], [])[0]
            if self._changed in found:
                self._changed.hush()
                found.remove(self._changed)
            if found and not self._closed:
                self._looked.clear()
                self._bell.ring()


def _wait_by_poll(descriptor: int) -> Callable[[float | None], Any]:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return poll.poll


def _wait_by_select(descriptor: int) -> Callable[[float | None], Any]:
    def wait(milliseconds: float | None) -> list[int]:
        return select.select([descriptor], [], [], None if milliseconds is None else max(milliseconds, 0.0) / 1000)[0]

    return wait


Front = EpollFront if hasattr(select, "epoll") else SelectFront
waiting = _wait_by_poll if hasattr(select, "poll") else _wait_by_select
"""`waiting(descriptor)(milliseconds)`: whether it is readable by then; None waits for ever."""
