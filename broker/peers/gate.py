"""Who may connect to the sockets that hear peers: nodes that have the key which all nodes share.

Idea: over tcp:// a node proves with CURVE that it has the broker's key, and is encrypted. A path is the file system's
to guard. Without a key there is no gate, and the network has to be the cluster's own.

Contract: implements `Gate`. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...transport.keys import Key
from ...transport.zmq_curve import Guarded

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...transport.zmq_curve import Knock

NODE = "node"
"""What a peer that was let in is called; which node it is, its PeerHello says."""


class PeerGate:
    """See the module. `say`: a line of the log."""

    def __init__(self, public: str, say: Callable[[str], None]) -> None:
        """`public`: the public half of the key, in hex."""
        self._public = bytes.fromhex(public)
        self._say = say

    def admit(self, knock: Knock) -> str:
        """A node that has the key; "" to refuse the peer."""
        if knock.mechanism == "NULL" or knock.credential == self._public:
            return NODE  # NULL comes over a path alone: tcp:// asks for CURVE
        self._say(f"refused a peer with key {knock.credential.hex()}, which is not the cluster's ({knock.address})")
        return ""


def shared(key: Key, say: Callable[[str], None]) -> tuple[Key, Guarded]:
    """What a node connects with, and what it listens with."""
    return Key(key.secret, broker=key.public), Guarded(key, PeerGate(key.public, say))
