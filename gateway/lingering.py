"""Closes a connection so that its peer can read the last reply.

Idea: closing a socket while bytes from the peer are unread resets the connection, and the peer may lose replies that it
has not read yet. So the door closes its sending half, and reads and drops what the peer still sends until it closes.

Contract: the peer may send `LINGER_BYTES` more and take `LINGER_S`, then it is cut off; while it reads what waits for
it, `LINGER_S` begins anew. A TLS connection has no half to close: it stays open for that long, unless its peer has said
all that it will, and then it is closed as soon as all is written. Nothing is kept.
"""

from __future__ import annotations

import asyncio
from typing import Any

LINGER_S = 10.0
LINGER_BYTES = 256 << 20

PROGRESS_BYTES = 64 << 10
"""What a peer has to read within `LINGER_S` where so much waits for it."""


def linger(transport: Any, connection: asyncio.BaseProtocol | None = None, *, may_send: bool = True) -> None:
    """Close once the peer has read what was written. `connection` is told when it is lost, and of nothing else.

    `may_send`: False if the peer has said all that it will.
    """
    if transport.is_closing() or isinstance(transport.get_protocol(), _Lingering):
        return
    lingering = _Lingering(transport, connection)
    transport.set_protocol(lingering)
    transport.resume_reading()
    if transport.can_write_eof():
        transport.write_eof()
    elif not may_send:
        lingering.close_when_written()


class _Lingering(asyncio.Protocol):
    """In place of the protocol of a connection, from its last reply on.

    Invariant: `_unsent` bytes waited for the peer when `_timer` was set.
    """

    def __init__(self, transport: Any, connection: asyncio.BaseProtocol | None) -> None:
        self._transport = transport
        self._connection = connection
        self._received = 0
        self._ends = False  # once all is written
        self._wait()

    def close_when_written(self) -> None:
        """What is not written when a connection of TLS is closed has `HANDSHAKE_S` to be read."""
        if self._transport.get_write_buffer_size():
            self._ends = True
            self._transport.set_write_buffer_limits(0)
        else:
            self._transport.close()

    def resume_writing(self) -> None:
        if self._ends:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        if self._received > LINGER_BYTES:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        if self._connection is not None:
            self._connection.connection_lost(exc)

    def _wait(self) -> None:
        self._unsent = self._transport.get_write_buffer_size()
        self._timer = asyncio.get_running_loop().call_later(LINGER_S, self._look)

    def _look(self) -> None:
        unsent = self._transport.get_write_buffer_size()
        if self._unsent and unsent <= max(self._unsent - PROGRESS_BYTES, 0):
            self._wait()
        else:
            self._transport.abort()
