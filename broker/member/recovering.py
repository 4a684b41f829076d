"""A member that has lost something, as a broker drives it: it fetches a state, and refuses all but a few requests.

Idea: in the place of a replica stands a `Recovery`, and in the place of its node one over an empty log in memory, which
greets clients, says where the leader is, and tells counters.

Contract: that of `Node` towards a broker, as `ShardMember`. Raises ReplicaBroken once the state is staged: this process
ends, and the next one installs it and is a whole member.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ...storage.jobs import InlineJobs
from ...storage.log_store import LogStore
from ...storage.memory_files import MemoryFiles
from ...storage.promises import Promises
from ...storage.segment_reader import SegmentCache
from ...transport.messages import ClusterMember, ClusterState, TransferBegun
from ..diagnostics import say
from ..engine.node import Node
from ..engine.ports import NodeStanding
from ..replica.replica import ANYWHERE
from .pace import Ticks
from .standing import FOLLOWER, LEADER
from .view import RECOVERING, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...storage.log import LogWriter
    from ...transport.messages import Request
    from ..engine.ports import NodeConfig, Now, Payload, Peer, Port
    from ..peers.links import PeerLinks
    from ..replica.recovering import Recovery
    from ..rights import Principal


class _NoLogs(LogStore):
    """The store of a node that never leads."""

    def hurry(self, log: LogWriter) -> None:
        """Nothing: no request waits for a sync."""


def empty_node(port: Port, config: NodeConfig, now: Now) -> Node:
    """A node without topics that never leads."""
    files = MemoryFiles()
    files.mkdir("/none")
    store = _NoLogs(
        "/none", files, promises=Promises("/none/promises", files), cache=SegmentCache(files), jobs=InlineJobs(files),
        max_batch_bytes=config.max_frame_bytes,
    )  # fmt: skip
    return Node(store, port, randomness=os.urandom, config=config, now=now, may_lead=lambda: False)


class RecoveringMember:
    """See the module. `room`: see MemberView. `tell` hears of role and term."""

    rests = False

    def __init__(
        self, recovery: Recovery, node: Node, links: PeerLinks, room: Callable[[], int],
        tell: Callable[[str, int], None], now: Now,
    ) -> None:  # fmt: skip
        self._recovery = recovery
        self._node = node
        self._links = links
        self._room = room
        self._tell = tell
        self._told = -1
        self._told_problem = self._told_refused = ""
        self._ticks = Ticks(now.monotonic_s)
        self.guard, self.portions, self.unavailable = node.guard, node.portions, node.unavailable
        self.warmed, self.eased, self.judge = node.warmed, node.eased, node.judge
        self.rest, self.resume, self.disconnect, self.rotten = node.rest, node.resume, node.disconnect, node.rotten
        node.clustering.view = self

    def receive(
        self, peer: Peer, message: Request, payload: Payload, now: Now, principal: Principal | None = None
    ) -> None:
        """See Node."""
        if isinstance(message, ANYWHERE):
            self._node.receive(peer, message, payload, now, principal)
        else:
            self._node.refuse(peer, message)

    def flush(self, now: Now, *, hurry: bool = False) -> list[LogWriter]:
        """Take what peers sent, and ask for more. Raises ReplicaBroken once all is staged, Poisoned."""
        recovery, links = self._recovery, self._links
        for arrival in links.take():
            recovery.step(arrival.message, arrival.bodies)
        links.renewed()
        if self._ticks.due(now.monotonic_s):
            recovery.room.own = self._room()
            recovery.tick()
            self._say_problem()
            if warning := recovery.room.warning(now.monotonic_s):
                say(warning)
        links.flush(now.monotonic_s)
        leader = tuple(links.advertised.get(recovery.leader, ()))
        self._node.standing = NodeStanding(FOLLOWER if leader else "", recovery.term, leader)
        if recovery.term != self._told:
            self._told = recovery.term
            self._tell(RECOVERING, recovery.term)
        return []

    def _say_problem(self) -> None:
        """Say what could not be mended, and what there was no room for, when that has changed."""
        if (refused := self._recovery.refused) not in ("", self._told_refused):
            self._told_refused = refused
            say(f"{refused}: this node goes on fetching what it has lost once there is room")
        if (problem := self._recovery.problem) not in ("", self._told_problem):
            self._told_problem = problem
            say(f"{problem}: this node fetches the log from a leader, once there is one that has it whole")

    def answer_ahead(self) -> bool:
        """What is durable here alone is not committed."""
        return False

    def advance(self, now: Now) -> None:
        """See Node."""
        self._node.advance(now)

    def tick(self, now: Now) -> float:
        """See Node."""
        wait = self._node.tick(now)
        if self._links.readable:
            return 0.0
        return min(wait, self._ticks.wait(now.monotonic_s), self._links.wait(now.monotonic_s))

    def leaving(self) -> bool:
        """It has no lead to hand over."""
        return False

    def close(self, now: Now) -> None:
        """End. What is fetched stays."""
        self._recovery.close()
        self._node.close(now)
        self._links.close()

    def stats(self) -> dict[str, Any]:
        """The counters of a member, as far as it has them."""
        recovery, links = self._recovery, self._links
        return {
            "cluster.term": recovery.term,
            "cluster.leader": recovery.leader,
            "cluster.leads": 0,
            "cluster.last": 0,
            "cluster.committed": 0,
            "cluster.applied": 0,
            "cluster.differing": 0,
            "cluster.peers_reachable": len(links.reachable()),
            "cluster.greetings_refused": links.refused,
        }

    # -- as a view of the cluster -------------------------------------------------------------------

    def state(self, request: int, now: Now) -> ClusterState:
        """What this node knows now."""
        recovery, own = self._recovery, self._links.own
        members = [
            ClusterMember(
                node, RECOVERING, "installing", UNKNOWN, self._room(), now.wall_us, [*own.advertise],
                recovery.catching_up.progress(),
            )
            if node == own.node
            else ClusterMember(
                node, LEADER if node == recovery.leader else "", "", UNKNOWN, UNKNOWN, 0,
                self._links.advertised.get(node, []),
            )
            for node in sorted(own.peers)
        ]  # fmt: skip
        return ClusterState(request, own.cluster, own.node, recovery.leader, recovery.term, 0, members)

    def transfer(self, request: int, node: int) -> TransferBegun:
        """It has no lead. Raises NotLeader, NoLeader."""
        raise self._node.not_leading()

    def replace(self, request: int, node: int, now: Now) -> ClusterState:
        """It does not lead. Raises NotLeader, NoLeader."""
        raise self._node.not_leading()
