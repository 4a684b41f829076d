"""Messages about the cluster that a node is a member of. Normative text: PROTOCOL.md, section 8.13.

Pure: values only.
"""

from __future__ import annotations

from msgspec import Struct

from .message import Count, Int64, Message


class AskCluster(Message, tag=116, frozen=True):
    """Asks a node what it knows of its cluster, whether it leads or not. Answered by ClusterState."""

    request: Count


class ClusterMember(Struct, array_like=True, frozen=True):
    """One node, as the one that answers sees it."""

    node: Count
    role: str
    state: str
    lag: Int64
    free_bytes: Int64
    clock_us: Int64
    addresses: list[str]
    progress: str = ""


class ClusterState(Message, tag=117, frozen=True):
    """What one node knows of its cluster."""

    request: Count
    cluster: str
    node: Count
    leader: Count
    term: Count
    entry: Count
    members: list[ClusterMember]


class ReplaceNode(Message, tag=144, frozen=True):
    """Make the directory that a node came with, and was refused with, that of the node. Answered by ClusterState."""

    request: Count
    node: Count


class TransferLead(Message, tag=118, frozen=True):
    """Hand the lead over to a node; 0: to the one that is the furthest. Answered by TransferBegun."""

    request: Count
    node: Count


class TransferBegun(Message, tag=119, frozen=True):
    """The leader hands over to `node`, which may fail; or is that node, and nothing is done."""

    request: Count
    node: Count
    term: Count
