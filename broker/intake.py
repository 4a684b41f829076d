"""The broker's intake: the messages that a turn takes from connections.

Idea: turns are short, so that a client waits little for others. Sockets hand out messages of their connections in
turn, and a turn takes more the more connections have something, until one of several returns that has used up its
share. A connection that has been alone for a while gets a longer turn, since more messages then share an append. While
the node rests no client is heard: what they send waits in the system's buffers, and theirs.

Contract: at least one message of each readable socket is taken. Invalid messages end their connection; a request for
too much at once gets a Failure. Must not know what messages mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..storage.errors import Error
from ..storage.histogram import SAMPLE, Histogram
from ..transport import codec
from ..transport.errors import ProtocolError, TooMuchAsked
from ..transport.messages import Failure, NameRequest
from .diagnostics import say
from .engine.turns.replies import failure
from .overdrafts import SHARE_S, Overdrafts
from .port import SocketPeer
from .throttling import Throttle

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..transport.sockets import Server
    from .access import BrokerAccess
    from .engine import Node, Now
    from .member.member import ShardMember
    from .member.recovering import RecoveringMember
    from .poller import Poller
    from .port import SocketPort
    from .rights import Principal

ALONE_S = 0.002
"""Of one turn, for the only connection that was heard for CALM_S."""

CALM_S = 0.05

TURN_S = 0.005
"""Of one turn and socket, however many connections have something."""

TURN_MESSAGES = 256
"""Messages taken from one socket in one turn."""

TURN_BYTES = 8 << 20
"""Of batches in one turn over all sockets; each may bring one message more. A turn that copies and writes more than
this would keep the others, and the peers of a node, waiting."""

TICK_S = 1e-9
"""The resolution of the clock: no turn is shorter."""

READ_TURNS = 64
"""The processor's clock is read once in so many turns, and after each that took longer than a share."""

TELL_HOSTILE_S = 1.0
"""Between two lines about peers that were cut off: a hostile one must not fill the log."""


