"""What a member is to its clients: leader, follower, or neither yet; and what they are told when that changes.

Idea: after each turn the role is looked at. A change is shown in the node's Welcome, and told to the supervisor. When
the lead is lost, every client that was greeted hears LeaderMoved: what it waits for will not be answered here. Clients
that were turned away since hear it once another leader, or this node, serves: so a client need not ask again and again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...transport.messages import LeaderMoved
from ..engine.ports import NodeStanding
from ..raft.state import Role

if TYPE_CHECKING:
    from ..engine.node import Node
    from ..engine.ports import Peer, Port
    from ..peers.links import PeerLinks
    from ..raft.node import RaftNode

CLIENTS_MAX = 10_000
"""Greeted connections that are told of a move. A client that is not told notices by its next request."""

LEADER, FOLLOWER, CANDIDATE = "leader", "follower", "candidate"


class ShownRole:
    """See the module. `tell`: hears of role and term whenever either changes."""

    def __init__(
        self, node: Node, core: RaftNode, links: PeerLinks, port: Port, own: tuple[str, ...],
        tell: Callable[[str, int], None],
    ) -> None:  # fmt: skip
        self._node = node
        self._core = core
        self._links = links
        self._port = port
        self.own = own
        """Where clients connect to this node."""
        self._tell = tell
        self._told = ("", 0)
        self._incarnation = 0
        self._serving: tuple[int, tuple[str, ...]] = (0, ())  # term and addresses of the leader that clients were told
        self._clients: dict[Peer, None] = {}

    def greeted(self, peer: Peer) -> None:
        """A client said Hello."""
        if len(self._clients) >= CLIENTS_MAX:
            del self._clients[next(iter(self._clients))]
        self._clients[peer] = None

    def gone(self, peer: Peer) -> None:
        """A client's connection ended."""
        self._clients.pop(peer, None)

    @property
    def role(self) -> str:
        """leader, once it serves; follower; or candidate: neither."""
        if self._node.leads:
            return LEADER
        return FOLLOWER if self._core.role is Role.FOLLOWER else CANDIDATE

    def look(self) -> None:
        """The turn is over: show and tell what has changed."""
        core, role = self._core, self.role
        leader = self.own if role == LEADER else tuple(self._links.advertised.get(core.leader, ()))
        shown = NodeStanding(LEADER if role == LEADER else FOLLOWER if core.leader else "", core.term, leader)
        if role == CANDIDATE:
            shown = NodeStanding("", core.term, ())
        if shown != self._node.standing:
            self._node.standing = shown
        if self._incarnation and self._node.incarnation != self._incarnation:
            self._say_moved(core.term, list(leader) if role == FOLLOWER else [])
        self._incarnation = self._node.incarnation
        if leader and (core.term, leader) != self._serving and (role == LEADER or core.is_settled):
            self._serving = core.term, leader
            for peer in self._clients:
                self._port.reply(peer, LeaderMoved(core.term, list(leader)))
        if (role, core.term) != self._told:
            self._told = role, core.term
            self._tell(role, core.term)

    def _say_moved(self, term: int, leader: list[str]) -> None:
        clients, self._clients = self._clients, {}
        for peer in clients:
            self._port.reply(peer, LeaderMoved(term, leader))
            self._node.disconnect(peer)
