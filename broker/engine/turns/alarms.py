"""Alarms: callbacks at given times of one clock.

Idea: one heap for all that is due some time, so that a turn asks once; each key has at most one alarm, at the earliest
time it is due. The callback looks at the present state and sets the next alarm.

Contract: an alarm rings once, not before its time. Alarms are not logged: they follow from the state. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, TypeVar

Time = TypeVar("Time", int, float)

SLACK = 64
"""Entries of alarms that ring no more are cleared away once they are more than the others and this."""


class Alarms(Generic[Time]):
    """Alarms by key, in the unit of their clock: microseconds of log time, or monotonic seconds."""

    def __init__(self) -> None:
        self.first: Time | None = None
        """No alarm rings before; None without any. For others to see that there is nothing to ring."""
        self._by_key: dict[Hashable, tuple[Time, Callable[[Time], None]]] = {}
        self._heap: list[tuple[Time, int, Hashable]] = []
        self._numbers = count()

    def set(self, key: Hashable, time: Time, ring: Callable[[Time], None]) -> None:
        """Call `ring` with the present time at `time`, or at that of the key's present alarm when it is earlier."""
        known = self._by_key.get(key)
        if known is None or time < known[0]:
            self._by_key[key] = (time, ring)
            if self.first is None or time < self.first:
                self.first = time
            heappush(self._heap, (time, next(self._numbers), key))
            if len(self._heap) > 2 * len(self._by_key) + SLACK:
                self._heap[:] = [(each[0], next(self._numbers), known) for known, each in self._by_key.items()]
                heapify(self._heap)

    def cancel(self, key: Hashable) -> None:
        """Ring no more."""
        self._by_key.pop(key, None)

    def ring(self, now: Time) -> Time | None:
        """Ring what is due; what is set meanwhile waits for the next call. Returns when that is; None without any."""
        heap = self._heap
        if heap and heap[0][0] <= now:
            for each in self._take(now):
                each(now)
        while heap:
            time, _, key = heap[0]
            known = self._by_key.get(key)
            if known is not None and known[0] == time:
                self.first = time
                return time
            heappop(heap)
        self.first = None
        return None

    def _take(self, now: Time) -> list[Callable[[Time], None]]:
        due: list[Callable[[Time], None]] = []
        while self._heap and self._heap[0][0] <= now:
            time, _, key = heappop(self._heap)
            known = self._by_key.get(key)
            if known is not None and known[0] == time:
                del self._by_key[key]
                due.append(known[1])
        return due