class Intake:
    """See the module. `clock` tells how long a turn has taken so far, `processor` how much of it the thread ran."""

    def __init__(
        self,
        node: Node | ShardMember | RecoveringMember,
        port: SocketPort,
        servers: Sequence[Server],
        clock: Callable[[], float],
        processor: Callable[[], float],
        access: BrokerAccess | None = None,
    ) -> None:
        self.hostile = 0
        """Messages that were none."""
        self.messages = 0
        """Taken in this turn."""
        self.bytes = 0
        """Of batches that came with them."""
        self.exhausted = False
        """Whether this turn left something where it was."""
        self.rests = False
        """Whether no client is heard."""
        self._received_bytes = 0
        self._turns = 0
        self._turns_us = Histogram()
        self._node = node
        self._port = port
        self._servers = servers
        self._clock = clock
        self._processor = processor
        self._access = access
        self._overdrafts = Overdrafts[SocketPeer]()
        self._throttle = Throttle[SocketPeer]()
        port.meters = self._throttle.meters.by_peer
        self._names = port.names
        self._over_s: dict[SocketPeer, float] = {}
        self._begun_s = 0.0
        self._ran_s = processor()  # at the last reading
        self._since_s = 0.0  # what turns took since then
        self._tell_at_s = 0.0
        self._last: SocketPeer | None = None
        self._crowded_s = 0.0  # when another connection than the last one was heard

    def stats(self) -> dict[str, Any]:
        """What came in, and how long turns took in microseconds, without the wait between them."""
        return {
            "received.bytes": self._received_bytes, "received.hostile": self.hostile,
            "turns": self._turns, "turns.us": self._turns_us.values(),
            "quota.pauses": self._throttle.pauses, "quota.refused": self._throttle.refused,
        }  # fmt: skip

    def begin(self) -> None:
        """Another turn."""
        self.messages = self.bytes = 0
        self.exhausted = False
        self._over_s.clear()
        self._begun_s = self._clock()
        if self._access is not None and self._access.refresh(self._begun_s):
            self._node.judge(self._access.of_peer)

    def rest(self, poller: Poller, rests: bool) -> None:
        """Hear no client from now on, or all of them again: `poller` watches the sockets."""
        self.rests = rests
        for server in self._servers:
            if rests:
                poller.remove(server)
            else:
                poller.add(server)
                server.refresh()

    def take(self, server: Server, at: Now) -> None:
        """Hand over what one socket has, as far as fairness allows."""
        number = self._servers.index(server)
        if server.has_news:
            self._heed(server, number)
        started = self._clock()
        spent_s = self._hear(server, number, at, started)
        over_s, ran_share = self._over_s, -1.0
        for peer, each_s in spent_s.items():
            if each_s <= SHARE_S:
                over_s[peer] = 0.0
                continue
            if ran_share < 0.0:  # asked only where it matters: reading it is a system call
                ran_share = self._ran_share(started)
            over_s[peer] = max(0.0, each_s * ran_share - SHARE_S)

    def _heed(self, server: Server, number: int) -> None:
        """Connections have ended, or read enough to be sent more."""
        for identity in server.lost():
            peer = SocketPeer(number, identity)
            self._overdrafts.forget(peer)
            self._throttle.lost(peer)
            self._names.lost(peer)
            self._node.disconnect(peer)
        for identity in server.eased():
            self._node.eased(SocketPeer(number, identity))

    def _ran_share(self, started: float) -> float:
        """How much of the time since `started` this thread ran, as far as is known from the last reading.

        What others did on this processor meanwhile is no connection's overdraft. Turns since the last reading count as
        if the thread had run in all of them, and waiting as if it cost nothing.
        """
        now_s, ran_s = self._clock(), self._processor()
        share = (ran_s - self._ran_s - self._since_s - (started - self._begun_s)) / max(now_s - started, TICK_S)
        self._ran_s, self._since_s = ran_s, self._begun_s - now_s  # this turn counts from here on
        return min(1.0, max(0.0, share))

    def worked(self, steps: Mapping[Any, int], took_s: float) -> None:
        """The node has worked on what connections had asked for before."""
        step_s = took_s / max(1, sum(steps.values()))
        for peer, count in steps.items():
            self._over_s[peer] = self._over_s.get(peer, 0.0) + count * step_s

    def end(self) -> float | None:
        """The turn is over: see who sits out, and who is heard again. Returns when the next turn is due for that.

        It is due at once where a connection is heard again: what it asked for goes on in turns.
        """
        now_s = self._clock()
        if not self._turns % SAMPLE:
            self._turns_us.note(int((now_s - self._begun_s) * 1e6))
        self._turns += 1
        self._received_bytes += self.bytes
        self._since_s += now_s - self._begun_s
        if not self._turns % READ_TURNS:
            self._ran_s, self._since_s = self._processor(), 0.0
        held, resumed = self._overdrafts.settle(self._over_s, self._begun_s, now_s)
        for peer in held:
            self._hold(peer)
        if not (resumed or self._overdrafts.held or self._throttle.until_s):
            return None
        is_heard_again = False
        for peer in (*resumed, *self._throttle.released(now_s)):
            if not self._throttle.holds(peer) and not self._overdrafts.holds(peer):
                self._servers[peer.server].resume(peer.identity)
                self._node.resume(peer)
                is_heard_again = True
        if is_heard_again:
            return now_s
        return min((at_s for at_s in (self._overdrafts.next_s(), self._throttle.next_s()) if at_s), default=None)

    def _hold(self, peer: SocketPeer) -> None:
        """Hear nothing of a connection, and go on with nothing of it, until it is resumed."""
        self._servers[peer.server].hold(peer.identity)
        self._node.rest(peer)

    def _hear(self, server: Server, number: int, at: Now, started: float) -> dict[SocketPeer, float]:
        """Returns what each connection took of the turn."""
        spent_s: dict[SocketPeer, float] = {}
        before_s, is_spent = started, False
        for taken in range(TURN_MESSAGES):
            # Receiving in vain costs an exception; after a single message, the usual turn, it pays to ask before.
            if taken == 1 and not server.readable:
                return spent_s
            if taken and (is_spent or before_s - started >= self._share_s(len(spent_s), started)):
                break
            received = server.receive()
            if received is None:
                return spent_s
            peer = SocketPeer(number, received[0])
            if peer != self._last:
                self._last, self._crowded_s = peer, started
            self._hand_over(server, peer, received[1], at)
            now_s = self._clock()
            known_s = spent_s.get(peer)
            spent_s[peer] = (known_s or 0.0) + now_s - before_s
            # All others that have something were heard before one came again.
            has_its_share = known_s is not None and len(spent_s) > 1 and spent_s[peer] >= SHARE_S
            is_spent = has_its_share or self.bytes >= TURN_BYTES
            before_s = now_s
        self.exhausted = True
        return spent_s

    def _share_s(self, connections: int, now_s: float) -> float:
        """How long a turn may take messages of so many connections."""
        return ALONE_S if now_s - self._crowded_s >= CALM_S else min(SHARE_S * connections, TURN_S)

    def _hand_over(self, server: Server, peer: SocketPeer, frames: Sequence[codec.Buffer], at: Now) -> None:
        try:
            message, payload = codec.decode_request(frames)
        except TooMuchAsked as error:
            self._port.reply(peer, Failure(error.request, error.code, error.message))
            return
        except ProtocolError as error:
            self._cut_off(server, peer, error, at)
            return
        self.messages += 1
        self.bytes += len(payload)
        self._port.latencies.arrived(peer, message, at.monotonic_s)
        if self._names.open or type(message) is NameRequest:
            self._names.heard(peer, message, at.monotonic_s)
        access = self._access
        if access is None:
            self._node.receive(peer, message, payload, at)
            return
        principal = access.of_peer(server.speaker())
        if principal.quota is None:
            self._node.receive(peer, message, payload, at, principal)
        else:
            self._hand_over_counted(peer, message, payload, at, principal)

    def _hand_over_counted(
        self, peer: SocketPeer, message: Any, payload: codec.Buffer, at: Now, principal: Principal
    ) -> None:
        """Hand over a message of a principal with a quota, unless it is used up."""
        try:
            self._throttle.admit(peer, principal, message, len(payload), at.monotonic_s)
        except Error as error:
            if request := getattr(message, "request", 0):
                self._port.reply(peer, failure(request, error))
        else:
            self._node.receive(peer, message, payload, at, principal)
        if self._throttle.sits_out(peer, at.monotonic_s):
            self._hold(peer)

    def _cut_off(self, server: Server, peer: SocketPeer, error: ProtocolError, at: Now) -> None:
        """Close the connection of a peer that sent nonsense, and say so, not more often than people can read."""
        self.hostile += 1
        who = server.cut_off()
        if at.monotonic_s >= self._tell_at_s:
            self._tell_at_s = at.monotonic_s + TELL_HOSTILE_S
            promised = self._names.promised(peer)
            named = f", in place of request {promised}" if promised else ""
            say(f"cut off {who}: {error}{named} ({self.hostile} so far)")
