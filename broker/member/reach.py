"""Which peers a member does not reach, as lines for its log: once when it lasts, once when it is over. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

LOOK_S = 1.0
TELL_S = 5.0
"""Without a connection for so long, a peer counts as unreachable: nodes of a cluster start one after the other."""


class Reach:
    """See the module."""

    def __init__(self, peers: Mapping[int, str], now_s: float) -> None:
        """`peers`: addresses of the others, by number."""
        self._peers = dict(peers)
        self._heard_s = dict.fromkeys(peers, now_s)  # when each was reached last
        self._told: set[int] = set()
        self.due_s = now_s + LOOK_S
        """When to look next."""

    def look(self, reachable: Set[int], now_s: float) -> Iterator[str]:
        """What is to be said now that these are reachable."""
        self.due_s = now_s + LOOK_S
        for node, address in self._peers.items():
            if node in reachable:
                self._heard_s[node] = now_s
                if node in self._told:
                    self._told.discard(node)
                    yield f"node {node} is reached again at {address}"
            elif node not in self._told and now_s - self._heard_s[node] >= TELL_S:
                self._told.add(node)
                left = len(self._peers) + 1 - len(self._told)
                yield f"node {node} cannot be reached at {address}: {left} of {len(self._peers) + 1} nodes are left"
