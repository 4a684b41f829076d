"""ZeroMQ's sockets that connect: a DEALER that asks and hears answers, and a PULL for deliveries.

Contract: nothing here blocks except `poll`; `receive` returns None when nothing waits. The DEALER reconnects by itself
and counts its connections, the PULL never does.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from math import ceil
from typing import TYPE_CHECKING

import zmq
from zmq.utils.monitor import parse_monitor_message

from .errors import CannotListen, InvalidUrl
from .sent import Sent
from .url import Url
from .zmq_greeting import GreetingSocket
from .zmq_socket import FRAMES_MAX, NOBLOCK, Socket, SocketOwner, number, readable

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

CLIENT_EVENTS = 1000  # that a client has yet to read

EARLY_S = 1.0
"""A broker that is too busy to answer a handshake takes longer than this to give it up."""

CLOSED_EARLY_MOST = 4
"""So many connections in a row, since the start: then the broker's key is taken to be wrong."""

GREETING_S = 1.0
"""How long what hung up may take to send its greeting."""

NOT_KNOWN = (
    "the broker does not accept this key: it is unknown, has expired or was withdrawn; its administrator adds one with "
    "penstock key add"
)
KEY_NEEDED = (
    "the broker wants a key: give one by key=, PENSTOCK_KEY or the setting key, made with penstock key generate and "
    "known to the broker by penstock key add"
)
NO_KEYS_THERE = (
    "the broker takes no keys, so it would neither know this client nor encrypt: start it with --access and "
    "--broker-key, or connect without a key"
)
OTHER_BROKER = (
    "it closes the connection during the handshake, as a broker does whose key is another one than the key file names "
    "(compare its line `broker` with penstock key show of the broker's key file), or one that takes no keys (start it "
    "with --access and --broker-key)"
)

_SEEN = (
    zmq.EVENT_CONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_CLOSED
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)  # fmt: skip


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

    def __init__(self, context: SocketOwner, raw: zmq.Socket[bytes], has_key: bool = False) -> None:
        self._monitor = context.monitor(raw, _SEEN, CLIENT_EVENTS)
        self._greeting: GreetingSocket | None = None  # of a broker that hung up on us, who have no key
        super().__init__(context, raw)  # from here on an interrupt may close it
        self.refusal = ""
        """Why the broker will not let this client in, for people; "" as long as it may."""
        self._has_key = has_key
        self._closed_early = 0
        self._reached_s = 0.0
        self.connections = 0
        self.connected = False
        self.unreachable = False
        """The latest try to connect has failed; libzmq tries again by itself. Not yet where a broker was reached that
        ended the connection in its handshake: the next tries tell whether it refuses this client."""
        self._early = 0
        self._url: Url | None = None
        self._greet_again_s = 0.0
        self._monitor.setsockopt(zmq.LINGER, 0)
        self._poller = zmq.Poller()
        self._poller.register(raw, zmq.POLLIN)
        self._poller.register(self._monitor, zmq.POLLIN)

    def connect(self, url: Url) -> None:
        """See PullSocket."""
        self._url = url
        super().connect(url)

    def send(self, frames: Sequence[Buffer]) -> Sent:
        """FULL while no connection is known of, or when the server reads more slowly than we send.

        libzmq takes messages before it tells of the connection. A greeting then and another once it has told were two,
        and after the second the client asks again what the broker, on the same connection, has not answered yet.
        """
        return self._send(frames) if self.connected else Sent.FULL

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
            event = parse_monitor_message(self._monitor.recv_multipart(NOBLOCK))
            kind = event["event"]
            self.connected = kind == zmq.EVENT_HANDSHAKE_SUCCEEDED
            self.connections += self.connected
            self._count_early(kind)
            is_early = kind != zmq.EVENT_CLOSED and 0 < self._early < CLOSED_EARLY_MOST
            self.unreachable = kind not in (zmq.EVENT_HANDSHAKE_SUCCEEDED, zmq.EVENT_CONNECTED) and not is_early
            if kind == zmq.EVENT_CONNECTED:
                self._reached_s = time.monotonic()
            elif not self.connected and kind not in (zmq.EVENT_DISCONNECTED, zmq.EVENT_CLOSED):
                self._handshake_failed(kind, event["value"])

    def _count_early(self, kind: int) -> None:
        """Count connections in a row that ended before their handshake had succeeded.

        One that is refused for good says so in the second, or by several of them (`_handshake_failed`).
        """
        if kind == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._early = 0
        elif kind not in (zmq.EVENT_CONNECTED, zmq.EVENT_DISCONNECTED, zmq.EVENT_CLOSED):
            self._early += 1

    def _handshake_failed(self, kind: int, value: int) -> None:
        """Find out whether the broker refuses us, or was only slow or ending.

        libzmq tries again by itself, except after the two kinds of failure that say why.
        """
        if kind == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            self.refusal = NOT_KNOWN
        elif kind == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL and value == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
            self.refusal = NO_KEYS_THERE if self._has_key else KEY_NEEDED
        elif not self._has_key:
            self._hung_up_on()
        elif not self.connections and time.monotonic() - self._reached_s < EARLY_S:
            # What does not know the broker's key is hung up on, unanswered. So is who meets a port without its broker.
            self._closed_early += 1
            if self._closed_early >= CLOSED_EARLY_MOST:
                self.refusal = OTHER_BROKER

    def _hung_up_on(self) -> None:
        """Look whether the broker wants a key: it may hang up before it has said so, as may anything else.

        What its greeting says is known at one of the next failures: libzmq tries again after 0.1 to 0.2 s.
        """
        now_s = time.monotonic()
        if self._greeting is not None and self._greeting.wants_key():
            self.refusal = KEY_NEEDED
        if self._greeting is not None and (self.refusal or now_s >= self._greet_again_s):
            self._greeting.close()
            self._greeting = None
        if self._greeting is None and not self.refusal and self._url is not None and self._url.scheme == "tcp":
            with suppress(CannotListen):
                self._greeting, self._greet_again_s = GreetingSocket(self._context, self._url), now_s + GREETING_S

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
        if self._greeting is not None:
            self._greeting.close()
        super().close()
