"""Whether a process was told to stop, and whether it was told again.

Idea: signals that come together are one: GNU `timeout` signals a process and then its group, which it is in. The first
one drains, one that comes later ends at once.

Contract: counts, and does nothing else. Called from signal handlers of one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable

SAME_STOP_S = 1.0
"""Signals that come within this time of the first are the same one."""


class Stop:
    """True once it was told; `again` once it was told a second time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.again = False
        self._clock = clock
        self._first_s: float | None = None

    def tell(self) -> bool:
        """Count a signal. Returns whether it says something new: to stop, or to stop at once."""
        now = self._clock()
        if self._first_s is None:
            self._first_s = now
            return True
        self.again = self.again or now - self._first_s >= SAME_STOP_S
        return self.again

    def __bool__(self) -> bool:
        return self._first_s is not None
