"""The ZeroMQ sockets: the only module that imports zmq. Their options stand in socket_options.py.

    Server (ROUTER)  <-->  Client (DEALER)     everything that asks and answers
    Push             --->  Pull                deliveries: one fresh endpoint, one peer, no second life

Contract: nothing here blocks except `poll`. `receive` returns None when nothing waits, so callers drain a
socket until None once per wake-up; `send` says at once whether the message was taken. A frame is bytes, or
a read-only view above RECEIVE_COPY_BYTES_MAX. One thread per context, and never across a fork. Knows no messages.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from itertools import count, islice
from math import ceil, inf
from typing import TYPE_CHECKING

import zmq
from zmq.utils.monitor import parse_monitor_message

from . import connections, ipc_paths
from .descriptors import PUSH_DESCRIPTORS, DescriptorRoom
from .errors import AddressInUse, CannotListen, InvalidUrl
from .raw_sockets import RawSockets
from .sent import Sent
from .set_aside import SetAside
from .socket_options import BINDING, CLIENT, COMMON, MESSAGE_BYTES_MAX, PULL, PUSH, SERVER, SOCKETS_MAX
from .url import Url, connect_url, listen_url

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

SEND_COPY_BYTES_MAX = 1 << 20
"""The size up to which a copy is cheaper than telling Python when libzmq is done (1 MiB: 3090 against 2307 MB/s)."""

RECEIVE_COPY_BYTES_MAX = 32 << 10
"""A frame up to this size becomes bytes, a larger one a view of libzmq's memory (256 KiB: 4.1 against 3.1 GB/s)."""

_NOBLOCK = zmq.NOBLOCK
_SNDMORE = zmq.NOBLOCK | zmq.SNDMORE
_POLLIN = int(zmq.POLLIN)  # the operators of its enum cost as much as asking the socket

FRAMES_MAX = 3
"""Frames of one message that are kept: one more than any message has, so that the codec can refuse it."""

CLIENT_EVENTS = 1000  # that a client has yet to read

EASED_MOST = 16
"""Peers that were FULL and are retried at once: libzmq does not tell which of them has read."""

MUTED_MAX = 1024
"""Peers remembered as cut off; what they had sent before is dropped unread."""


class Context:
    """Owner of sockets: everything it made is closed with it, and closing never waits for a peer.

    One that is dropped is closed, too.
    """

    def __init__(self, *, io_threads: int = 1, room: DescriptorRoom | None = None) -> None:
        self.room = room or DescriptorRoom()
        self._context = zmq.Context(io_threads)
        self._context.set(zmq.MAX_SOCKETS, SOCKETS_MAX)
        self._open: set[Socket] = set()
        self._raw = RawSockets(self, self._context)
        self._monitors = count()

    def server(self, urls: Iterable[str], *, max_bytes: int = MESSAGE_BYTES_MAX) -> ServerSocket:
        """A ROUTER on all `urls` (ipc, or tcp with port 0 for any): see its `endpoints`.

        Raises AddressInUse, CannotListen or InvalidUrl, and then listens on none of them.
        """
        made = ServerSocket(self, self._socket(zmq.ROUTER, COMMON | BINDING | SERVER, max_bytes))
        made.bind([listen_url(url) for url in urls])
        return made

    def client(self, url: str, *, max_bytes: int = MESSAGE_BYTES_MAX) -> ClientSocket:
        """A DEALER connected to `url`; it reconnects by itself, see ClientSocket.connections. Raises InvalidUrl."""
        made = ClientSocket(self, self._socket(zmq.DEALER, COMMON | CLIENT, max_bytes))
        made.connect(connect_url(url))
        return made

    def push(self, listener: str, *, max_bytes: int = MESSAGE_BYTES_MAX) -> PushSocket:
        """A PUSH on a fresh endpoint next to `listener`: a path beside its path, or a free port on its host.

        Raises CannotListen (no room or descriptors left, path too long): deliver over the server socket then.
        """
        made = PushSocket(self, self._socket(zmq.PUSH, COMMON | BINDING | PUSH, max_bytes))
        url = listen_url(listener)
        made.bind([Url("tcp", host=url.host) if url.scheme == "tcp" else Url("ipc", path=ipc_paths.beside(url.path))])
        return made

    def pull(self, url: str, *, max_bytes: int = MESSAGE_BYTES_MAX) -> PullSocket:
        """A PULL connected to the endpoint of a push, once: when that is lost it stays silent. Raises InvalidUrl."""
        made = PullSocket(self, self._socket(zmq.PULL, COMMON | PULL, max_bytes))
        made.connect(connect_url(url))
        return made

    def monitor(self, raw: zmq.Socket[bytes], events: int, unread: int = 1) -> zmq.Socket[bytes]:
        """A socket that reports the events of `raw`. With MONITOR_EVENTS and `unread` more, libzmq's thread waits."""
        address = f"inproc://monitor-{next(self._monitors)}"  # never one that libzmq may still be releasing
        raw.monitor(address, events)
        made = self._context.socket(zmq.PAIR, self._raw.make)
        made.setsockopt(zmq.LINGER, 0)
        made.setsockopt(zmq.RCVHWM, unread)
        made.connect(address)
        return made

    def close(self) -> None:
        """Close all sockets, then the context. What was not delivered is dropped. Repeating it does nothing."""
        for made in list(self._open):
            made.close()
        self._raw.end()

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _socket(self, kind: int, options: dict[str, int], max_bytes: int) -> zmq.Socket[bytes]:
        try:
            made = self._context.socket(kind, self._raw.make)
        except zmq.ZMQError as error:
            raise CannotListen(f"no socket left ({error.strerror}); raise ulimit -n or close some") from error
        for option, value in options.items():
            made.setsockopt(getattr(zmq, option), value)
        made.setsockopt(zmq.MAXMSGSIZE, max_bytes)  # of one frame; libzmq cuts off a peer that announces more
        return made


