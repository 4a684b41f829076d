"""The port of a broker process: answers and deliveries over its sockets, wake-ups over the board.

Idea: one socket per address the broker listens on, so that a delivery's own endpoint can be opened on the interface
its client came through. A peer is (server, identity). Blocked delivery sockets are watched until something happens to
them, behind one descriptor for all.

Contract: as `engine.ports.Port`; nothing here waits. Must not know: topics, partitions, logs.
"""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from ..storage.errors import StorageError
from ..storage.header import HEADER
from ..storage.histogram import SAMPLE, Histogram
from ..storage.reader import NotCached
from ..transport import codec
from ..transport.errors import MessageTooLarge, TransportError
from ..transport.messages import Deliver, Failure
from ..transport.sent import Sent
from ..transport.unread import UNREAD_BYTES_MAX
from ..transport.url import any_host, has_translated_ports
from .admission import DELIVERIES
from .cold_reads import ColdRead
from .diagnostics import say
from .engine import COLD, Cold
from .engine.turns.replies import failure
from .errors import Overloaded
from .latencies import Latencies
from .request_names import RequestNames

if TYPE_CHECKING:
    from ..storage.log import LogWriter
    from ..storage.reader import Chunk, Cursor
    from ..transport.messages import Answer
    from ..transport.sockets import Server, Sockets
    from ..transport.zmq_serving import PushSocket
    from .admission import Admission
    from .cold_reads import Warmer
    from .engine import Payload
    from .quotas import Meter
    from .wakes import Wakes


_TAKEN = Sent.TAKEN

_UNREAD = Overloaded(
    f"the answer was not sent: over {UNREAD_BYTES_MAX >> 20} MiB of earlier ones wait for this connection to read "
    "them; do that, and ask for less at once",
    retry_after=1.0,
)

EASED_MOST = 64
"""Sessions that are told of at once."""

_TIME = struct.Struct("<q")
_TIME_POSITION = int(HEADER.fields["append_time_us"][1]) if HEADER.fields else 0


class SocketPeer(Struct, frozen=True, gc=False):
    """One connection."""

    server: int
    identity: Any


