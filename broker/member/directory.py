"""The data directory of a member: whose it is, and the logs of a shard that begins.

Contract: `take` changes nothing where it raises, and may be repeated after a crash at any point. A shard that has begun
here once is never begun anew: what is gone then is lost, and the node may have voted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ...storage import layout
from ...storage.data_directory import MEMBER_FORMAT, TOPICS, Identity, note_identity
from ...storage.errors import ForeignDirectory
from ...storage.promises import Promises
from ..raft.messages import ConfState
from ..replica.beginning import ShardIds, begin, ids_of
from ..replica.errors import PromisesLost

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...storage.files import Files
    from ..cluster_config import ClusterConfig


def refusal_of(found: Identity | None, data: str, cluster: ClusterConfig) -> str:
    """Why a directory cannot be this member's; "" when it can, or is new."""
    if found is None:
        return ""
    if not found.shard:
        return (
            f"{data} is of a broker that is alone, and a member of cluster {cluster.name} begins with an empty "
            "directory: name another one with --data"
        )
    if found.shard != cluster.name:
        return f"{data} is of cluster {found.shard}, not of {cluster.name}: correct --cluster or --data"
    if found.number != cluster.node:
        return f"{data} is of node {found.number}, not of node {cluster.node}: correct --node or --data"
    if found.members != (given := sorted(cluster.peers)):
        return (
            f"{data} is of a cluster of nodes {_listed(found.members)}, and --peer names {_listed(given)}: give the "
            "same numbers (addresses may change)"
        )
    return ""


def check(found: Identity | None, data: str, cluster: ClusterConfig) -> None:
    """Raise ForeignDirectory where a directory cannot be this member's."""
    if refusal := refusal_of(found, data, cluster):
        raise ForeignDirectory(refusal)


def take(files: Files, data: str, found: Identity | None, cluster: ClusterConfig) -> Identity:
    """The identity of the member, with the logs of its shard there. The caller has locked the directory.

    Raises ForeignDirectory, PromisesLost, StorageFull.
    """
    check(found, data, cluster)
    ids = ids_of(cluster.name, sorted(cluster.peers))
    if found is None:
        found = Identity(
            MEMBER_FORMAT, files.new_id().hex(), ids.cluster.hex(), cluster.name, cluster.node, sorted(cluster.peers)
        )
        note_identity(files, data, found)
    if found.begun:
        if not files.exists(promises := f"{data}/{layout.PROMISES}"):
            raise PromisesLost(f"{promises} is gone: this node may have voted where it cannot tell any more")
        return found
    files.mkdir(f"{data}/{TOPICS}")
    begin(files, data, ids, ConfState(tuple(found.members)))
    Promises(f"{data}/{layout.PROMISES}", files).close()
    found = msgspec.structs.replace(found, begun=True)
    note_identity(files, data, found)
    return found


def shard_ids(identity: Identity) -> ShardIds:
    """The ids of the shard that a member is of."""
    return ids_of(identity.shard, identity.members)


class KnownPeers:
    """The directories of the members: as the shard's table has them, and before that as each was first heard of."""

    def __init__(self, files: Files, data: str, identity: Identity) -> None:
        self._files = files
        self._data = data
        self._identity = identity

    def uuid_of(self, node: int) -> bytes:
        """The uuid of a member's directory; b"" as long as it is unknown."""
        if node == self._identity.number:
            return bytes.fromhex(self._identity.node)
        return bytes.fromhex(self._identity.peers.get(str(node), ""))

    def heard(self, node: int, uuid: bytes) -> None:
        """A peer was let in. Raises StorageFull, OSError."""
        if not self.uuid_of(node):
            self.note({node: uuid})

    def note(self, uuids: Mapping[int, bytes]) -> None:
        """From now on these are the directories of the members. Durable on return. Raises StorageFull, OSError."""
        others = {str(node): uuid.hex() for node, uuid in uuids.items() if node != self._identity.number}
        peers = {**self._identity.peers, **others}
        if peers != self._identity.peers:
            self._identity = msgspec.structs.replace(self._identity, peers=peers)
            note_identity(self._files, self._data, self._identity)


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
