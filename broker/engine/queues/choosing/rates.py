"""Rates: a token bucket for each key.

Idea: a bucket is one number, the time at which it is full again. Each token moves it by one interval, and may be taken
while that time is at most the depth of the bucket ahead. Full buckets are not stored.

Contract: in any time, at most what the pace gives in it and its burst. A bucket whose pace changes is empty where it
lacked more tokens than it can hold now. Log time is an argument. Pure.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from ...tables.queues.pace import LeasePace

K = TypeVar("K", bound=Hashable)

_US = 1_000_000
BUCKETS_MAX = 4096
"""Buckets kept before full ones are dropped."""


class Rates(Generic[K]):
    """Buckets by key."""

    def __init__(self) -> None:
        self._full: dict[K, int] = {}  # by key, when its bucket is full again, in picoseconds

    def take(self, key: K, pace: LeasePace, now_us: int) -> int:
        """Take a token: 0 when there was one, else the time (us) at which there will be."""
        again_us = self.again_us(key, pace, now_us)
        if not again_us:
            self.spend(key, pace, now_us, 1)
        return again_us

    def room(self, key: K, pace: LeasePace, now_us: int) -> int:
        """The number of tokens that there are now."""
        return (now_us * _US + pace.depth - self._level(key, pace, now_us)) // pace.interval

    def again_us(self, key: K, pace: LeasePace, now_us: int, count: int = 1) -> int:
        """When there will be `count` tokens, which the bucket can hold; 0: now."""
        again_us = -(-(self._level(key, pace, now_us) + count * pace.interval - pace.depth) // _US)
        return again_us if again_us > now_us else 0

    def spend(self, key: K, pace: LeasePace, now_us: int, count: int) -> int:
        """Take tokens that are there. Returns when the bucket is full again (us)."""
        full = self._full[key] = self._level(key, pace, now_us) + count * pace.interval
        if len(self._full) > BUCKETS_MAX:
            self._forget(now_us * _US)
        return -(-full // _US)

    def recall(self, key: K, pace: LeasePace, now_us: int, full_us: int) -> None:
        """Go on with a bucket that `spend` told of; the latest word counts."""
        self._full[key] = max(self._full.get(key, 0), full_us * _US)
        self._level(key, pace, now_us)

    def __iter__(self) -> Iterator[K]:
        """The keys whose buckets are kept."""
        return iter(self._full)

    def drop(self, key: K) -> None:
        """Forget a bucket."""
        self._full.pop(key, None)

    def _level(self, key: K, pace: LeasePace, now_us: int) -> int:
        """When the bucket is full again: not before now, and at most its depth from now."""
        now, full = now_us * _US, self._full.get(key, 0)
        if full > now + pace.depth:
            full = self._full[key] = now + pace.depth
        return max(full, now)

    def _forget(self, now: int) -> None:
        """Drop buckets that are full; where each key is busy, they stay: as many as keys in a bucket's time."""
        self._full = {key: full for key, full in self._full.items() if full > now}
