"""Log time: the append time of batches, which never goes back.

Idea: the wall clock is followed forward only. Between two readings, log time moves by at least what the
monotonic clock says and at most to the wall clock; a wall clock that jumps ahead by more than a limit is
not followed, because retention by age would remove what it says is old.

Contract: `read` never returns less than it did before. Time comes in as `Now`; nothing here looks at a clock.
"""

from __future__ import annotations

from .ports import Now


class LogTime:
    """Monotone microseconds UTC out of two clocks.

    Invariant: every reading >= the one before, and >= the one before + monotonic elapsed.
    """

    def __init__(self, now: Now, jump_s: float) -> None:
        self._last_us = now.wall_us
        self._monotonic_s = now.monotonic_s
        self._jump_us = round(jump_s * 1e6)
        self.ignored_us = 0  # by how much the wall clock is ahead while it is not followed, for reports

    @property
    def last_us(self) -> int:
        """The last reading."""
        return self._last_us

    def reach(self, time_us: int) -> None:
        """A log that is open now ends at `time_us`: go on from there, unless it is too far ahead to be followed.

        A wall clock that was set back while the node was down would let the log's time stand still, and leases with it.
        """
        if 0 < time_us - self._last_us <= self._jump_us:
            self._last_us = time_us

    def read(self, now: Now) -> int:
        """Log time at `now`."""
        wall_us, monotonic_s = now
        expected = self._last_us
        if monotonic_s > self._monotonic_s:
            expected += round((monotonic_s - self._monotonic_s) * 1e6)
            self._monotonic_s = monotonic_s
        ahead = wall_us - expected
        self.ignored_us = ahead if ahead > self._jump_us else 0
        self._last_us = wall_us if 0 < ahead <= self._jump_us else expected
        return self._last_us
