"""The wall clocks of the members: one that is far off from the others does not become the time of the shard.

Idea: members say their clocks when they acknowledge, so a leader knows those of a majority before its office opens. The
median counts. A leader whose own clock is off by more than the limit uses its clock moved to the median; any other
leader uses its own as it is.

Contract: of two clocks that contradict each other the earlier counts: log time never goes back, so the worst is that it
waits. How long a message took is not subtracted: the limit is far above that. Pure.
"""

from __future__ import annotations

from ..engine.ports import Now

UNKNOWN = 0


class MemberClocks:
    """See the module."""

    def __init__(self, limit_s: float) -> None:
        self.own_us = UNKNOWN  # of this member, in its last turn
        self._monotonic_us = 0  # at the same time
        self._limit_us = limit_s * 1e6
        self._since_us: dict[int, int] = {}  # of others: what they show beyond the monotonic clock of this one

    def heard(self, node: int, clock_us: int) -> None:
        """A member said what its clock shows."""
        if clock_us != UNKNOWN and self.own_us != UNKNOWN:
            self._since_us[node] = clock_us - self._monotonic_us

    def of(self, node: int, now: Now) -> int:
        """What a member's clock shows; 0 where that is unknown."""
        since_us = self._since_us.get(node)
        return UNKNOWN if since_us is None else since_us + _monotonic_us(now)

    def own(self, now: Now) -> int:
        """What this member's own clock shows, whatever time is gone by; 0 where that is unknown."""
        return self.own_us and self.own_us + _monotonic_us(now) - self._monotonic_us

    def now(self, now: Now, last_us: int = 0) -> Now:
        """The time to go by, where the last entry is of `last_us`: that was the time of a leader, too."""
        self.own_us, self._monotonic_us = now.wall_us, _monotonic_us(now)
        known = sorted([now.wall_us, *(since_us + self._monotonic_us for since_us in self._since_us.values())])
        wall_us = max(known[(len(known) - 1) // 2], last_us)
        return now if abs(wall_us - now.wall_us) <= self._limit_us else Now(wall_us, now.monotonic_s)


def _monotonic_us(now: Now) -> int:
    return round(now.monotonic_s * 1e6)
