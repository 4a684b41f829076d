"""One connection over a Unix stream socket: messages out of it, messages into it, never waiting.

Idea: what the kernel does not take waits in a queue, as it is, and leaves with as few calls as it fits in; one
call brings what is there, up to the end of a large message and some way into the next.

Contract: `Lost` is raised once the other side has ended; then `close` is all that is left to do. What was put must not
change before it has left. Must not know: the identity of the peer, the meaning of messages.
"""

from __future__ import annotations

import select
import socket
import struct
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

from .framing import Inflow, framed

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

READ_BYTES = 64 << 10
"""Size of the memory that reads of unknown size share."""

KERNEL_BYTES = 1 << 20
"""Asked of the kernel for each direction (it gives at most net.core.wmem_max): some batches of 256 KiB on their way."""

_READS_MAX = 16
"""Reads of one connection in a row, for one large message."""

_BUFFERS_MAX = 256
"""In one call; the kernel takes up to 1024."""

READING = select.EPOLLIN | select.EPOLLRDHUP
"""The events to watch a connection for."""

_CREDENTIALS = struct.Struct("3i")


class Lost(Exception):
    """The connection is over; the text says why."""


class UnixConnection:
    """See the module. Takes over the socket."""

    def __init__(self, raw: socket.socket, *, max_bytes: int, spare: memoryview) -> None:
        """`spare` is memory that other connections of the same thread may use between two calls."""
        raw.setblocking(False)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            raw.setsockopt(socket.SOL_SOCKET, option, KERNEL_BYTES)
        self.fd = raw.fileno()
        self.more = False  # the last read filled its memory: there may be more to read at once
        self.heard = False  # a whole message came over it
        self.unsent = 0  # bytes that wait for the other side to read
        self.stalled = False  # the last flush left some of them
        self.heeded = True  # more is read from it
        self.held = False  # nothing of it is handed out
        self.watched = 0  # the events that a poller looks for
        self.inbox: deque[list[Buffer]] = deque()
        """Messages that were read and not handed out."""
        self._socket = raw
        self._inflow = Inflow(max_bytes)
        self._spare = spare
        self._out: deque[Buffer] = deque()

    def put(self, frames: Sequence[Buffer]) -> None:
        """Queue one message for `flush`."""
        for buffer in framed(frames):
            self._out.append(buffer)
            self.unsent += len(buffer)

    def flush(self) -> None:
        """Send what waits, as far as the kernel takes it. Raises Lost, and then nothing waits any more."""
        out = self._out
        self.stalled = False
        try:
            while out:
                if len(out) > 1:
                    self._sent(self._socket.sendmsg(list(islice(out, _BUFFERS_MAX))))
                elif (count := self._socket.send(out[0])) == self.unsent:
                    out.clear()
                    self.unsent = 0
                else:
                    self._sent(count)
        except BlockingIOError:
            self.stalled = True
        except OSError as error:
            out.clear()
            self.unsent = 0
            raise Lost(error.strerror) from error

    def break_off(self) -> None:
        """A call was interrupted, maybe between bytes and taking note of them: where messages begin is not known."""
        self._out.clear()
        self.unsent = 0
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _sent(self, count: int) -> None:
        self.unsent -= count
        out = self._out
        while out and count >= len(out[0]):
            count -= len(out.popleft())
        if count:
            out[0] = memoryview(out[0])[count:]

    def receive(self) -> list[list[Buffer]]:
        """The messages that have become whole, maybe none. Raises Lost, and ProtocolError for what is no framing."""
        for _ in range(_READS_MAX):
            places = self._inflow.places(self._spare) if self._inflow.begun else [self._spare]
            self.more = False
            try:
                count = self._socket.recv_into(places[0]) if len(places) == 1 else self._socket.recvmsg_into(places)[0]
            except BlockingIOError:
                return []
            except OSError as error:
                raise Lost(error.strerror) from error
            if not count:
                raise Lost("closed by the other side")
            self.more = count == sum(map(len, places))
            found = self._inflow.take(count, self._spare)
            if found:
                self.heard = True
                return found
            if not self.more:
                return []
        return []

    @property
    def events(self) -> int:
        """The events to watch for now."""
        return (READING if self.heeded else 0) | (select.EPOLLOUT if self.stalled else 0)

    def describe(self) -> str:
        """The peer's process and user, for the log."""
        pid, uid = self._credentials()
        return f"process {pid} of user {uid}"

    @cached_property
    def speaker(self) -> str:
        """The user that the peer's process had when it connected, as the kernel vouches for it."""
        return f"uid:{self._credentials()[1]}"

    def _credentials(self) -> tuple[int, int]:
        raw = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return _CREDENTIALS.unpack(raw)[:2]

    def close(self) -> None:
        """End it; what waits is dropped. Repeating it does nothing."""
        self._out.clear()
        self._socket.close()
