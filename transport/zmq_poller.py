"""Waiting for ZeroMQ sockets: with zmq_sockets.py the only module that imports zmq.

Contract: as level-triggered as libzmq's own poll; a wait is never cut short by rounding. Knows no messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

import zmq

if TYPE_CHECKING:
    from .zmq_sockets import Socket


class ZmqPoller:
    """Waits for sockets, and for plain descriptors (an eventfd, a pipe) beside them.

    Waiting costs 0.8 us per member: sockets that are only sent on do not belong in one.
    """

    def __init__(self) -> None:
        self._poller = zmq.Poller()
        self._owner: dict[Any, Socket | int] = {}

    def add(self, member: Socket | int) -> None:
        """Watch a socket or a descriptor for something to read."""
        for raw in _watched(member):
            self._poller.register(raw, zmq.POLLIN)
            self._owner[raw] = member

    def remove(self, member: Socket | int) -> None:
        """Stop watching; call it before the member is closed."""
        for raw in _watched(member):
            self._poller.unregister(raw)
            del self._owner[raw]

    def poll(self, timeout_s: float | None) -> list[Socket | int]:
        """The members that are readable, each once; [] after `timeout_s` seconds (None: wait for ever)."""
        # Rounded up: a wait of half a millisecond must not become a busy loop.
        events = self._poller.poll(None if timeout_s is None else ceil(timeout_s * 1000))
        ready: dict[Socket | int, None] = {}
        for raw, _ in events:
            member = self._owner[raw]
            if not isinstance(member, int):
                member.refresh(raw)
            ready[member] = None
        return list(ready)


def _watched(member: Socket | int) -> Sequence[Any]:
    return [member] if isinstance(member, int) else member.watched