class SocketPort:
    """All sockets of one broker."""

    def __init__(
        self, sockets: Sockets, servers: Sequence[Server], wakes: Wakes, warmer: Warmer, advertise: Sequence[str] = (),
        admission: Admission | None = None,
    ) -> None:  # fmt: skip
        """`advertise`: the addresses that clients connect to, where they may differ from those of the servers."""
        self.meters: dict[Any, Meter[Any]] = {}
        """Of connections whose answers are counted."""
        self.dropped = 0
        """Answers that a peer was gone for, or too slow to take."""
        self.latencies = Latencies()
        self.names = RequestNames()
        """Of requests that have one."""
        self.counting: list[Callable[[], dict[str, Any]]] = [self.latencies.stats, self._numbers]
        """Who else counts what: `stats` asks them all."""
        self._deliveries = self._sent_bytes = 0
        self._age_us = Histogram()
        self._sockets = sockets
        self._servers = servers
        self._advertise = advertise
        self._wakes = wakes
        self._admission = admission
        self._warmer = warmer
        self._pushes: dict[int, PushSocket] = {}
        self._watch = select.epoll()
        self._full: dict[int, int] = {}  # sessions whose socket took no more, by its descriptor
        self._unsent: dict[Any, list[Answer]] = {}
        self._carrying: dict[Any, None] = {}  # peers to which batches go that have not left
        self._is_flushed = True  # the servers hold nothing that was sent since their last flush
        self.holds = False
        """Whether `send_answers` has something to do."""

    def reply(self, peer: Any, message: Answer, payload: Payload = b"") -> bool:
        """Send one message at the end of the turn; what carries batches goes ahead of other peers' answers.

        False when the peer is gone or does not read; an answer is then dropped when its time comes.
        """
        if self.meters and (meter := self.meters.get(peer)) is not None:
            meter.answered(peer, getattr(message, "request", 0), len(payload), time.monotonic())
        if self.names.open:
            self.names.answered(peer, message, time.monotonic())
        if isinstance(message, Deliver) or len(payload):
            self._answer(peer)
            self._carrying[peer] = None
            return self._send(peer, message, payload)
        self._unsent.setdefault(peer, []).append(message)
        self.holds = True
        return True

    def is_behind(self, peer: Any) -> bool:
        return self._servers[peer.server].is_behind(peer.identity)

    def send_answers(self) -> None:
        """Let go what was replied in this turn: batches first, then the answers, each peer's in order.

        Batches go first: a client woken by an answer may preempt the broker, and delay readers. Answers to a peer that
        gets a batch leave with it, which wakes the peer once.
        """
        self.holds = False
        if not self._is_flushed:
            for peer in self._carrying:
                self._answer(peer)
            self._flush()
        if not self._unsent:
            return
        for peer in list(self._unsent):
            self._answer(peer)
        self._flush()

    def _answer(self, peer: Any) -> None:
        """Send what a peer was replied."""
        for answer in self._unsent.pop(peer, ()):
            self._send(peer, answer)

    def stats(self) -> dict[str, Any]:
        """Counters of the broker around the node."""
        return {name: value for count in self.counting for name, value in count().items()}

    def _numbers(self) -> dict[str, Any]:
        return {
            "answers.dropped": self.dropped,
            "sent.bytes": self._sent_bytes,
            "deliveries": self._deliveries,
            "deliver.age_us": self._age_us.values(),
        }

    def _delivered(self, payload: Payload) -> None:
        """Count one delivery; of some, how old its first batch is."""
        if not self._deliveries % SAMPLE and len(payload) >= HEADER.itemsize:
            (appended_us,) = _TIME.unpack_from(payload, _TIME_POSITION)
            self._age_us.note(max(0, time.time_ns() // 1000 - appended_us))
        self._deliveries += 1
        self._sent_bytes += len(payload)

    def _flush(self) -> None:
        self._is_flushed, self.holds = True, False
        self._carrying.clear()
        for server in self._servers:
            server.flush()

    def _send(self, peer: Any, message: Answer, payload: Payload = b"") -> bool:
        try:
            frames = codec.frames(message, payload)
        except MessageTooLarge as error:
            frames = codec.frames(Failure(getattr(message, "request", 0), error.code, error.message))
        self._is_flushed, self.holds = False, True
        sent = self._servers[peer.server].send(peer.identity, frames)
        if sent is Sent.FULL and not isinstance(message, Deliver):
            self._refuse(peer, getattr(message, "request", 0))
        taken = sent is _TAKEN
        timed = self.latencies.timed
        if timed and (request := getattr(message, "request", 0)) in timed:
            self.latencies.answered(peer, request, time.monotonic())
        if not taken:
            self.dropped += 1
        elif isinstance(message, Deliver):
            self._delivered(payload)
        elif payload:
            self._sent_bytes += len(payload)
        return taken

    def _refuse(self, peer: Any, request: int) -> None:
        """Tell a peer that there is no room for an answer.

        One that cannot be told, or that misses what it did not ask for (Assigned), would wait for it without end: over
        another connection it begins anew.
        """
        server = self._servers[peer.server]
        if not request or server.send(peer.identity, codec.frames(failure(request, _UNREAD))) is Sent.FULL:
            server.disconnect(peer.identity)

    # -- deliveries -------------------------------------------------------------------------------

    def open_delivery(self, session: int, peer: Any, owner: str = "") -> str:
        """A PUSH of its own beside the address that the client used.

        "" over unix, when no socket is left, and where clients come through translated ports.
        """
        server, domain = self._servers[peer.server], f"{DELIVERIES}{session:x}"
        if has_translated_ports(server.endpoints[0], self._advertise):
            return ""
        try:
            push = self._sockets.push(server, domain)
        except TransportError as error:
            say(f"no socket for a delivery, it uses the control port: {error}")
            return ""
        if push is None:
            return ""
        self._pushes[session] = push
        if self._admission is not None:
            self._admission.expect(domain, owner)
        return any_host(push.endpoint) if self._advertise else push.endpoint

    def deliver(self, session: int, message: Deliver, payload: Payload) -> bool:
        """Send on the session's own endpoint. False: it is full, or no peer is connected."""
        push = self._pushes[session]
        taken = push.send(codec.frames(message, payload)) is _TAKEN
        if taken:
            self._delivered(payload)
        if not taken and push.fd not in self._full:
            self._full[push.fd] = session
            self._watch.register(push.fd, select.EPOLLIN)
        return taken

    def close_delivery(self, session: int) -> None:
        """Close the endpoint and drop its queued messages."""
        push = self._pushes.pop(session, None)
        if push is not None:
            if self._full.pop(push.fd, None) is not None:
                self._watch.unregister(push.fd)
            push.close()
            if self._admission is not None:
                self._admission.forget(f"{DELIVERIES}{session:x}")

    @property
    def fd(self) -> int:
        """Readable when `eased` has sessions."""
        return self._watch.fileno()

    def eased(self) -> list[int]:
        """Sessions to whose full endpoint something has happened: a peer came, read, or left."""
        found: list[int] = []
        for descriptor, _ in self._watch.poll(0, EASED_MOST):
            self._watch.unregister(descriptor)
            found.append(self._full.pop(descriptor))
        return found

    def close(self) -> None:
        """Watch nothing any more."""
        self._watch.close()

    # -- mapped readers ---------------------------------------------------------------------------

    def open_wake(self, session: int) -> int:
        return self._wakes.open(session)

    def begin_reading(self, session: int, log: LogWriter) -> None:
        self._wakes.begin_reading(session, log)

    def end_reading(self, session: int, log: LogWriter) -> None:
        self._wakes.end_reading(session, log)

    def wake(self, session: int) -> None:
        self._wakes.wake(session)

    def asleep(self) -> set[int]:
        return self._wakes.asleep()

    def close_wake(self, session: int) -> None:
        self._wakes.close(session)

    # -- reading ----------------------------------------------------------------------------------

    def read(
        self, cursor: Cursor, max_bytes: int, limit_seq: int, token: Hashable
    ) -> Chunk | Literal[Cold.COLD] | None:
        """The next batches, unless that would wait for the disk: then the warmer reads them in.

        What it cannot read is raised only once the good batches in front of that are handed out.
        """
        try:
            return cursor.next(max_bytes, limit_seq, cached=True)
        except NotCached:
            job = ColdRead(token, cursor.path, cursor.seq, limit_seq, max_bytes, cursor.whole)
        try:
            self._warmer.warm(job)
            return COLD
        except (OSError, StorageError):
            cursor.read_alone(max_bytes)
            with suppress(NotCached):
                return cursor.next(max_bytes, limit_seq, cached=True)
            raise
