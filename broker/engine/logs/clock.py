"""Log time: the append time of batches, which never goes back.

Idea: between two readings, log time advances with the monotonic clock, and forward to the wall clock. A wall clock far
ahead is not followed at once, because retention by age would remove records; one that stays ahead is (a node that
started with yesterday's date, which was then corrected). Log time cannot go back to a wall clock that was set back: it
stays a little ahead, or runs at half pace until the wall clock has caught up.

    wall clock ahead by up to the limit       go on from there
    ahead by more                             ignore and report it; follow it when SETTLED_LOOKS, LOOK_S apart, agree
    behind by up to the limit                 the pace of the monotonic clock
    behind by more                            half pace, and report it, until it is behind by SLACK_US at most

Contract: `read` never returns less than before. Time comes as `Now`; this module reads no clock.
"""

from __future__ import annotations

from ..ports import Now

LOOK_S = 60.0
SETTLED_LOOKS = 15
"""Looks at a wall clock that is far ahead, and the time between two: a quarter of an hour until it is followed."""

AGREE_US = 60_000_000
"""Two looks agree when the wall clock is ahead by the same, give or take so much."""

SLACK_US = 1_000_000
"""Log time that comes back from far ahead is there when it is ahead by so little."""


class LogTime:
    """Monotone microseconds UTC out of two clocks.

    Invariant: every reading >= the one before, and >= the one before + half of what the monotonic clock moved.
    """

    def __init__(self, now: Now, jump_s: float) -> None:
        self._read: Now | None = None  # the last one
        self._last_us = now.wall_us
        self._monotonic_s = now.monotonic_s
        self._jump_us = round(jump_s * 1e6)
        self._looks = 0
        self._look_at_s = 0.0
        self._agreed_us = 0  # by how much the wall clock was ahead at the first of those looks
        self.away_us = 0  # the wall clock minus log time while it is not simply followed, for reports
        self.jumps = 0  # times that it was followed over the limit

    @property
    def last_us(self) -> int:
        """The last reading."""
        return self._last_us

    @property
    def monotonic_s(self) -> float:
        """The monotonic clock at the last reading."""
        return self._monotonic_s

    def reach(self, time_us: int) -> None:
        """A log that is open now ends at `time_us`: go on from there, unless it is too far ahead to be followed.

        A wall clock that was set back while the node was down would let the log's time stand still, and leases with it.
        """
        if 0 < time_us - self._last_us <= self._jump_us:
            self._last_us = time_us

    def read(self, now: Now) -> int:
        """Log time at `now`. Of one `Now`, the first reading counts."""
        if now is self._read:
            return self._last_us
        self._read = now
        wall_us, monotonic_s = now
        expected = self._last_us
        if monotonic_s > self._monotonic_s:
            expected += round((monotonic_s - self._monotonic_s) * 1e6)
            self._monotonic_s = monotonic_s
        ahead = wall_us - expected
        if self.away_us or not -self._jump_us <= ahead <= self._jump_us:
            return self._read_away(wall_us, ahead, expected)
        self._last_us = wall_us if ahead > 0 else expected
        return self._last_us

    def _read_away(self, wall_us: int, ahead: int, expected: int) -> int:
        """Log time while the wall clock is elsewhere."""
        coming_back = self.away_us < 0 and ahead < -SLACK_US
        if ahead < -self._jump_us or coming_back:
            self.away_us, self._looks = ahead, 0
            self._last_us += (expected - self._last_us) // 2
        elif ahead <= self._jump_us:
            self.away_us = self._looks = 0
            self._last_us = max(wall_us, expected)
        elif self._settled(ahead):
            self.away_us = self._looks = 0
            self.jumps += 1
            self._last_us = wall_us
        else:
            self.away_us = ahead
            self._last_us = expected
        return self._last_us

    def _settled(self, ahead: int) -> bool:
        """Whether the wall clock was found ahead by as much often and long enough."""
        if not self._looks or abs(ahead - self._agreed_us) > AGREE_US:
            self._looks, self._agreed_us = 1, ahead
        elif self._monotonic_s < self._look_at_s:
            return False
        else:
            self._looks += 1
        self._look_at_s = self._monotonic_s + LOOK_S
        return self._looks > SETTLED_LOOKS
