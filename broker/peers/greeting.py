"""Whether a node may talk to this one: what a PeerHello must say. Pure.

Idea: two nodes may know different directories of one of them, where one has not heard of a replacement yet. The one
that has applied more of the order is right, if its table has its directory: a wiped disk has no table.

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
    limits: Mapping[str, int] = {}

    def hello(self, to: int, to_uuid: bytes, entry: int = 0) -> PeerHello:
        """What this node says first to another one. `entry`: see PeerHello."""
        return PeerHello(
            self.cluster, self.node, to, self.uuid, to_uuid, self.incarnation, self.oldest_version,
            self.newest_version, list(self.advertise), entry, dict(self.limits),
        )  # fmt: skip


def may_be(uuid: bytes, entry: int, known: bytes, known_at: int) -> bool:
    """Whether a directory may be that of its node, for one that knows another. Both entries as in PeerHello."""
    return known in (b"", uuid) or entry > known_at


def refusal_of(hello: PeerHello, own: PeerIdentity, uuid_of: Callable[[int], bytes], entry: int = 0) -> str:
    """Why a node is not let in. `uuid_of`: the uuid that this node knows of a node's directory, b"" if none yet;
    `entry`: of this node, see PeerHello."""
    if hello.cluster != own.cluster:
        of = f"node {hello.node} is of cluster {hello.cluster!r}, and this one of {own.cluster!r}"
        return f"{of}: correct --cluster or --peer"
    if hello.node not in own.peers or hello.node == own.node:
        return f"node {hello.node} is none of the peers of node {own.node}: give all nodes the same --peer options"
    if hello.to != own.node:
        return (
            f"node {hello.node} takes this node for node {hello.to}, and it is node {own.node}: correct the addresses "
            "of --peer"
        )
    if not may_be(own.uuid, entry, hello.to_uuid, hello.entry):
        return (
            f"node {hello.node} knows another data directory of node {own.node}: a lost disk is replaced by penstock "
            "cluster replace"
        )
    if not may_be(hello.uuid, hello.entry, known := uuid_of(hello.node), entry):
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


def other_limits(hello: PeerHello, own: PeerIdentity) -> str:
    """Which limits of a node are not those of this one; "" where all are. A name that one of them lacks is left out."""
    differing = [
        f"{name}={hello.limits[name]} where this one has {value}"
        for name, value in sorted(own.limits.items())
        if hello.limits.get(name, value) != value
    ]
    if not differing:
        return ""
    return (
        f"node {hello.node} has {', '.join(differing)}: those of the leader count, so a change of the leader changes "
        "them; give all nodes the same"
    )


def is_replaceable(hello: PeerHello, own: PeerIdentity) -> bool:
    """Whether a node that was refused came with all but the directory that is known of it."""
    return not refusal_of(hello, own, lambda node: b"")
