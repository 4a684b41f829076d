"""Waits for sockets and plain descriptors at once.

Idea: one epoll. A socket may hold something that its descriptor does not show (a message taken from the kernel and not
handed out, an event that libzmq noticed while it sent), so each is asked before the sleep.

Contract: level-triggered: anything not drained is reported again. Rounding never shortens a wait.
"""

from __future__ import annotations

import select
from math import ceil
from typing import Protocol

DAY_S = 86400.0
_FOREVER = float("inf")


class Pollable(Protocol):
    """A socket."""

    @property
    def fd(self) -> int:
        """Readable when `refresh` has news."""
        ...

    @property
    def readable(self) -> bool:
        """Whether there is something to receive, as far as known without looking at `fd`."""
        ...

    def patience_s(self) -> float:
        """Seconds until `refresh` is due even if `fd` stays silent."""
        ...

    def refresh(self) -> None:
        """Find out what has happened."""
        ...


def milliseconds(wait_s: float | None) -> int | None:
    """A wait as `poll` takes it, rounded up; a day at most, as it takes no more than 24. None: for ever."""
    return None if wait_s is None else ceil(min(wait_s, DAY_S) * 1000)


class Poller:
    """See the module."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._sockets: dict[int, Pollable] = {}

    def add(self, member: Pollable | int) -> None:
        """Watch a socket or a descriptor for something to read."""
        descriptor = member if isinstance(member, int) else member.fd
        self._epoll.register(descriptor, select.EPOLLIN)
        if not isinstance(member, int):
            self._sockets[descriptor] = member

    def remove(self, member: Pollable | int) -> None:
        """Stop watching a socket or a descriptor; call it before that is closed."""
        descriptor = member if isinstance(member, int) else member.fd
        self._epoll.unregister(descriptor)
        self._sockets.pop(descriptor, None)

    def poll(self, timeout_s: float | None) -> list[Pollable | int]:
        """The members that are readable, each once; [] after `timeout_s` seconds (None: wait for ever)."""
        ready: dict[Pollable | int, None] = {}
        for member in self._sockets.values():
            if (patience_s := member.patience_s()) != _FOREVER:
                timeout_s = patience_s if timeout_s is None else min(timeout_s, patience_s)
                if patience_s <= 0.0:
                    member.refresh()
            if member.readable:
                ready[member] = None
        for descriptor, _ in self._epoll.poll(0.0 if ready else timeout_s):
            member = self._sockets.get(descriptor)
            if member is not None:
                member.refresh()
            ready[descriptor if member is None else member] = None
        return list(ready)

    def close(self) -> None:
        """Watch nothing any more."""
        self._epoll.close()