class Socket:
    """The base of all four. `raw` is for the poller only."""

    def __init__(self, context: Context, raw: zmq.Socket[bytes]) -> None:
        self.raw = raw
        self._context = context
        context._open.add(self)

    @property
    def fd(self) -> int:
        """For foreign event loops. Edge-triggered: after every send and receive ask `readable` again."""
        return _number(self.raw, zmq.FD)

    @property
    def readable(self) -> bool:
        """Whether `receive` would return something."""
        return _readable(self.raw)

    def patience_s(self) -> float:
        """Seconds until `refresh` is due even if `fd` stays silent: never."""
        return inf

    def refresh(self) -> None:
        """A poller found it readable."""

    def close(self) -> None:
        """Drop the connections and what they hold. Repeating it does nothing."""
        self._context._open.discard(self)
        self.raw.close(0)

    def connect(self, url: Url) -> None:
        """Connect to `url`, which is checked; the connection comes about later. Raises InvalidUrl, then closed."""
        try:
            if url.host.startswith("["):
                self.raw.setsockopt(zmq.IPV6, 1)
            self.raw.connect(str(url))
        except zmq.ZMQError as error:
            self.close()
            raise InvalidUrl(f"cannot connect to {url}: {error.strerror}") from error

    def _send(self, frames: Sequence[Buffer]) -> Sent:
        """Send one message whole, or not at all. The rest of a message is never refused once its start is taken."""
        last = len(frames) - 1
        try:
            for index, frame in enumerate(frames):
                flags = _SNDMORE if index < last else _NOBLOCK
                self.raw.send(frame, flags, len(frame) <= SEND_COPY_BYTES_MAX)
        except zmq.Again:
            return Sent.FULL
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                return Sent.GONE
            raise
        return Sent.TAKEN

    def _receive_rest(self) -> tuple[list[Buffer], zmq.Frame]:
        """The frames of a message from here on, at most FRAMES_MAX of them, and the first as libzmq has it.

        Frame objects say whether more follows; asking the socket instead costs a call of 2 us per frame.
        """
        first = frame = self.raw.recv(_NOBLOCK, False)
        found: list[Buffer] = [_content(frame)]
        while frame.more:
            frame = self.raw.recv(_NOBLOCK, False)
            if len(found) < FRAMES_MAX:
                found.append(_content(frame))
        return found, first


def _number(raw: zmq.Socket[bytes], option: int) -> int:
    value = raw.getsockopt(option)
    assert isinstance(value, int)
    return value


def _text(raw: zmq.Socket[bytes], option: int) -> str:
    value = raw.getsockopt(option)
    assert isinstance(value, bytes)
    return value.rstrip(b"\0").decode()


def _readable(raw: zmq.Socket[bytes]) -> bool:
    return bool(_number(raw, zmq.EVENTS) & _POLLIN)


def _content(frame: zmq.Frame) -> Buffer:
    return frame.bytes if len(frame) <= RECEIVE_COPY_BYTES_MAX else frame.buffer.toreadonly()


class _Listening(Socket):
    """A socket that binds."""

    def __init__(self, context: Context, raw: zmq.Socket[bytes]) -> None:
        super().__init__(context, raw)
        self.endpoints: list[str] = []  # the bound addresses, with ports filled in
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
        self.endpoints.append(_text(self.raw, zmq.LAST_ENDPOINT))

    def close(self) -> None:
        """Stop listening; the paths go first, so that a path that looks free has no listener behind it."""
        for bound in self._bound:
            bound.remove()
        self._bound.clear()
        super().close()


