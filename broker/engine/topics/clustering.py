"""AskCluster, TransferLead, ReplaceNode: what a node knows of its cluster, handing the lead over, replacing a disk.

Idea: the engine knows no cluster; a member's process says what there is to know by a `ClusterView`.

Contract: a broker that is alone refuses all of them. Must not know Raft, peers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ....transport.messages import AskCluster, ClusterState, ReplaceNode, TransferBegun, TransferLead
from ...errors import InvalidRequest

if TYPE_CHECKING:
    from ..ports import Handlers, Now, Payload, Peer, Port


class ClusterView(Protocol):
    """The cluster, as a member sees it."""

    def state(self, request: int, now: Now) -> ClusterState:
        """What this node knows."""
        ...

    def transfer(self, request: int, node: int) -> TransferBegun:
        """Begin to hand the lead over. Raises InvalidRequest, NotLeader, NoLeader."""
        ...

    def replace(self, request: int, node: int, now: Now) -> ClusterState:
        """Begin to make the directory that a node was refused with the node's. Raises as `transfer`."""
        ...


class Clustering:
    """Handlers of the messages above. `view` is None for a broker that is alone."""

    def __init__(self, port: Port) -> None:
        self.handlers: Handlers = {
            AskCluster: self.ask,
            ReplaceNode: self.replace,
            TransferLead: self.transfer,
        }
        self.view: ClusterView | None = None
        self._port = port

    def ask(self, peer: Peer, message: AskCluster, payload: Payload, now: Now) -> None:
        """Tell what is known now."""
        self._port.reply(peer, self._of_a_cluster().state(message.request, now))

    def transfer(self, peer: Peer, message: TransferLead, payload: Payload, now: Now) -> None:
        """Begin to hand the lead over."""
        self._port.reply(peer, self._of_a_cluster().transfer(message.request, message.node))

    def replace(self, peer: Peer, message: ReplaceNode, payload: Payload, now: Now) -> None:
        """Begin to replace a node's directory."""
        self._port.reply(peer, self._of_a_cluster().replace(message.request, message.node, now))

    def _of_a_cluster(self) -> ClusterView:
        if self.view is None:
            raise InvalidRequest("this broker is alone: members of a cluster are started with --cluster")
        return self.view
