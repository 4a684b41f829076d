"""ZeroMQ's sockets that connect: a DEALER that asks and hears answers, and a PULL for deliveries.

Contract: nothing here blocks except `poll`; `receive` returns None when nothing waits. The DEALER reconnects by itself
and counts its connections, the PULL never does.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING

import zmq
from zmq.utils.monitor import parse_monitor_message

from .errors import InvalidUrl
from .sent import Sent
from .url import Url
from .zmq_socket import FRAMES_MAX, NOBLOCK, Socket, SocketOwner, number, readable

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

CLIENT_EVENTS = 1000  # that a client has yet to read


class PullSocket(Socket):
    """A PULL."""

    def connect(self, url: Url) -> None:
        """Connect to `url`, which is checked; the connection comes about later. Raises InvalidUrl, then closed."""
        try:
            if url.host.startswith("["):
                self.raw.setsockopt(zmq.IPV6, 1)
            self.raw.connect(str(url))
        except zmq.ZMQError as error:
            self.close()
            raise InvalidUrl(f"cannot connect to {url}: {error.strerror}") from error

    def receive(self) -> list[Buffer] | None:
        """The next message; None when none waits."""
        try:
            return self._receive_rest()[0]
        except zmq.Again:
            return None


class ClientSocket(PullSocket):
    """A DEALER that knows about its connection.

    `connections` counts the connections made so far and `connected` says whether the last one stands; both
    move in `poll` and `refresh`. What was sent over an older connection may never have arrived, so a client
    greets and sends again whenever `connections` has moved.
    """

    def __init__(self, context: SocketOwner, raw: zmq.Socket[bytes]) -> None:
        self._monitor = context.monitor(raw, zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED, CLIENT_EVENTS)
        super().__init__(context, raw)
        self.connections = 0
        self.connected = False
        self._monitor.setsockopt(zmq.LINGER, 0)
        self._poller = zmq.Poller()
        self._poller.register(raw, zmq.POLLIN)
        self._poller.register(self._monitor, zmq.POLLIN)

    def send(self, frames: Sequence[Buffer]) -> Sent:
        """FULL while there is no connection, or when the server reads more slowly than we send."""
        return self._send(frames)

    def break_off(self) -> None:
        """Have the server end the connection, whatever was begun on it.

        No message has so many frames as this ends what was begun with, so the server refuses it and its sender. First,
        the rest of an answer is dropped: libzmq loses it with the connection, and aborts where it is asked for it then.
        """
        while True:
            try:
                while self.raw.getsockopt(zmq.RCVMORE):
                    self.raw.recv(NOBLOCK)
                self._send([b""] * FRAMES_MAX)
            except KeyboardInterrupt:  # another one: its caller is about to be told of the first
                continue
            return

    @property
    def monitor_fd(self) -> int:
        """A second descriptor for foreign event loops: readable (edge-triggered) when `refresh` has news."""
        return number(self._monitor, zmq.FD)

    def refresh(self) -> None:
        """Take note of connections made and lost."""
        while readable(self._monitor):
            event = parse_monitor_message(self._monitor.recv_multipart(NOBLOCK))["event"]
            self.connected = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
            self.connections += self.connected

    def poll(self, timeout_s: float | None) -> bool:
        """Wait until a message can be received or the connection changed. False on timeout."""
        # Rounded up: a wait of half a millisecond must not become a busy loop.
        ready = self._poller.poll(None if timeout_s is None else ceil(timeout_s * 1000))
        if any(raw is self._monitor for raw, _ in ready):
            self.refresh()
        return bool(ready)

    def close(self) -> None:
        if self in self._context.open:
            self.raw.disable_monitor()
            self._monitor.close(0)
        super().close()
