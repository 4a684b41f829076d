"""Reads the greeting of a broker that hangs up before libzmq has read it: whether clients need a key there.

Idea: each side of ZMTP 3 sends its greeting in three steps, and names its mechanism in the last. libzmq's listener
hangs up once it has read another mechanism than its own, perhaps before its own greeting has left. This socket says the
first two steps and no more, so the listener sends all of its greeting, and waits.

Contract: never waits; tcp only.
"""

from __future__ import annotations

import zmq

from .url import Url
from .zmq_socket import NOBLOCK, Socket, SocketOwner, readable

_BROKER = b"broker"  # what the socket calls its peer
_BEGIN = b"\xff" + bytes(8) + b"\x7f" + b"\x03"  # the signature, and the major version
_CURVE = b"CURVE".ljust(20, b"\0")
_MECHANISM = slice(12, 32)

_OPTIONS = {
    "LINGER": 0,
    "IMMEDIATE": 0,  # the greeting waits for the connection
    "RECONNECT_IVL": -1,  # one try
}


class GreetingSocket(Socket):
    """A raw connection to the listener at `url`."""

    def __init__(self, context: SocketOwner, url: Url) -> None:
        """Raises CannotListen where no socket is left."""
        super().__init__(context, context.raw_socket(zmq.STREAM, _OPTIONS, 1 << 16))
        self._said = b""
        if url.host.startswith("["):
            self.raw.setsockopt(zmq.IPV6, 1)
        self.raw.setsockopt(zmq.CONNECT_ROUTING_ID, _BROKER)
        self.raw.connect(str(url))
        self._send([_BROKER, _BEGIN])

    def wants_key(self) -> bool:
        """Whether the listener's greeting has come, and names CURVE."""
        while len(self._said) < _MECHANISM.stop and readable(self.raw):
            self._said += self.raw.recv_multipart(NOBLOCK)[1]
        return self._said[_MECHANISM] == _CURVE
