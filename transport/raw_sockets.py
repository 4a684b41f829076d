"""The raw sockets of a ZeroMQ context, including those whose creation was interrupted.

Idea: libzmq ends a context once all of its sockets are closed, and waits forever for one whose creation Ctrl-C
interrupted. A socket is registered here before libzmq makes it.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

import zmq


class RawSockets:
    """See the module."""

    def __init__(self) -> None:
        self._made: WeakSet[zmq.Socket[bytes]] = WeakSet()

    def make(self, context: zmq.Context[Any], kind: int) -> zmq.Socket[bytes]:
        """A socket, as `zmq.Context.socket` wants it made."""
        raw: zmq.Socket[bytes] = zmq.Socket.__new__(zmq.Socket)
        self._made.add(raw)
        raw.__init__(context, kind)
        return raw

    def close(self) -> None:
        """Close what nothing else has closed."""
        for raw in list(self._made):
            raw.close(0)
