"""A member as a broker drives it: a replica with its links, in the place of a node alone.

Idea: the broker's turn is the same (broker.py). Here `flush` takes what peers sent, lets the replica propose, write and
send, and names the logs that entries wait for; the broker has them synced; `advance` acknowledges what became durable,
applies what is committed and answers. Ticks of the Raft core count after messages were taken.

Contract: that of `Node` towards a broker, from one thread. Raises ReplicaBroken, and what a log raises that takes no
more writes: then this process ends, and the next one opens the replica anew. Must not know: sockets of clients, the
keeper.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...transport.messages import Hello
from ..diagnostics import say
from ..errors import InvalidRequest, NoLeader, NotLeader
from ..raft.messages import NONE
from ..raft.state import Role
from ..replica.errors import ReplicaBroken
from .pace import Ticks
from .reach import Reach
from .sending import pieces

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...storage.errors import Corrupt
    from ...storage.log import LogWriter
    from ...transport.messages import Request
    from ..engine.ports import Now, Payload, Peer
    from ..peers.links import PeerLinks
    from ..raft.messages import Message
    from ..replica.replica import Replica
    from ..rights import Principal
    from .standing import ShownRole

HELD_S = 0.002
"""Until the next look while requests wait that may not be proposed yet."""


class PeerSending:
    """Carries out what the replica sends. `links` and `replica` are set once both are there."""

    links: PeerLinks
    replica: Replica

    def send(self, message: Message, bodies: list[bytes]) -> None:
        """Send a message with the next flush. What there is no room for is lost, and the core is told."""
        for each, some in pieces(message, bodies):
            if not self.links.put(each, some):
                self.replica.core.report_unreachable(message.to)
                return


class ShardMember:
    """See the module."""

    def __init__(
        self, replica: Replica, links: PeerLinks, standing: ShownRole, now: Now, room: Callable[[], int] = lambda: -1
    ) -> None:
        """`room`: free bytes of the disk."""
        self.replica = replica
        self._room = room
        replica.room.own = room()
        self._links = links
        self._standing = standing
        self._ticks = Ticks(now.monotonic_s)
        own = links.own
        others = {number: address for number, address in own.peers.items() if number != own.node}
        self._reach = Reach(others, now.monotonic_s)
        node = self._node = replica.node
        self.guard, self.portions, self.unavailable = node.guard, node.portions, node.unavailable
        self.warmed, self.eased, self.judge = node.warmed, node.eased, node.judge
        self.rest, self.resume = node.rest, node.resume
        self._waited_for: dict[LogWriter, None] = {}
        self._is_leaving = False
        self._missing: list[int] = []  # nodes that were named as still to come
        self._differing: dict[str, list[int]] = {}  # logs that nodes differ in, at the last look
        self._told_differing: set[str] = set()

    def receive(
        self, peer: Peer, message: Request, payload: Payload, now: Now, principal: Principal | None = None
    ) -> None:
        """See Node."""
        if isinstance(message, Hello):
            self._standing.greeted(peer)
        self.replica.receive(peer, message, payload, now, principal)

    def disconnect(self, peer: Peer) -> None:
        """See Node."""
        self._standing.gone(peer)
        self._node.disconnect(peer)

    @property
    def rests(self) -> bool:
        """See Node: while nothing may be proposed, what clients send would only pile up."""
        return self.replica.held_back

    def rotten(self, damage: Corrupt, on_mended: Callable[[], None]) -> None:
        """See Exchange."""
        self.replica.exchange.mend(damage, on_mended)

    def flush(self, now: Now, *, hurry: bool = False) -> list[LogWriter]:
        """Take what peers sent, and write and send what follows. Returns the logs that entries wait for."""
        replica, links = self.replica, self._links
        for arrival in links.take():
            replica.step(arrival.message, arrival.bodies)
        for node in links.renewed():
            replica.core.report_unreachable(node)
        for node in links.restarted():
            replica.exchange.restarted(node)
        if self._ticks.due(now.monotonic_s):
            replica.room.own = self._room()
            replica.tick()
            if now.monotonic_s >= self._reach.due_s:
                for line in self._reach.look(links.reachable(), now.monotonic_s):
                    say(line)
                self._say_missing()
                self._say_differing()
                if warning := replica.room.warning(now.monotonic_s):
                    say(warning)
        replica.turn(now)
        links.flush(now.monotonic_s)
        self._standing.look()
        dirty = replica.dirty()
        self._waited_for.update(dict.fromkeys(dirty))
        return dirty

    def _say_missing(self) -> None:
        """Say which nodes a leader waits for before the cluster serves for the first time, when that changed."""
        status = self.replica.core.status()
        missing = self.replica.directories.missing(status) if status.role is Role.LEADER else []
        if missing and missing != self._missing:
            listed = ", ".join(map(str, missing))
            say(f"a new cluster serves once all of its nodes have met, and node {listed} is still to come: start it")
        self._missing = missing

    def _say_differing(self) -> None:
        """Say of which logs nodes have different states without a majority for one, once that lasts."""
        found = self.replica.digesting.undecided()
        for path, nodes in found.items():
            if path in self._differing and path not in self._told_differing:
                listed = ", ".join(map(str, nodes))
                say(
                    f"nodes {listed} add {path} up to different states, and no majority has the same: start the other "
                    "nodes, which decide it"
                )
        self._told_differing = {path for path in found if path in self._differing}
        self._differing = found

    def answer_ahead(self) -> bool:
        """What is durable here alone is not committed."""
        return False

    def advance(self, now: Now) -> None:
        """Acknowledge what is durable, apply and answer what is committed."""
        for log in list(self._waited_for):
            if log.poisoned is not None:
                raise ReplicaBroken(f"{log.path} takes no more writes ({log.poisoned}): the replica is opened anew")
            if log.durable >= log.written:
                del self._waited_for[log]
        self.replica.synced(now)
        self._links.flush(now.monotonic_s)
        self._standing.look()

    def tick(self, now: Now) -> float:
        """Do what is due. Returns the seconds until the next turn is needed."""
        wait = self._node.tick(now)
        if self._links.readable or self.replica.preparing or self.replica.exchange.lists:
            return 0.0
        if self.replica.held_back:
            wait = max(wait, HELD_S)
        return min(wait, self._ticks.wait(now.monotonic_s), self._links.wait(now.monotonic_s))

    def leaving(self) -> bool:
        """Whether the lead is being handed over, so that this node should not end yet; asked first, it begins with it.

        It takes an election timeout at most. A leader that finds no follower to take over ends at once.
        """
        core = self.replica.core
        if not self._is_leaving:
            self._is_leaving = True
            view = self._node.clustering.view
            assert view is not None, "a member is of a cluster"
            with suppress(NotLeader, NoLeader, InvalidRequest):
                view.transfer(0, 0)
        status = core.status()
        return status.role is Role.LEADER and status.transferee != NONE

    def close(self, now: Now) -> None:
        """End in good order. Where this node still leads, the others elect another leader."""
        self.replica.close(now)
        self._standing.look()
        self._links.close()

    def stats(self) -> dict[str, Any]:
        """Counters of the links and the order."""
        replica, status = self.replica, self.replica.core.status()
        return {
            "cluster.term": status.term,
            "cluster.leader": status.leader,
            "cluster.leads": int(self._node.leads),
            "cluster.last": status.last,
            "cluster.committed": status.committed,
            "cluster.applied": replica.places.entry,
            "cluster.differing": len(replica.digesting.undecided()),
            "cluster.peers_reachable": len(self._links.reachable()),
            "cluster.greetings_refused": self._links.refused,
        }
