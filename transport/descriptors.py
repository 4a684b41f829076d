"""Room for connections: how many descriptors of the process they may have, so that some are left for files.

Idea: one count for all sockets of a process, asked before a connection or a delivery socket is kept. What is refused is
closed at once: a listener that cannot accept stays readable, and its thread would spin.

Contract: descriptors taken are released once. One thread.
"""

from __future__ import annotations

from .socket_options import SOCKETS_MAX

PUSH_DESCRIPTORS = 3
"""Of a delivery socket: its own, its listener's, and its peer's."""


class DescriptorRoom:
    """At most `most` descriptors, and none with a number from `end` on: the last ones are for what is in progress."""

    def __init__(self, most: int = SOCKETS_MAX, end: int = 1 << 31) -> None:
        self.most = most
        self.used = 0
        self.refused = 0
        self._end = end

    def take(self, descriptor: int, count: int = 1) -> bool:
        """Whether `count` more may be kept; `descriptor` is one of them."""
        if self.used + count > self.most or descriptor >= self._end:
            self.refused += 1
            return False
        self.used += count
        return True

    def give_back(self, count: int = 1) -> None:
        """Release descriptors that were closed."""
        self.used -= count
