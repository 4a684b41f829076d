"""Rate limits per key: a token bucket each.

Idea: a bucket is one number, the time at which it is full again. A lease moves it by one interval, and is allowed
while that time is at most the depth of the bucket ahead. Full buckets are not stored.

Contract: `rate` leases per second, with a burst of a tenth of a second's worth, at least one: in any T seconds at most
`rate * T + max(1, rate / 10)`. Local to a node: buckets are full after a restart. Log time is an argument. Pure.
"""

from __future__ import annotations

_SECOND = 1_000_000_000_000  # picoseconds: the highest rate has whole intervals
_US = 1_000_000
BURST_S = 0.1
"""The burst, as a share of a second's worth."""

BUCKETS_MAX = 4096
"""Buckets kept before full ones are dropped."""


class Rates:
    """Buckets by key."""

    def __init__(self) -> None:
        self._full: dict[int, int] = {}  # by key, when its bucket is full again, in picoseconds

    def take(self, key: int, rate: float, now_us: int) -> int:
        """Take a token: 0 when there was one, else the time (us) at which there will be."""
        full, again_us = self._next(key, rate, now_us)
        if again_us <= now_us:
            self._full[key] = full
            if len(self._full) > BUCKETS_MAX:
                self._forget(now_us * _US)
            return 0
        return again_us

    def again_us(self, key: int, rate: float, now_us: int) -> int:
        """When there will be a token; 0: now."""
        again_us = self._next(key, rate, now_us)[1]
        return again_us if again_us > now_us else 0

    def _next(self, key: int, rate: float, now_us: int) -> tuple[int, int]:
        """When the bucket is full again after one more token, and when that may be taken."""
        interval = round(_SECOND / rate)
        depth = max(round(rate * BURST_S), 1) * interval
        full = max(self._full.get(key, 0), now_us * _US) + interval
        return full, -(-(full - depth) // _US)

    def _forget(self, now: int) -> None:
        """Drop buckets that are full; where each key is busy, they stay: as many as keys in a bucket's time."""
        self._full = {key: full for key, full in self._full.items() if full > now}
