"""The connecting side of `unix://`: one connection to one server, made anew by itself.

Contract: the calls of zmq_connecting.ClientSocket; nothing here waits except `poll`, and nothing happens but in calls.
One thread at a time; only `wake` is for any. Knows no messages.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from .bell import EventBell
from .errors import ProtocolError, none_left
from .sent import Sent
from .socket_options import MESSAGE_BYTES_MAX
from .unix_connection import READ_BYTES, READING, Lost, UnixConnection
from .url import connect_url

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

UNSENT_BYTES_MAX = 32 << 20
"""What waits for the server to read before no more is taken: above any producer's window, which keeps it all anyway."""

RETRY_MIN_S, RETRY_MAX_S = 0.1, 0.4
"""Between two tries to connect; doubles. A try on one machine costs microseconds."""

_READS_MAX = 8
"""In one look: what comes meanwhile is for the next."""

_FOREVER = float("inf")


class UnixClient:
    """One connection to a server, made again by itself while it is asked for with `receive` or `poll`.

    `connections` counts the connections made so far and `connected` says whether the last one stands. What was sent
    over an older connection may never have arrived, so a client greets and sends again whenever `connections` moved.
    """

    def __init__(
        self, url: str, *, max_bytes: int = MESSAGE_BYTES_MAX, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Raises InvalidUrl, or CannotListen when no descriptors are left."""
        self.connections = 0
        self._path = connect_url(url).path
        self._max_bytes = max_bytes
        self._clock = clock
        try:
            self._epoll = select.epoll()
            self._wake = EventBell()
        except OSError as error:
            raise none_left(error.strerror) from error
        self._woken = False  # `_wake` may be readable
        self._epoll.register(self._wake, select.EPOLLIN)
        self._spare = memoryview(bytearray(READ_BYTES))
        self._connection: UnixConnection | None = None
        self._inbox: deque[list[Buffer]] = deque()
        self.more = False
        """The last message that was received was not the last one found."""
        self._gathers = False
        """What is sent waits for the end of a block."""
        self._retry_at = 0.0
        self._retry_s = RETRY_MIN_S
        self._made_at = 0.0  # the latest connection
        self._connect()

    refusal = ""
    """Why it will never be let in: a broker takes every connection here, and refuses by an answer."""

    @property
    def connected(self) -> bool:
        """Whether the latest connection stands."""
        return self._connection is not None

    @property
    def fd(self) -> int:
        """For foreign event loops; level-triggered. Silent while there is no connection: see `due`."""
        return self._epoll.fileno()

    @property
    def readable(self) -> bool:
        """Whether there is something to receive that `fd` does not tell of."""
        return bool(self._inbox)

    def due(self) -> float:
        """When to `receive`, though `fd` says nothing: the next try to connect, on the clock."""
        return self._retry_at if self._connection is None else _FOREVER

    # -- the connection ---------------------------------------------------------------------------

    def _connect(self) -> None:
        try:
            raw = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        except OSError:  # no descriptor left for now
            self._put_off()
            return
        try:
            raw.connect(self._path)
        except OSError:  # no listener, or its backlog is full: to be retried
            raw.close()
            self._put_off()
            return
        self._connection = UnixConnection(raw, max_bytes=self._max_bytes, spare=self._spare)
        self._epoll.register(self._connection.fd, READING)
        self._made_at = self._clock()
        self.connections += 1

    def _put_off(self) -> None:
        self._retry_at = self._clock() + self._retry_s
        self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)

    def _lose(self) -> None:
        """The connection has ended. One that worked for a while is made anew at once, others after a pause."""
        connection, self._connection = self._connection, None
        assert connection is not None, "a connection is lost once"
        self._epoll.unregister(connection.fd)
        connection.close()
        if connection.heard and self._clock() >= self._made_at + RETRY_MAX_S:
            self._retry_at, self._retry_s = self._clock(), RETRY_MIN_S
        else:
            self._put_off()

    def refresh(self) -> None:
        """Find out what has happened: mostly that something came, and reading tells as much as asking before."""
        if self._gathers:  # an interrupt kept a block from its end
            self._leave_together()
        connection = self._connection
        if connection is None or connection.stalled or self._woken or not self._read(connection):
            self._look(0.0)

    def _look(self, timeout_s: float | None) -> None:
        """Wait for something to happen, and see to it."""
        self._woken = False
        for fd, event in self._epoll.poll(timeout_s):
            if fd == self._wake.fileno():
                self._wake.hush()
                continue
            if event & select.EPOLLOUT and self._connection is not None:
                self._flush(self._connection)
            if event & ~select.EPOLLOUT and self._connection is not None:
                self._read(self._connection)
        if self._connection is None and self._clock() >= self._retry_at:
            self._connect()

    def _read(self, connection: UnixConnection) -> bool:
        """Read what is there. False once the connection has ended."""
        try:
            for _ in range(_READS_MAX):
                self._inbox.extend(connection.receive())
                if not connection.more:
                    break
        except (Lost, ProtocolError):
            self._lose()
            return False
        return True

    def _flush(self, connection: UnixConnection) -> None:
        with suppress(Lost):  # as in `send`
            connection.flush()
        self._epoll.modify(connection.fd, connection.events)

    # -- messages ---------------------------------------------------------------------------------

    def send(self, frames: Sequence[Buffer]) -> Sent:
        """FULL while there is no connection, or when the server reads more slowly than we send.

        What was taken must not change before it has left.
        """
        connection = self._connection
        if connection is None or connection.unsent > UNSENT_BYTES_MAX:
            return Sent.FULL
        connection.put(frames)
        if not self._gathers:
            self._leave(connection)
        return Sent.TAKEN

    def _leave(self, connection: UnixConnection) -> None:
        stalled = connection.stalled
        try:
            connection.flush()
        except Lost:
            return  # what the server said before it left is still to be read; reading comes to its end
        if connection.stalled != stalled:
            self._epoll.modify(connection.fd, connection.events)

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is sent in this block leaves at its end, with one write."""
        self._gathers = True
        try:
            yield
        finally:
            self._leave_together()

    def _leave_together(self) -> None:
        self._gathers = False
        if self._connection is not None:
            self._leave(self._connection)

    def receive(self) -> list[Buffer] | None:
        """The next message; None when none waits. Looks for more when those that it found were handed out."""
        inbox = self._inbox
        if not inbox:
            self.refresh()
            if not inbox:
                self.more = False
                return None
        found = inbox.popleft()
        self.more = bool(inbox)
        return found

    def poll(self, timeout_s: float | None) -> bool:
        """Wait until a message can be received or the connection changed. False on timeout."""
        deadline = _FOREVER if timeout_s is None else self._clock() + timeout_s
        before = self.connections, self.connected
        while not self._inbox and (self.connections, self.connected) == before:
            until = min(deadline, self.due())
            self._look(None if until == _FOREVER else max(until - self._clock(), 0.0))
            if deadline != _FOREVER and self._clock() >= deadline:
                break
        return bool(self._inbox) or (self.connections, self.connected) != before

    def break_off(self) -> None:
        """End the connection, whatever was begun on it; another is made as after any loss."""
        if self._connection is not None:
            self._connection.break_off()

    def wake(self) -> None:
        """Make `fd` readable until the next look, from any thread."""
        if not self._epoll.closed:
            self._woken = True
            self._wake.ring()
            self._woken = True  # again, if a reader looked between the two: once too often, never too seldom

    def close(self) -> None:
        """Drop the connection and what it holds. Repeating it does nothing."""
        self._epoll.close()
        self._wake.close()
        self._inbox.clear()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
