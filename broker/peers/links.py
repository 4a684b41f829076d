"""The sockets between this node and its peers.

Idea: each node listens for control and for data messages at two addresses, and connects to the same two of each peer.
Messages go one way on each connection; the first is a PeerHello, without which nothing else is heard. A peer that
greets us is connected to at once: two nodes that are left elect a leader only when both hear each other. Asking a
socket of libzmq for news costs a system call, so one is asked only after its descriptor has told of some.

A peer may come with another directory than is known of it, and with more of the order: this node has not heard of the
replacement. Until it has, the peer may tell it of that as its leader, and nothing else: no vote and no acknowledgement
of a directory that is not known is heard, and none is asked for.

Contract: nothing here waits. `put` and `flush` send, `take` gives what has arrived, control messages first, and
`renewed` names the peers that have a new connection: what was sent to them may be lost, so the Raft core probes them.
One thread. Must not know what messages mean, but for which a leader tells.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from ...transport.errors import ProtocolError
from ...transport.sent import Sent
from .addresses import data_address
from .greeting import PeerIdentity, is_replaceable, may_be, other_limits, refusal_of
from .messages import FRAME_BYTES_MAX, TOLD_KINDS, PeerHello, frames_of, message_of
from .outbox import PeerLane, PeerOutbox

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

    from ...transport.zmq_connecting import ClientSocket
    from ...transport.zmq_serving import ServerSocket
    from ...transport.zmq_sockets import Context
    from ..raft.messages import Message

DOMAIN = "peers"
"""What a gate is told of connections to these sockets."""

AGAIN_S = 1.0
"""Until one connects once more to a peer that refused."""

NOTICE_S = 0.002
"""What is committed is told with the next append, or after this time."""

TAKEN_MAX = 256
"""Messages that one call of `take` hands out of one socket: then others have a turn."""


Greeted = dict[bytes, tuple[int, bytes, int]]
"""Which node a connection is of, the uuid of its directory, and the entry that it came with: of those that stand, whose
number their descriptors bound."""


class PeerArrival(NamedTuple):
    """A message of a peer, with the batches that came in the same frame."""

    node: int
    message: Message
    bodies: dict[tuple[bytes, int, int], bytes]


class PeerConnection:
    """Our connection to one socket of a peer."""

    def __init__(self, connect: Callable[[], ClientSocket], lane: PeerLane) -> None:
        self._connect = connect
        self.socket = connect()
        self.again_s = inf
        """When to connect once more: libzmq gives up where a peer refuses us, which it need not do for ever."""
        self._lane = lane
        self._greeted = 0  # the connection that we greeted on

    @property
    def is_up(self) -> bool:
        """Whether the connection stands and is greeted."""
        return self.socket.connected and self._greeted == self.socket.connections

    def greet(self, hello: Callable[[], PeerHello]) -> bool:
        """Greet on a new connection. Returns whether there was one."""
        socket = self.socket
        if not socket.connected or self._greeted == socket.connections:
            return False
        self._lane.clear()
        if socket.send(frames_of(hello())) is not Sent.TAKEN:
            return False
        self._greeted = socket.connections
        return True

    def renew(self) -> None:
        """Connect once more."""
        self.socket.close()
        self.socket, self._greeted, self.again_s = self._connect(), 0, inf

    @property
    def has_notice(self) -> bool:
        """Whether a notice waits for its time."""
        return self._lane.bytes > 0 and not self._lane.urgent and self.is_up

    def flush(self, notices: bool) -> None:
        """Send what waits; where that is only a notice, if `notices` says so."""
        if self._lane.bytes and (notices or self._lane.urgent) and self.is_up:
            self._lane.flush(lambda frames: self.socket.send(frames) is Sent.TAKEN)


class PeerLinks:
    """See the module. `uuid_of`: what the cluster knows of a node's directory; `say`: a line of the log;
    `on_greeted`: a peer was let in, with the uuid of its directory."""

    def __init__(
        self,
        own: PeerIdentity,
        context: Context,
        listen: str,
        *,
        uuid_of: Callable[[int], bytes] = lambda node: b"",
        say: Callable[[str], None] = lambda line: None,
        on_greeted: Callable[[int, bytes], None] = lambda node, uuid: None,
    ) -> None:
        """Listen at `listen` and connect to all peers. Raises AddressInUse, CannotListen, InvalidUrl, InvalidPeers."""
        self.own = own
        self.entry: Callable[[], int] = lambda: 0
        """The entry that this node greets with: see PeerHello."""
        self._uuid_of = uuid_of
        self._say = say
        self._on_greeted = on_greeted
        self._outboxes = {node: PeerOutbox() for node in own.peers if node != own.node}
        self.servers: list[ServerSocket] = [
            context.server([url], max_bytes=FRAME_BYTES_MAX, domain=DOMAIN) for url in (listen, data_address(listen))
        ]
        self._greeted: list[Greeted] = [{}, {}]  # by socket
        self.advertised: dict[int, list[str]] = {}
        """Where clients connect to a node, as it said."""
        self.strangers: dict[int, bytes] = {}
        """The uuid of the directory that a node came with last and was refused for, until it is let in."""
        self._limits_told: dict[int, str] = {}  # by node
        self._refused = 0
        self._room = context.room
        self._renewed: set[int] = set()
        self._incarnations: dict[int, int] = {}
        self._restarted: set[int] = set()
        self.outgoing: dict[int, list[PeerConnection]] = {}
        for node, outbox in self._outboxes.items():
            lanes = (own.peers[node], outbox.control), (data_address(own.peers[node]), outbox.data)
            self.outgoing[node] = [
                PeerConnection(partial(context.client, url, max_bytes=FRAME_BYTES_MAX), lane) for url, lane in lanes
            ]
        self._notice_s = inf  # when notices are due
        self._filled = [True] * len(self.servers)  # those that may have messages
        self._on_news: dict[int, Callable[[], object]] = {}
        self._watch = select.epoll()
        if context.gate is not None:
            self._attend(context.gate.fd, context.gate.answer)
        for place, server in enumerate(self.servers):
            self._attend(server.fd, partial(self._fill, place))
            for descriptor in server.guards():
                self._attend(descriptor, partial(self._forget_lost, place))
        for both in self.outgoing.values():
            for each in both:
                self._attend(each.socket.monitor_fd, each.socket.refresh)

    def put(self, message: Message, bodies: Sequence[Buffer] = ()) -> bool:
        """Send a message with the next `flush`, with batches that it needs. False if it is lost."""
        outbox = self._outboxes.get(message.to)
        return outbox is not None and outbox.put(message, bodies)

    def flush(self, now_s: float) -> None:
        """Send what was put: control messages of all peers first. Call it once a turn, and when `wait` is over."""
        self._look()
        for node, both in self.outgoing.items():
            for each in both:
                if each.socket.refusal:
                    self._try_again(node, each, now_s)
                elif not each.is_up and each.greet(partial(self._hello, node)):
                    self._renewed.add(node)
        for place in range(2):
            for both in self.outgoing.values():
                both[place].flush(now_s >= self._notice_s)
        if not any(each.has_notice for both in self.outgoing.values() for each in both):
            self._notice_s = inf
        elif now_s >= self._notice_s or self._notice_s == inf:
            self._notice_s = now_s + NOTICE_S

    def _hello(self, node: int) -> PeerHello:
        return self.own.hello(node, self._uuid_of(node), self.entry())

    def wait(self, now_s: float) -> float:
        """Seconds until `flush` is due without anything new."""
        return max(0.0, self._notice_s - now_s)

    def renewed(self) -> set[int]:
        """Peers with a new connection since the last call, in either direction."""
        found, self._renewed = self._renewed, set()
        return found

    def restarted(self) -> set[int]:
        """Peers that began anew since the last call."""
        found, self._restarted = self._restarted, set()
        return found

    @property
    def refused(self) -> int:
        """Greetings so far that were refused, and connections that there was no room for."""
        return self._refused + self._room.refused

    @property
    def fd(self) -> int:
        """Readable when `flush` or `take` would find something new."""
        return self._watch.fileno()

    @property
    def readable(self) -> bool:
        """Whether `take` would give something, or look at it."""
        self._look()
        return any(self._filled)

    def _attend(self, descriptor: int, look: Callable[[], object]) -> None:
        """Look once `descriptor` tells of news. It tells of what comes after one looked."""
        self._on_news[descriptor] = look
        self._watch.register(descriptor, select.EPOLLIN)
        look()

    def _try_again(self, node: int, connection: PeerConnection, now_s: float) -> None:
        """Connect to a peer that refused us, after a while."""
        if connection.again_s == inf:
            connection.again_s = now_s + AGAIN_S
            self._say(f"node {node} has another key, or one of us has none: give all nodes the same (--broker-key)")
        elif now_s >= connection.again_s:
            self._renew(connection)

    def _renew(self, connection: PeerConnection) -> None:
        del self._on_news[connection.socket.monitor_fd]
        self._watch.unregister(connection.socket.monitor_fd)
        connection.renew()
        self._attend(connection.socket.monitor_fd, connection.socket.refresh)

    def _look(self) -> None:
        for descriptor, _ in self._watch.poll(0):
            self._on_news[descriptor]()

    def _fill(self, place: int) -> None:
        self._filled[place] = True

    def _forget_lost(self, place: int) -> None:
        """Forget the greetings of connections that have ended. No other is forgotten: it would be heard no more."""
        for peer in self.servers[place].lost():
            self._greeted[place].pop(peer, None)

    def reachable(self) -> set[int]:
        """Peers that our messages go to now."""
        return {node for node, both in self.outgoing.items() if all(each.is_up for each in both)}

    def take(self) -> Iterator[PeerArrival]:
        """What has arrived, control messages first."""
        self._look()
        for place, (server, greeted) in enumerate(zip(self.servers, self._greeted, strict=True)):
            for _ in range(TAKEN_MAX if self._filled[place] else 0):
                received = server.receive()
                if received is None:
                    self._filled[place] = False
                    break
                peer, frames = received
                yield from self._read(server, greeted, peer, frames)

    def _read(self, server: ServerSocket, greeted: Greeted, peer: bytes, frames: list[Buffer]) -> Iterator[PeerArrival]:
        try:
            message, batches = message_of(frames)
        except ProtocolError as error:
            self._refuse(server, greeted, peer, error.message)
            return
        if isinstance(message, PeerHello):
            self._greet(server, greeted, peer, message)
            return
        node, uuid, entry = greeted.get(peer, (0, b"", 0))
        if not node:
            return  # sent before its PeerHello, over a connection that the sender has not noticed yet
        known = self._uuid_of(node)
        if not may_be(uuid, entry, known, self.entry()):
            self._refuse(server, greeted, peer, f"node {node} has another data directory by now")
            return
        bodies = {(batch.log_id, batch.seq, batch.header_checksum): bytes(batch.buffer) for batch in batches}
        for each in message.messages:
            is_heard = known in (b"", uuid) or each.kind in TOLD_KINDS
            if is_heard and each.sender == node and each.to == self.own.node:
                yield PeerArrival(node, each, bodies)

    def _greet(self, server: ServerSocket, greeted: Greeted, peer: bytes, hello: PeerHello) -> None:
        if refusal := refusal_of(hello, self.own, self._uuid_of, self.entry()):
            if is_replaceable(hello, self.own):
                self.strangers[hello.node] = hello.uuid
            self._refuse(server, greeted, peer, refusal)
            return
        self.strangers.pop(hello.node, None)
        self._on_greeted(hello.node, hello.uuid)
        if (told := other_limits(hello, self.own)) != self._limits_told.get(hello.node, ""):
            self._limits_told[hello.node] = told
            self._say(told or f"node {hello.node} has the limits of this one now")
        greeted[peer] = hello.node, hello.uuid, hello.entry
        self.advertised[hello.node] = hello.advertise
        self._renewed.add(hello.node)
        if self._incarnations.setdefault(hello.node, hello.incarnation) != hello.incarnation:
            self._incarnations[hello.node] = hello.incarnation
            self._restarted.add(hello.node)
        ours = self.outgoing[hello.node][self.servers.index(server)]
        if not ours.socket.connected:  # the peer is back: libzmq might try again only two seconds later
            self._renew(ours)

    def _refuse(self, server: ServerSocket, greeted: Greeted, peer: bytes, why: str) -> None:
        self._refused += 1
        greeted.pop(peer, None)
        self._say(f"{why} ({server.cut_off()})")

    def close(self) -> None:
        """Close all sockets. Repeating it does nothing."""
        self._watch.close()
        for both in self.outgoing.values():
            for each in both:
                each.socket.close()
        for server in self.servers:
            server.close()
