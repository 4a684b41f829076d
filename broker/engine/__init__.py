"""penstock engine: the pure rules of topics, partitions, producers and groups, over any store and port.

The broker process drives a `Node` over sockets and files; `file://` and `mem://` drive the same one in process.
"""

from __future__ import annotations

from .node import Node
from .ports import COLD, Cold, NodeConfig, Now, Payload, Peer, Port, Randomness, Store
from .reserve import DiskReserve
from .tables.settings import TopicSettings

__all__ = [
    "COLD", "Cold", "DiskReserve", "Node", "NodeConfig", "Now", "Payload", "Peer", "Port", "Randomness", "Store",
    "TopicSettings",
]  # fmt: skip
