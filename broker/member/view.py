"""The cluster as a member sees it: who leads, how far the others are; and handing the lead over.

Contract: as `ClusterView` of the engine. A follower knows its leader and itself; only a leader knows of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...transport.messages import ClusterMember, ClusterState, TransferBegun
from ..errors import InvalidRequest, Unavailable
from ..raft.progress import FollowerPace
from ..raft.state import Role
from .standing import FOLLOWER, LEADER

if TYPE_CHECKING:
    from ..engine.ports import Now
    from ..peers.links import PeerLinks
    from ..raft.node import RaftStatus
    from ..replica.replica import Replica
    from .standing import ShownRole

UNKNOWN = -1
LEARNER = "learner"
RECOVERING = "recovering"

_STATES = {FollowerPace.PROBE: "probing", FollowerPace.REPLICATE: "replicating", FollowerPace.SNAPSHOT: "installing"}


class MemberView:
    """See the module. `room`: what this node may still write on the disk of its data directory."""

    def __init__(self, replica: Replica, links: PeerLinks, standing: ShownRole, room: Callable[[], int]) -> None:
        self._replica = replica
        self._links = links
        self._standing = standing
        self._room = room

    def state(self, request: int, now: Now) -> ClusterState:
        """What this node knows now."""
        replica, status = self._replica, self._replica.core.status()
        own, leader = status.node, self._leader(status)
        reachable = self._links.reachable()
        members = [
            self._own(own, now) if node == own else self._other(node, status, leader, reachable, now)
            for node in sorted(self._links.own.peers)
        ]
        return ClusterState(request, self._links.own.cluster, own, leader, status.term, replica.places.entry, members)

    def _leader(self, status: RaftStatus) -> int:
        """The leader; 0 while it is this node and does not serve yet."""
        is_ours = status.role is Role.LEADER and self._standing.role != LEADER
        return 0 if is_ours else status.leader

    def _own(self, node: int, now: Now) -> ClusterMember:
        role = self._standing.role
        state = "serving" if role == LEADER else "" if self._replica.directories.table.met else "waiting"
        lag = 0 if role == LEADER else UNKNOWN
        clock_us = self._replica.clocks.own(now)  # `now` may be the time of the others
        return ClusterMember(node, role, state, lag, self._room(), clock_us, list(self._standing.own))

    def _other(self, node: int, status: RaftStatus, leader: int, reachable: set[int], now: Now) -> ClusterMember:
        role, state, lag = LEADER if node == leader else "", "", UNKNOWN
        if (peer := status.members.get(node)) is not None:
            role, lag = LEARNER if peer.learner else FOLLOWER, max(0, status.last - peer.match)
            state = _STATES[peer.pace] if node in reachable and peer.is_heard else "unreachable"
            if state == "replicating" and any(node in nodes for nodes in self._replica.digesting.undecided().values()):
                state = "differing"
        elif node not in reachable:
            state = "unreachable"
        if state == "unreachable" and node in self._links.strangers:
            state = "refused"
        replica, leads = self._replica, leader == status.node
        if replica.exchange.recovers(node) and node in reachable:
            role, state = RECOVERING, "installing"
        progress = replica.exchange.shipping.progress(node)
        hears = leads and state not in ("unreachable", "refused")  # else what it said last would look like news of it
        room, clock_us = (replica.room.of(node), replica.clocks.of(node, now)) if hears else (UNKNOWN, 0)
        return ClusterMember(node, role, state, lag, room, clock_us, self._links.advertised.get(node, []), progress)

    def transfer(self, request: int, node: int) -> TransferBegun:
        """Begin to hand the lead over; 0: to the follower that has the most. Nothing to do for the leader itself.

        Raises InvalidRequest, NotLeader.
        """
        core, status = self._replica.core, self._replica.core.status()
        if self._standing.role != LEADER:
            raise self._replica.node.not_leading()
        if node == status.node:
            return TransferBegun(request, node, status.term)
        chosen = node or self._furthest(status)
        if chosen not in status.members:
            raise InvalidRequest(
                f"node {chosen} is none of the cluster: {', '.join(map(str, sorted(status.members)))} are"
            )
        if chosen not in self._links.reachable() or not core.transfer(chosen):
            raise InvalidRequest(f"node {chosen} cannot take the lead now: it is unreachable, or no voter")
        return TransferBegun(request, chosen, status.term)

    def replace(self, request: int, node: int, now: Now) -> ClusterState:
        """Begin to make the directory that a node was refused with the node's, where that has not begun yet.

        Raises InvalidRequest, NotLeader; Unavailable while another change goes on.
        """
        own = self._links.own
        if self._standing.role != LEADER:
            raise self._replica.node.not_leading()
        if node not in own.peers:
            raise InvalidRequest(f"node {node} is none of the cluster: {', '.join(map(str, sorted(own.peers)))} are")
        if node == own.node:
            raise InvalidRequest(f"node {node} leads, so its directory is not lost: hand the lead over before")
        uuid, known = self._links.strangers.get(node), self._replica.directories.table.uuids.get(node)
        if uuid in (None, known) and node not in self._replica.core.status().configuration.voters:
            return self.state(request, now)  # it has begun
        if uuid is None or uuid == known:
            raise InvalidRequest(
                f"node {node} has not come with another directory: start it with an empty one and the options that it "
                "had, and ask again; what was asked for before is done, if the node is a member that replicates"
            )
        if refusal := self._replica.replace(node, uuid):
            raise Unavailable(f"node {node} cannot be replaced now ({refusal}): ask again")
        return self.state(request, now)

    def _furthest(self, status: RaftStatus) -> int:
        others = {node: peer for node, peer in status.members.items() if node != status.node}
        reachable = self._links.reachable()
        return max(others, key=lambda each: (not others[each].learner, each in reachable, others[each].match))
