"""The raw sockets of a ZeroMQ context, including those whose creation was interrupted.

Idea: libzmq ends a context once all of its sockets are closed, and waits forever for one whose creation Ctrl-C
interrupted. A socket is registered here before libzmq makes it, until it is closed: the garbage collector may end a
context before the sockets that became garbage with it.
"""

from __future__ import annotations

import weakref
from typing import Any

import zmq

KEPT_MIN = 16
"""Closed sockets are dropped when so many have been made since, or as many as there are."""


class RawSockets:
    """See the module. They end with their owner, in any case before pyzmq would have the context wait for them."""

    def __init__(self, owner: object, context: zmq.Context[Any]) -> None:
        self._context = context
        self._made: list[zmq.Socket[bytes]] = []
        self._drop_at = KEPT_MIN
        weakref.finalize(owner, self.end).atexit = False

    def make(self, context: zmq.Context[Any], kind: int) -> zmq.Socket[bytes]:
        """A socket, as `zmq.Context.socket` wants it made."""
        raw: zmq.Socket[bytes] = zmq.Socket.__new__(zmq.Socket)
        if len(self._made) >= self._drop_at:
            self._made = [made for made in self._made if not made.closed]
            self._drop_at = 2 * len(self._made) + KEPT_MIN
        self._made.append(raw)
        raw.__init__(context, kind)
        return raw

    def end(self) -> None:
        """Close what nothing else has closed, then the context. Repeating it does nothing."""
        for raw in self._made:
            raw.close(0)
        self._context.term()
