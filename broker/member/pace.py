"""The time of the Raft core: ticks from a clock, and how many of them an election takes. Pure.

Idea: a process that did not run for a while must not count that as silence of the leader. What comes late is one tick,
after messages that arrived meanwhile were taken.
"""

from __future__ import annotations

TICK_S = 0.05
HEARTBEAT_TICKS = 2
ELECTION_TICKS = 10
"""A follower campaigns when it has heard of no leader for this many ticks, and up to as many more by chance."""


class Ticks:
    """When ticks are due."""

    def __init__(self, now_s: float) -> None:
        self._next_s = now_s + TICK_S

    def due(self, now_s: float) -> bool:
        """Whether one is due; the next is a tick later."""
        if now_s < self._next_s:
            return False
        self._next_s += TICK_S
        if self._next_s <= now_s:
            self._next_s = now_s + TICK_S
        return True

    def wait(self, now_s: float) -> float:
        """Seconds until one is due."""
        return max(0.0, self._next_s - now_s)
