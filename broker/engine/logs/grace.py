"""Grace: while clients come back after an outage, what they have to renew ends as if no time had passed in it.

Idea: log time goes on while no office serves, or while one stands still, and no client can extend a lease then. So for
a part of its usual time nothing ends that had not ended when the outage began: a client that comes back finds it as it
left it. What was over by then ends at once, so leaders that are lost one after the other keep nothing for ever. The
proposer asks here; replicas apply what was proposed.

Contract: the monotonic clock counts, as of the last reading of log time. Must not know what it is that ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .clock import LogTime

SHARE = 3
"""Clients renew after a third of the time: one that was due meanwhile is sent at once over the new connection."""

BACK_S = 6.0
"""Clients leave a leader that is frozen after 5 s of silence, and are at the next one then. No grace is shorter."""


class Grace:
    """That of one office, which opens now. `most_s`: the longest; 0 where clients live and end with the office.

    `since_us`: log time of the last batch of the office before, when clients could still renew.
    """

    def __init__(self, time: LogTime, most_s: float, since_us: int) -> None:
        self._time = time
        self._most_s = most_s
        self._since_us = since_us
        self._began_s = time.monotonic_s

    def stood_still(self, since_us: int, since_s: float) -> None:
        """The office served no client from then on, in log time and by the monotonic clock: clients have to come back.

        Where those of the outage before were not given BACK_S for that, this one prolongs it; so an office that stands
        still again and again keeps nothing for ever.
        """
        if since_s - self._began_s < BACK_S:
            self._began_s += self._time.monotonic_s - since_s
        else:
            self._since_us, self._began_s = since_us, self._time.monotonic_s

    def end_s(self, lasting_s: float) -> float:
        """When, by the monotonic clock, something may end that is renewed within `lasting_s`."""
        return self._began_s + min(max(lasting_s / SHARE, BACK_S), self._most_s)

    def covers(self, lasting_s: float) -> bool:
        """Whether something that is renewed within `lasting_s`, and was not over in time, may not end yet."""
        return self._time.monotonic_s < self.end_s(lasting_s)

    def keeps(self, until_us: int, lasting_s: float) -> bool:
        """Whether what was to end at `until_us`, in log time, and is renewed within `lasting_s`, may not yet."""
        return until_us > self._since_us and self.covers(lasting_s)

    def over_us(self, lasting_s: float) -> int:
        """What is renewed within `lasting_s` may end now where its end was to come by this time, which is returned."""
        return self._since_us if self.covers(lasting_s) else self._time.last_us

    def silent_us(self, lasting_s: float) -> int:
        """What was renewed last before this time, which is returned, was silent for `lasting_s` and is over."""
        return self.over_us(lasting_s) - round(lasting_s * 1e6)
