"""The listening side of `unix://`: the same messages as over ZeroMQ, without threads, library or handshake.

Idea: all connections are behind one epoll descriptor, so the poller watches one more, however many there are. What
is sent in one turn leaves together.

Contract: the calls of zmq_serving.ServerSocket; nothing here waits. `refresh` looks, `receive` hands out what was
found. Everything is bounded: connections, the silence of new ones, what waits for a peer that does not read. A peer
that crosses a bound is cut off and counted. What a peer sent before it left is handed out until an answer to it fails:
it may be a write, and of reads the first answer tells. To look for the end before each message would be a system call
for every peer, to save a part of one turn for each that left.
Knows no messages.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from . import ipc_paths
from .descriptors import DescriptorRoom
from .errors import AddressInUse, CannotListen, ProtocolError, none_left
from .sent import Sent
from .socket_options import BINDING, COMMON, MESSAGE_BYTES_MAX
from .unix_connection import READ_BYTES, Lost, UnixConnection
from .unread import UNREAD_BYTES_MAX
from .url import listen_url

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

BEHIND_BYTES = 1 << 20
"""With more than this waiting, deliveries to a peer pause, and nothing more is read from it."""

FLUSH_BYTES = 64 << 10
"""Answers of one turn leave together, but not later than at so many bytes."""

SILENCE_S = COMMON["HANDSHAKE_IVL"] / 1000
"""A new connection that says nothing for so long is closed."""

ACCEPT_PAUSE_S = 1.0
"""Pause between accepts when no descriptors are left."""

OWNER, EVERYONE = 0o600, 0o666
"""Modes of the socket: the users whose processes may connect."""

_ACCEPTS_MAX = 64
_EVENTS_MAX = 256
_FOREVER = float("inf")


class UnixServer:
    """Listens at one path. A peer is the number of one connection: a client that reconnects is another peer."""

    def __init__(
        self,
        url: str,
        *,
        max_bytes: int = MESSAGE_BYTES_MAX,
        room: DescriptorRoom | None = None,
        clock: Callable[[], float] = time.monotonic,
        is_open: bool = False,
    ) -> None:
        """`is_open`: processes of other users may connect, too. Raises AddressInUse, CannotListen or InvalidUrl."""
        found = listen_url(url)
        self.cut: Counter[str] = Counter()
        """Connections that were closed from here, by reason."""
        self.endpoints = [str(found)]
        self._max_bytes = max_bytes
        self._room = room or DescriptorRoom()
        self._clock = clock
        self._listener, self._bound = _listen(found.path, EVERYONE if is_open else OWNER)
        self._epoll = select.epoll()
        self._epoll.register(self._listener, select.EPOLLIN)
        self._spare = memoryview(bytearray(READ_BYTES))
        self._number = 0
        self._peers: dict[int, UnixConnection] = {}
        self._numbers: dict[int, int] = {}  # peer by descriptor
        self._silent: dict[int, float] = {}  # peers that said nothing yet, oldest first, and when they must have
        self._ready: dict[int, None] = {}  # peers with messages, or to read from, in turn
        self._dirty: dict[int, None] = {}  # peers with something to flush
        self.has_news = False
        """Whether `lost` or `eased` may have something."""
        self._lost: list[int] = []
        self._full: set[int] = set()  # peers that took no delivery because they were behind
        self._eased: list[int] = []
        self._last = 0
        self._accept_at = _FOREVER

    def guards(self) -> dict[int, Callable[[], None]]:
        """Callbacks by descriptor, for those besides `fd` that must be polled."""
        return {}

    # -- looking ----------------------------------------------------------------------------------

    @property
    def fd(self) -> int:
        """For a poller; level-triggered."""
        return self._epoll.fileno()

    @property
    def readable(self) -> bool:
        """Whether there is a message to receive, or news of a peer, that `fd` does not tell of."""
        return bool(self._ready or self.has_news)

    def patience_s(self) -> float:
        """Seconds until `refresh` is due even if `fd` stays silent."""
        if not self._silent and self._accept_at == _FOREVER:
            return _FOREVER
        first = next(iter(self._silent.values()), _FOREVER)
        return max(0.0, min(first, self._accept_at) - self._clock())

    def refresh(self) -> None:
        """Find out what has happened: call it when `fd` is readable, and when patience is over."""
        for fd, event in self._epoll.poll(0, _EVENTS_MAX):
            if fd == self._listener.fileno():
                self._accept()
                continue
            peer = self._numbers[fd]
            if event & select.EPOLLOUT:
                self._dirty[peer] = None
            if event & ~select.EPOLLOUT:  # it has data to read, or ended
                connection = self._peers[peer]
                if connection.held:
                    self._heed(connection, False)
                else:
                    self._ready[peer] = None
        if self._dirty:
            self.flush()
        if self._silent or self._accept_at != _FOREVER:
            self._expire(self._clock())

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_MAX):
            try:
                raw, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:
                # No descriptor or memory left: the connection stays readable, so looking at once would spin.
                self._room.refused += 1
                self._epoll.unregister(self._listener)
                self._accept_at = self._clock() + ACCEPT_PAUSE_S
                return
            self._admit(raw)

    def _admit(self, raw: socket.socket) -> None:
        if not self._room.take(raw.fileno()):
            self.cut["too many"] += 1
            raw.close()
            return
        connection = UnixConnection(raw, max_bytes=self._max_bytes, spare=self._spare)
        self._number = peer = self._number + 1
        self._peers[peer] = connection
        self._numbers[connection.fd] = peer
        self._silent[peer] = self._clock() + SILENCE_S
        self._watch(connection)

    def _expire(self, now: float) -> None:
        if now >= self._accept_at:
            self._accept_at = _FOREVER
            self._epoll.register(self._listener, select.EPOLLIN)
        for peer in [peer for peer, deadline in self._silent.items() if deadline <= now]:
            self._cut(peer, "silent")

    # -- receiving --------------------------------------------------------------------------------

    def receive(self) -> tuple[int, list[Buffer]] | None:
        """The next message and its peer, peers in turn; None when all that `refresh` found has been handed out."""
        while self._ready:
            peer = next(iter(self._ready))
            del self._ready[peer]
            connection = self._peers[peer]
            if connection.unsent > BEHIND_BYTES:
                self._heed(connection, False)
                continue
            inbox = connection.inbox
            if not inbox and not self._read(peer, connection):
                continue
            if not inbox:
                if connection.more:
                    self._ready[peer] = None
                continue
            frames = inbox.popleft()
            if inbox or connection.more:
                self._ready[peer] = None  # behind the others
            self._last = peer
            return peer, frames
        return None

    def speaker(self) -> str:
        """The peer of the last received message, as the kernel vouches for it: `uid:1000`."""
        return self._peers[self._last].speaker

    def _read(self, peer: int, connection: UnixConnection) -> bool:
        """Read what is there into the inbox. False when the connection has ended."""
        try:
            connection.inbox.extend(connection.receive())
        except Lost:
            self._drop(peer)
            return False
        except ProtocolError:
            self._cut(peer, "broken framing")
            return False
        if connection.heard:
            self._silent.pop(peer, None)
        return True

    def _heed(self, connection: UnixConnection, heeded: bool) -> None:
        """Read from a peer, or not: one that does not read its answers is asked for no more requests."""
        connection.heeded = heeded
        self._watch(connection)

    def _watch(self, connection: UnixConnection) -> None:
        """Watch it for what concerns it. One without events is not watched: its end would be told again and again."""
        before, connection.watched = connection.watched, connection.events
        if not before:
            self._epoll.register(connection.fd, connection.watched)
        elif connection.watched:
            self._epoll.modify(connection.fd, connection.watched)
        else:
            self._epoll.unregister(connection.fd)

    def hold(self, peer: int) -> None:
        """Hand out nothing of a peer, and read no more of it than was read, until `resume`."""
        connection = self._peers.get(peer)
        if connection is not None:
            connection.held = True
            self._ready.pop(peer, None)

    def resume(self, peer: int) -> None:
        """Hand out what a peer says again."""
        connection = self._peers.get(peer)
        if connection is not None:
            connection.held = False
            self._ready[peer] = None
            if not connection.heeded:
                self._heed(connection, True)

    def lost(self) -> list[int]:
        """Peers whose connection has ended since the last call."""
        lost, self._lost = self._lost, []
        self.has_news = bool(self._eased)
        return lost

    # -- sending ----------------------------------------------------------------------------------

    def send(self, peer: int, frames: Sequence[Buffer]) -> Sent:
        """Take one message for a peer. It leaves at the next `flush`, a large one now; it must not change before."""
        connection = self._peers.get(peer)
        if connection is None:
            return Sent.GONE
        if connection.unsent > UNREAD_BYTES_MAX:
            self.disconnect(peer)
            return Sent.GONE
        connection.put(frames)
        if connection.unsent >= FLUSH_BYTES:
            self._flush(peer, connection)
        else:
            self._dirty[peer] = None
        return Sent.TAKEN

    def is_behind(self, peer: int) -> bool:
        """Whether a peer has so much to read already that what can wait should; `eased` says when it has not."""
        connection = self._peers.get(peer)
        if connection is None or connection.unsent <= BEHIND_BYTES:
            return False
        self._full.add(peer)
        return True

    def eased(self) -> list[int]:
        """Peers that were behind and have read enough since the last call."""
        eased, self._eased = self._eased, []
        self.has_news = bool(self._lost)
        return eased

    def flush(self) -> None:
        """Let go what was sent, in the order of the first message to each peer."""
        if not self._dirty:
            return
        dirty, self._dirty = self._dirty, {}
        for peer in dirty:
            connection = self._peers.get(peer)
            if connection is not None:
                self._flush(peer, connection)

    def _flush(self, peer: int, connection: UnixConnection) -> None:
        stalled = connection.stalled
        try:
            connection.flush()
        except Lost:
            self._drop(peer)  # its other requests cannot be answered either, and no backpressure would slow them
            return
        if peer in self._full and connection.unsent <= BEHIND_BYTES:
            self._full.remove(peer)
            self._eased.append(peer)
            self.has_news = True
        if not connection.heeded and not connection.held and connection.unsent <= BEHIND_BYTES:
            self._ready[peer] = None
            self._heed(connection, True)
        elif connection.stalled != stalled:
            self._watch(connection)

    # -- the end of a connection ------------------------------------------------------------------

    def cut_off(self) -> str:
        """Close the connection that the last received message came over; says whose it was, for the log."""
        assert self._last, "nothing was received yet"
        connection = self._peers.get(self._last)
        if connection is None:
            return "a process that has left"
        who = connection.describe()
        self._cut(self._last, "nonsense")
        return who

    def disconnect(self, peer: int) -> None:
        """Close the connection of a peer that does not read; `lost` tells of it. The peer may connect again."""
        if peer in self._peers:
            self._cut(peer, "does not read")

    def _cut(self, peer: int, reason: str) -> None:
        """Close a connection, and hand out nothing more that came over it."""
        self.cut[reason] += 1
        self._drop(peer)

    def _drop(self, peer: int) -> None:
        connection = self._peers.pop(peer)
        self._silent.pop(peer, None)
        self._ready.pop(peer, None)
        self._dirty.pop(peer, None)
        self._full.discard(peer)
        del self._numbers[connection.fd]
        if connection.watched:
            self._epoll.unregister(connection.fd)
        connection.close()
        self._room.give_back()
        self._lost.append(peer)
        self.has_news = True

    def close(self) -> None:
        """Stop listening and drop the connections; the path goes first. Repeating it does nothing."""
        if self._epoll.closed:
            return
        self._bound.remove()
        self._listener.close()
        for peer in list(self._peers):
            self._drop(peer)
        self._epoll.close()


def _listen(path: str, mode: int) -> tuple[socket.socket, ipc_paths.Bound]:
    """A listener at a path that becomes ours, and only ours."""
    try:
        raw = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    except OSError as error:
        raise none_left(error.strerror) from error
    try:
        with ipc_paths.claimed(path):
            raw.bind(path)
            os.chmod(path, mode)
            raw.listen(BINDING["BACKLOG"])
            return raw, ipc_paths.Bound(path)
    except OSError as error:
        raw.close()
        if error.errno == errno.EADDRINUSE:
            raise AddressInUse(f"a process already listens on unix://{path}; stop it or choose another path") from error
        raise CannotListen(f"cannot listen on unix://{path}: {error.strerror}") from error
    except BaseException:
        raw.close()
        raise
