"""Whether a node may talk to this one: what a PeerHello must say. Pure.

Contract: a refusal is one sentence that names both sides and the way out; "" lets the node in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from .messages import VERSION, PeerHello


class PeerIdentity(Struct, frozen=True, kw_only=True):
    """This node, and the addresses of the others by id."""

    cluster: str
    node: int
    uuid: bytes
    incarnation: int
    peers: Mapping[int, str]
    advertise: tuple[str, ...] = ()
    oldest_version: int = VERSION
    newest_version: int = VERSION

    def hello(self, to: int, to_uuid: bytes) -> PeerHello:
        """What this node says first to another one."""
        return PeerHello(
            self.cluster, self.node, to, self.uuid, to_uuid, self.incarnation, self.oldest_version,
            self.newest_version, list(self.advertise),
        )  # fmt: skip


def refusal_of(hello: PeerHello, own: PeerIdentity, uuid_of: Callable[[int], bytes]) -> str:
    """Why a node is not let in. `uuid_of`: the uuid that the cluster knows of a node's directory; b"" if none yet."""
    if hello.cluster != own.cluster:
        return f"node {hello.node} is of cluster {hello.cluster!r}, and this one of {own.cluster!r}: correct --peer"
    if hello.node not in own.peers or hello.node == own.node:
        return f"node {hello.node} is none of the peers of node {own.node}: give all nodes the same --peer options"
    if hello.to != own.node:
        return (
            f"node {hello.node} takes this node for node {hello.to}, and it is node {own.node}: correct the addresses "
            "of --peer"
        )
    if hello.to_uuid not in (b"", own.uuid):
        return (
            f"node {hello.node} knows another data directory of node {own.node}: a lost disk is replaced by penstock "
            "cluster replace"
        )
    if (known := uuid_of(hello.node)) not in (b"", hello.uuid):
        return (
            f"node {hello.node} comes with another data directory ({hello.uuid.hex()}) than the cluster knows "
            f"({known.hex()}): a lost disk is replaced by penstock cluster replace"
        )
    if hello.newest_version < own.oldest_version or own.newest_version < hello.oldest_version:
        return (
            f"node {hello.node} speaks versions {hello.oldest_version} to {hello.newest_version} between nodes, and "
            f"this one {own.oldest_version} to {own.newest_version}: upgrade the older one"
        )
    return ""


def is_replaceable(hello: PeerHello, own: PeerIdentity) -> bool:
    """Whether a node that was refused came with all but the directory that is known of it."""
    return not refusal_of(hello, own, lambda node: b"")
