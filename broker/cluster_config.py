"""The settings of a node that is a member of a cluster.

Idea: the same for all nodes but `node`: a name, and where each node is reached by the others. Must not know: sockets,
what members tell each other.
"""

from __future__ import annotations

from msgspec import Struct

from ..storage.units import count_text
from ..transport.url import Url, connect_url, listen_url
from .errors import InvalidPeers
from .exposure import need_closed
from .peers.addresses import data_address

SIZES = (3, 5)
"""Members of a cluster: an even number would survive no more losses than the one below it."""

NODE_MAX = 255
NAME_MAX = 200


class ClusterConfig(Struct, frozen=True, kw_only=True):
    """Which cluster a node is of, and which node of it."""

    name: str
    node: int
    peers: dict[int, str]  # where each node is reached by the others, by number, this one too
    listen: str = ""  # where this node hears the others, if that is another address

    @property
    def own_address(self) -> str:
        """Where this node hears the others."""
        return self.listen or self.peers[self.node]

    def check(self, *, guarded: bool, insecure: bool) -> None:
        """Raise InvalidPeers, InvalidUrl or InsecureListen unless a node may start so. `guarded`: nodes have a key."""
        if not self.name or len(self.name) > NAME_MAX or not self.name.isprintable():
            raise InvalidPeers(f"--cluster {self.name!r}: a name has 1 to {NAME_MAX} printable characters")
        if len(self.peers) not in SIZES:
            raise InvalidPeers(f"--peer names {count_text(len(self.peers), 'node')}: give 3 or 5, this one among them")
        if self.node not in self.peers:
            raise InvalidPeers(
                f"--node {self.node} is none of the nodes that --peer names ({', '.join(map(str, sorted(self.peers)))})"
            )
        if not all(1 <= node <= NODE_MAX for node in self.peers):
            raise InvalidPeers(f"--peer: numbers of nodes are 1 to {NODE_MAX}")
        self._check_addresses()
        data_address(self.own_address)
        need_closed(
            listen_url(self.own_address), guarded=guarded, insecure=insecure,
            way_out="give all nodes the same key (--broker-key)",
        )  # fmt: skip

    def places(self) -> list[tuple[str, Url]]:
        """Where this node hears the others, each with the option that says so."""
        option = "--peer-listen" if self.listen else "--peer"
        second = data_address(self.own_address)
        return [(option, listen_url(self.own_address)), (f"{option} (at the next port)", listen_url(second))]

    def _check_addresses(self) -> None:
        taken: dict[str, int] = {}
        for node, address in self.peers.items():
            connect_url(address)
            for each in (address, data_address(address)):
                if (other := taken.setdefault(each, node)) != node:
                    raise InvalidPeers(
                        f"--peer: nodes {other} and {node} both use {each}: each node uses its address and the next "
                        "port, so leave a port between two on one machine"
                    )


def peer_of(text: str) -> tuple[int, str]:
    """Number and address of `NUMBER=URL`. Raises InvalidPeers."""
    number, separator, address = text.partition("=")
    if not separator or not number.isdecimal() or not address:
        raise InvalidPeers(f"--peer {text} is not NUMBER=URL, as in 1=tcp://10.0.0.1:7171")
    return int(number), address


def peers_of(texts: tuple[str, ...] | list[str]) -> dict[int, str]:
    """Addresses by number. Raises InvalidPeers."""
    found: dict[int, str] = {}
    for text in texts:
        number, address = peer_of(text)
        if number in found:
            raise InvalidPeers(f"--peer names node {number} twice: give each node a number of its own")
        found[number] = address
    return found
