"""Alarms: callbacks at given log times.

Idea: one heap for all queue groups of a node; each has at most one alarm, at the earliest time it is due. The callback
looks at the present state and sets the next alarm.

Contract: an alarm rings once, not before its time. Alarms are not logged: they follow from the state. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from itertools import count

Ring = Callable[[int], None]
"""Told the log time."""


class Alarms:
    """Alarms by key."""

    def __init__(self) -> None:
        self._by_key: dict[Hashable, tuple[int, Ring]] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        self._numbers = count()

    def set(self, key: Hashable, time_us: int, ring: Ring) -> None:
        """Ring at a time, or at that of the key's present alarm when it is earlier."""
        known = self._by_key.get(key)
        if known is None or time_us < known[0]:
            self._by_key[key] = (time_us, ring)
            heappush(self._heap, (time_us, next(self._numbers), key))

    def cancel(self, key: Hashable) -> None:
        """Ring no more."""
        self._by_key.pop(key, None)

    def ring(self, now_us: int) -> None:
        """Ring what is due. What is set meanwhile waits for the next call."""
        due: list[Ring] = []
        while self._heap and self._heap[0][0] <= now_us:
            time_us, _, key = heappop(self._heap)
            known = self._by_key.get(key)
            if known is not None and known[0] == time_us:
                del self._by_key[key]
                due.append(known[1])
        for each in due:
            each(now_us)

    def next_us(self) -> int | None:
        """When the next one rings; None without any."""
        while self._heap:
            time_us, _, key = self._heap[0]
            known = self._by_key.get(key)
            if known is not None and known[0] == time_us:
                return time_us
            heappop(self._heap)
        return None