class ServerSocket(_Listening):
    """A ROUTER. A peer is the identity of one connection: a client that reconnects is another peer."""

    def __init__(self, context: Context, raw: zmq.Socket[bytes]) -> None:
        super().__init__(context, raw)
        self._last: tuple[bytes, zmq.Frame] | None = None
        self._aside: SetAside[tuple[bytes, list[Buffer], zmq.Frame]] = SetAside()
        self.hold, self.resume = self._aside.hold, self._aside.resume
        self._is_aside_next = False
        self._full: dict[bytes, None] = {}
        self._muted: dict[bytes, None] = {}
        self._room = context.room
        self._accepted: set[int] = set()  # descriptors of its connections
        self._monitor = context.monitor(raw, zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)

    def guards(self) -> dict[int, Callable[[], None]]:
        """Callbacks by descriptor, for those besides `fd` that must be polled."""
        self.admit()  # the descriptor tells of what comes after one looked
        return {_number(self._monitor, zmq.FD): self.admit}

    def admit(self) -> None:
        """Take note of connections made and lost, and shut down those that there is no room for."""
        while _readable(self._monitor):
            event = parse_monitor_message(self._monitor.recv_multipart(_NOBLOCK))
            descriptor = event["value"]
            if descriptor in self._accepted:
                self._accepted.remove(descriptor)
                self._room.give_back()
            if event["event"] == zmq.EVENT_ACCEPTED:
                if self._room.take(descriptor):
                    self._accepted.add(descriptor)
                else:
                    connections.shut_down(descriptor, self.endpoints)

    def close(self) -> None:
        """See _Listening."""
        if self in self._context._open:
            self.admit()  # libzmq's thread must not wait for us while we wait for it
            self.raw.disable_monitor()
            self._monitor.close(0)
            self._room.give_back(len(self._accepted))
        super().close()

    def bind(self, urls: Sequence[Url]) -> None:
        """See _Listening; also removes the sockets of pushes that a killed server left beside its own."""
        super().bind(urls)
        for url in urls:
            if url.scheme == "ipc":
                ipc_paths.sweep(url.path)

    @property
    def readable(self) -> bool:
        """Whether `receive` would return something, or set it aside."""
        return self._aside.ready or super().readable

    def receive(self) -> tuple[bytes, list[Buffer]] | None:
        """The next message and its peer; None when none waits. What was set aside and what comes take turns."""
        self._is_aside_next = not self._is_aside_next
        message = (self._is_aside_next and self._aside.take()) or self._next() or self._aside.take()
        if message is None:
            return None
        peer, frames, first = message
        self._last = peer, first
        return peer, frames

    def speaker(self) -> str:
        """The peer of the last received message, as CURVE vouches for it; "key:" as long as it does not."""
        return "key:"

    def _next(self) -> tuple[bytes, list[Buffer], zmq.Frame] | None:
        message = None
        while message is None:
            try:
                peer = self.raw.recv(_NOBLOCK)
            except zmq.Again:
                return None
            frames, first = self._receive_rest()
            if peer not in self._muted:
                message = self._aside.instead(peer, (peer, frames, first), sum(map(len, frames)))
        return message

    def send(self, peer: bytes, frames: Sequence[Buffer]) -> Sent:
        """Send to one peer. A peer that stays FULL though it was waited for does not read: cut it off."""
        sent = self._send([peer, *frames])
        if sent is Sent.FULL:
            self._full[peer] = None
        return sent

    def eased(self) -> list[bytes]:
        """Peers that were FULL and may not be any more; those to ask after something has happened (`fd`)."""
        eased = list(islice(self._full, EASED_MOST))
        for peer in eased:
            del self._full[peer]
        return eased

    def is_behind(self, peer: bytes) -> bool:
        """Never, as far as libzmq tells: a peer that reads too slowly makes a send FULL."""
        return False

    def lost(self) -> list[bytes]:
        """None, as far as libzmq tells: that a peer has left shows when something is sent to it."""
        return []

    def flush(self) -> None:
        """The I/O threads do."""

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


class PushSocket(_Listening):
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
        return self._send(frames)


class PullSocket(Socket):
    """A PULL."""

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

    def __init__(self, context: Context, raw: zmq.Socket[bytes]) -> None:
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
                    self.raw.recv(_NOBLOCK)
                self._send([b""] * FRAMES_MAX)
            except KeyboardInterrupt:  # another one: its caller is about to be told of the first
                continue
            return

    @property
    def monitor_fd(self) -> int:
        """A second descriptor for foreign event loops: readable (edge-triggered) when `refresh` has news."""
        return _number(self._monitor, zmq.FD)

    def refresh(self) -> None:
        """Take note of connections made and lost."""
        while _readable(self._monitor):
            event = parse_monitor_message(self._monitor.recv_multipart(_NOBLOCK))["event"]
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
        if self in self._context._open:
            self.raw.disable_monitor()
            self._monitor.close(0)
        super().close()
