"""ZeroMQ's sockets that listen: a ROUTER that all clients talk to, and a PUSH for the deliveries of one.

Contract: `receive` returns None when nothing waits, so callers drain a socket until None once per wake-up; `send` says
at once whether the message was taken. Peers that send what is no message can be cut off. Of a peer that does not read,
no more requests are handed out than SetAside lets pass, and what waits for it is bounded.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Sequence
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

import zmq
from zmq.utils.monitor import parse_monitor_message

from . import connections, ipc_paths
from .descriptors import PUSH_DESCRIPTORS
from .errors import AddressInUse, CannotListen
from .sent import Sent
from .set_aside import SetAside
from .unread import SMALL_BYTES, UNREAD_BYTES_MAX, Unread
from .url import Url, listen_url
from .zmq_socket import NOBLOCK, Socket, SocketOwner, number, readable, text

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

BEHIND_BYTES = 16 << 20
"""With more than this waiting, deliveries to a peer pause, and its requests are set aside: four large answers."""

LOOK_S = 0.01
"""How often to look whether such a peer has read: libzmq tells when it is asked."""

EASED_MOST = 16
"""Peers that were FULL and are retried at once: libzmq does not tell which of them has read."""

_SEEN = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL

MUTED_MAX = 1024
"""Peers remembered as cut off; what they had sent before is dropped unread."""


class Listening(Socket):
    """A socket that binds. `is_open`: processes of any user may connect to a path."""

    def __init__(self, context: SocketOwner, raw: zmq.Socket[bytes], is_open: bool = False) -> None:
        super().__init__(context, raw)
        self.is_open = is_open
        self.endpoints: list[str] = []  # the bound addresses, with ports filled in
        self._unread = Unread()
        self._bound: list[ipc_paths.Bound] = []

    def bind(self, urls: Sequence[Url]) -> None:
        """Listen on all `urls` or raise AddressInUse or CannotListen and be closed."""
        try:
            for url in urls:
                self._bind_one(url)
        except BaseException:
            self.close()
            raise

    def _bind_one(self, url: Url) -> None:
        if url.scheme == "tcp":
            self._bind_raw(url)
            return
        listen_url(str(url))  # a path made up beside another may be too long
        with ipc_paths.claimed(url.path):
            self._bind_raw(url)
            if self.is_open:
                ipc_paths.open_to_all(url.path)
            self._bound.append(ipc_paths.Bound(url.path))

    def _bind_raw(self, url: Url) -> None:
        if url.host.startswith("["):
            self.raw.setsockopt(zmq.IPV6, 1)
        try:
            self.raw.bind(str(url))
        except zmq.ZMQError as error:
            if error.errno == errno.EADDRINUSE:
                raise AddressInUse(f"a process already listens on {url}; stop it or choose another address") from error
            raise CannotListen(f"cannot listen on {url}: {error.strerror}") from error
        self.endpoints.append(text(self.raw, zmq.LAST_ENDPOINT))

    def _send_counted(self, peer: bytes, frames: Sequence[Buffer], size: int, address: Sequence[bytes]) -> Sent:
        """Send one message; FULL where too much of what the peer was sent is unread."""
        unread, mark = self._unread, None
        if unread.bytes_of(peer) > UNREAD_BYTES_MAX:
            return Sent.FULL
        if unread.wants_mark(peer, size):
            marked = zmq.Frame(frames[-1], track=True, copy=False, copy_threshold=0)
            frames, mark = [*frames[:-1], marked], marked.tracker
        sent = self._send([*address, *frames])
        if sent is Sent.TAKEN:
            unread.sent(peer, size, mark)
        elif sent is Sent.GONE:
            unread.forget(peer)
        return sent

    def close(self) -> None:
        """Stop listening; the paths go first, so that a path that looks free has no listener behind it."""
        for bound in self._bound:
            bound.remove()
        self._bound.clear()
        super().close()


class ServerSocket(Listening):
    """A ROUTER. A peer is the identity of one connection: a client that reconnects is another peer."""

    has_news = True
    """Whether `lost` or `eased` may have something: libzmq tells only when it is asked."""

    def __init__(self, context: SocketOwner, raw: zmq.Socket[bytes], is_open: bool = False) -> None:
        super().__init__(context, raw, is_open)
        self.failed = 0
        """Connections that were given up before the gate was asked: by peers without a key, or for another broker."""
        self._last: tuple[bytes, zmq.Frame] | None = None
        self._aside: SetAside[tuple[bytes, list[Buffer], zmq.Frame]] = SetAside()
        self._is_aside_next = False
        self._behind: set[bytes] = set()
        self._eased: list[bytes] = []  # peers that were
        self._held: set[bytes] = set()
        self._look_s = 0.0
        self._full: dict[bytes, None] = {}
        self._muted: dict[bytes, None] = {}
        self._room = context.room
        self._accepted: set[int] = set()  # descriptors of its connections
        self._heard: set[bytes] = set()  # peers of which something was handed out, as long as they are connected
        self._heard_at: dict[int, bytes] = {}  # the same by descriptor
        self._lost: list[bytes] = []
        self._monitor = context.monitor(raw, _SEEN)

    def guards(self) -> dict[int, Callable[[], None]]:
        """Callbacks by descriptor, for those besides `fd` that must be polled."""
        self.admit()  # the descriptor tells of what comes after one looked
        return {number(self._monitor, zmq.FD): self.admit}

    def admit(self) -> None:
        """Take note of connections made and lost, and shut down those that there is no room for."""
        while readable(self._monitor):
            event = parse_monitor_message(self._monitor.recv_multipart(NOBLOCK))
            if event["event"] == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
                self.failed += 1
                continue
            descriptor = event["value"]
            if descriptor in self._accepted:
                self._accepted.remove(descriptor)
                self._room.give_back()
                self._left(descriptor)
            if event["event"] == zmq.EVENT_ACCEPTED:
                if self._room.take(descriptor):
                    self._accepted.add(descriptor)
                else:
                    connections.shut_down(descriptor, self.endpoints)

    def _left(self, descriptor: int) -> None:
        """The peer at a descriptor, if it was heard, is connected no more."""
        peer = self._heard_at.pop(descriptor, None)
        if peer is not None:
            self._heard.discard(peer)
            self._unread.forget(peer)
            self._lost.append(peer)

    def _hear(self, peer: bytes, first: zmq.Frame) -> None:
        """Something of a peer is handed out for the first time, or of one that has left meanwhile."""
        self.admit()
        try:
            descriptor = int(first.get(zmq.SRCFD))
        except zmq.ZMQError:
            return
        if self._heard_at.get(descriptor, peer) != peer:
            self._left(descriptor)  # the descriptor is another connection's now
        if descriptor in self._accepted:
            self._heard_at[descriptor] = peer
            self._heard.add(peer)
        else:
            self._lost.append(peer)

    def close(self) -> None:
        """See Listening."""
        if self in self._context.open:
            self.admit()  # libzmq's thread must not wait for us while we wait for it
            self.raw.disable_monitor()
            self._monitor.close(0)
            self._room.give_back(len(self._accepted))
        super().close()

    def bind(self, urls: Sequence[Url]) -> None:
        """See Listening; also removes the sockets of pushes that a killed server left beside its own."""
        super().bind(urls)
        for url in urls:
            if url.scheme == "ipc":
                ipc_paths.sweep(url.path)

    @property
    def readable(self) -> bool:
        """Whether `receive` would return something, or set it aside, or a peer that was behind has read."""
        return bool(self._eased or self._lost) or self._aside.ready or super().readable

    def receive(self) -> tuple[bytes, list[Buffer]] | None:
        """The next message and its peer; None when none waits. What was set aside and what comes take turns."""
        self._is_aside_next = not self._is_aside_next
        message = (self._is_aside_next and self._aside.take()) or self._next() or self._aside.take()
        if message is None:
            return None
        peer, frames, first = message
        if peer not in self._heard:
            self._hear(peer, first)
        self._last = peer, first
        return peer, frames

    def speaker(self) -> str:
        """The peer of the last received message, as the gate named it when it connected; "key:" without a gate."""
        assert self._last is not None, "nothing was received yet"
        try:
            return str(self._last[1].get("User-Id"))
        except zmq.ZMQError:
            return "key:"

    def hold(self, peer: bytes) -> None:
        """Set aside what a peer says, until `resume`."""
        self._held.add(peer)
        self._aside.hold(peer)

    def resume(self, peer: bytes) -> None:
        """Hand out what a peer says again."""
        self._held.discard(peer)
        if peer not in self._behind:
            self._aside.resume(peer)

    def patience_s(self) -> float:
        """See Socket: while a peer is behind."""
        return max(0.0, self._look_s - time.monotonic()) if self._behind else inf

    def refresh(self) -> None:
        """See Socket; looks which peers have read."""
        if not self._behind:
            return
        self._look_s = time.monotonic() + LOOK_S
        for peer in [peer for peer in self._behind if self._unread.bytes_of(peer) <= BEHIND_BYTES]:
            self._behind.remove(peer)
            self._eased.append(peer)
            if peer not in self._held:
                self._aside.resume(peer)

    def _next(self) -> tuple[bytes, list[Buffer], zmq.Frame] | None:
        message = None
        while message is None:
            try:
                peer = self.raw.recv(NOBLOCK)
            except zmq.Again:
                return None
            frames, first = self._receive_rest()
            if peer not in self._muted:
                if self._unread.bytes_of(peer) > BEHIND_BYTES:
                    self._behind.add(peer)
                    self._aside.hold(peer)
                message = self._aside.instead(peer, (peer, frames, first), sum(map(len, frames)))
        return message

    def send(self, peer: bytes, frames: Sequence[Buffer]) -> Sent:
        """Send to one peer. FULL: it does not read."""
        size = sum(map(len, frames))
        sent = self._send([peer, *frames]) if size < SMALL_BYTES else self._send_counted(peer, frames, size, [peer])
        if sent is Sent.FULL:
            self._full[peer] = None
        return sent

    def eased(self) -> list[bytes]:
        """Peers that were behind and have read, or were FULL and may not be: those to ask after something happened."""
        tried = list(islice(self._full, EASED_MOST))
        for peer in tried:
            del self._full[peer]
        eased, self._eased = self._eased, []
        return eased + tried

    def is_behind(self, peer: bytes) -> bool:
        """Whether a peer has so much to read already that what can wait should; `eased` says when it has not."""
        if self._unread.bytes_of(peer) <= BEHIND_BYTES:
            return False
        self._behind.add(peer)
        return True

    def lost(self) -> list[bytes]:
        """Peers that were heard and have left since the last call. One of which something is handed out afterwards,
        because it had come before, is among them again."""
        self.admit()
        lost, self._lost = self._lost, []
        return lost

    def flush(self) -> None:
        """The I/O threads do."""

    def disconnect(self, peer: bytes) -> None:
        """Close the connection of a peer that was heard; `lost` tells of it. The peer may connect again."""
        self.admit()
        for descriptor, heard in self._heard_at.items():
            if heard == peer:
                connections.shut_down(descriptor, self.endpoints)

    def cut_off(self) -> str:
        """Close the connection that the last received message came over; says whose it was, for the log.

        libzmq has no call for it, but it names the connection's descriptor, and a shut down one is dropped.
        What the peer had sent before is not handed out any more.
        """
        assert self._last is not None, "nothing was received yet"
        peer, frame = self._last
        while len(self._muted) >= MUTED_MAX:
            del self._muted[next(iter(self._muted))]
        self._muted[peer] = None
        self._aside.drop(peer)
        try:
            address = str(frame.get("Peer-Address"))
            connections.shut_down(int(frame.get(zmq.SRCFD)), self.endpoints)
        except zmq.ZMQError:  # a peer of ZMTP 1.0 comes without either; it stays connected and unheard
            return "a peer that does not speak ZMTP 3"
        return address


class PushSocket(Listening):
    """A PUSH for one peer."""

    _taken = 0

    def _bind_raw(self, url: Url) -> None:
        room = self._context.room
        try:
            listener = connections.listener(url)
        except OSError as error:
            raise CannotListen(f"cannot listen on {url}: {error.strerror}") from error
        with listener:
            if not room.take(listener.fileno(), PUSH_DESCRIPTORS):
                raise CannotListen(f"cannot listen on {url}: {room.used} descriptors are in use by connections")
            self._taken = PUSH_DESCRIPTORS
            self.raw.setsockopt(zmq.USE_FD, listener.fileno())
            super()._bind_raw(url)
            listener.detach()

    def close(self) -> None:
        super().close()
        self._context.room.give_back(self._taken)
        self._taken = 0

    @property
    def endpoint(self) -> str:
        """The address its one peer connects to."""
        return self.endpoints[0]

    def send(self, frames: Sequence[Buffer]) -> Sent:
        """FULL also says that no peer is connected (yet, or any more)."""
        size = sum(map(len, frames))
        if size < SMALL_BYTES:
            return self._send(frames)
        sent = self._send_counted(b"", frames, size, ())
        if sent is Sent.FULL and number(self.raw, zmq.EVENTS) & zmq.POLLOUT:
            # Asked, libzmq takes note of what has happened, so that `fd` tells of what comes after, and of nothing
            # before: of a peer that has connected since, for example.
            sent = self._send_counted(b"", frames, size, ())
        return sent
