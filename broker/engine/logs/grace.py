"""Grace: for a while after an office has opened, nothing ends that clients have to renew.

Idea: log time goes on while no office is open, and no client can extend a lease then. So what has an end gets a part of
its usual time once more, from the opening on: a client that comes back finds it as it left it. The proposer asks here;
replicas apply what was proposed.

Contract: the monotonic clock counts, as of the last reading of log time. Must not know what it is that ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .clock import LogTime

SHARE = 3
"""Clients renew after a third of the time: one that was due meanwhile is sent at once over the new connection."""

NEVER_US = -(1 << 62)
"""Before all times."""


class Grace:
    """That of one office, which opens now. `most_s`: the longest; 0 where clients live and end with the office."""

    def __init__(self, time: LogTime, most_s: float) -> None:
        self._time = time
        self._opened_s = time.monotonic_s
        self._most_s = most_s

    def end_s(self, lasting_s: float) -> float:
        """When, by the monotonic clock, something may end that is renewed within `lasting_s`."""
        return self._opened_s + min(lasting_s / SHARE, self._most_s)

    def covers(self, lasting_s: float) -> bool:
        """Whether something that is renewed within `lasting_s` may not end yet."""
        return self._time.monotonic_s < self.end_s(lasting_s)

    def silent_us(self, lasting_s: float) -> int:
        """What was renewed last before this time is over: `lasting_s` ago, and NEVER_US as long as that is covered."""
        return NEVER_US if self.covers(lasting_s) else self._time.last_us - round(lasting_s * 1e6)
