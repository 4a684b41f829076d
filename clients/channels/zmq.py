"""The channel over ZeroMQ: a DEALER for questions and answers, a PULL for each delivery endpoint.

Contract: as channel.py. Must not know: what the messages mean.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from ...transport.bell import Bell
from ...transport.codec import decode_answer, frames
from ...transport.errors import ProtocolError, Unauthenticated
from ...transport.keys import Key
from ...transport.url import reachable
from ...transport.zmq_connecting import ClientSocket, PullSocket
from ...transport.zmq_sockets import Context
from ..connection.readiness import Front
from ..connection.steps import FOREVER
from ..connection.wall_clock import wall_us
from ..reading.mapped import board_logs, board_source

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

    from ...storage.errors import Error
    from ...transport.messages import Answer, Joined, Message, Topic, Welcome
    from ..reading.mapped import LogSource, MappedSource


class ZmqChannel:
    """A DEALER, and a PULL per delivery endpoint.

    All their descriptors, and a bell to wake the waiting thread, are behind one front. A socket's
    descriptor tells of changes only, so a socket that once was readable stays in `_ready` until it is empty.
    """

    remote = True
    more = True
    together = nullcontext  # its thread sends meanwhile

    def __init__(self, url: str, *, max_bytes: int, key: Key | None = None) -> None:
        self._url = url
        self._max_bytes = max_bytes
        self._context = Context(key=key)
        try:
            self._front = Front()
            try:
                self._begin()
            except BaseException:
                self._front.close()
                raise
        except BaseException:
            self._context.close()
            raise

    def _begin(self) -> None:
        self._dealer: ClientSocket = self._context.client(self._url, max_bytes=self._max_bytes)
        self._pulls: dict[str, PullSocket] = {}
        self._wake = Bell()
        self._sources: dict[int, PullSocket] = {self._dealer.fd: self._dealer}
        self._monitor = self._dealer.monitor_fd
        self._ready: dict[PullSocket, None] = {}
        self._closed = False
        for descriptor in (self._dealer.fd, self._monitor, self._wake.fileno()):
            self._front.add(descriptor)
        self._refresh()

    @property
    def connections(self) -> int:
        return self._dealer.connections

    @property
    def connected(self) -> bool:
        return self._dealer.connected

    @property
    def unreachable(self) -> bool:
        return self._dealer.unreachable

    @property
    def refusal(self) -> Error | None:
        return Unauthenticated(f"{self._url}: {self._dealer.refusal}") if self._dealer.refusal else None

    def send(self, message: Message, payload: Buffer = b"") -> bool:
        taken = bool(self._dealer.send(frames(message, payload)))
        # Sending handles the socket's own events, so its descriptor may never tell of what came in meanwhile.
        if self._dealer not in self._ready and self._dealer.readable:
            self._ready[self._dealer] = None
            self.wake()
        return taken

    def receive(self) -> tuple[Answer, Buffer] | None:
        while True:
            if not self._ready and not self._look():
                return None
            source = next(iter(self._ready))
            received = source.receive()
            if received is None:
                del self._ready[source]
                continue
            if not source.readable:  # which is cheaper to ask than to receive in vain
                del self._ready[source]
            try:
                return decode_answer(received)
            except ProtocolError:
                continue  # no message of ours: drop it

    def now_us(self) -> int:
        return wall_us()

    def choose_delivery(self, group: str, wanted: str) -> str:
        return "push" if wanted == "auto" else wanted

    def open_source(self, welcome: Welcome, topic: Topic, joined: Joined) -> MappedSource:
        return board_source(welcome, topic, joined)

    def open_logs(self, welcome: Welcome) -> LogSource:
        return board_logs(welcome)

    def listen(self, endpoint: str) -> None:
        pull = self._context.pull(reachable(endpoint, self._url), max_bytes=self._max_bytes)
        self._pulls[endpoint] = pull
        self._sources[pull.fd] = pull
        self._ready[pull] = None
        self._front.add(pull.fd)

    def unlisten(self, endpoint: str) -> None:
        pull = self._pulls.pop(endpoint, None)
        if pull is not None:
            self._front.remove(pull.fd)
            del self._sources[pull.fd]
            self._ready.pop(pull, None)
            pull.close()

    def due(self) -> float:
        return FOREVER

    def fileno(self) -> int:
        return self._front.fileno()

    def look_again(self) -> None:
        self._refresh()
        self._ready.update(dict.fromkeys(self._pulls.values()))

    def break_off(self) -> None:
        self._dealer.break_off()
        self.look_again()

    def wake(self) -> None:
        if not self._closed:
            self._wake.ring()

    def close(self) -> None:
        self._closed = True
        self._ready.clear()
        self._front.close()
        self._wake.close()
        self._context.close()

    def _look(self) -> bool:
        """Find sockets that became readable. Returns whether there are any."""
        for descriptor in self._front.ready():
            source = self._sources.get(descriptor)
            if source is not None:
                self._ready[source] = None
            elif descriptor == self._monitor:
                self._refresh()
            else:
                self._wake.hush()
        return bool(self._ready)

    def _refresh(self) -> None:
        """Update the connection's state: news of it may come with messages that the descriptor told of before."""
        self._dealer.refresh()
        self._ready[self._dealer] = None
