"""The pace of one queue's tasks: how many more are worth leasing at once.

Idea: as many as ended within a moment will end within the next one. Leases of quick tasks then hold many, which hides
the cost of a commit; of slow tasks only those are leased that can begin soon, so that other workers get the rest.
Pure: times come as arguments.
"""

from __future__ import annotations

from collections import deque

AHEAD_S = 0.1
"""Seconds of work that may be leased before it can begin."""

AHEAD_MAX = 1000
"""The most tasks that are leased ahead: when a worker is killed, an attempt of each has been counted."""


class QueuePace:
    """The pace of a queue whose tasks are given `max_attempts` attempts.

    No task is leased ahead that has one attempt: a worker that is killed would leave it dead-lettered and never begun.

    Invariant: `_count` is the sum of what `_ended` has.
    """

    def __init__(self, max_attempts: int) -> None:
        self._ahead_max = AHEAD_MAX if max_attempts > 1 else 0
        self._ended: deque[tuple[float, int]] = deque()
        self._count = 0

    def note(self, count: int, now: float) -> None:
        """Count calls that ended."""
        self._ended.append((now, count))
        self._count += count

    def ahead(self, now: float) -> int:
        """How many calls will end within a moment, as a guess."""
        ended = self._ended
        while ended and ended[0][0] < now - AHEAD_S:
            self._count -= ended.popleft()[1]
        return min(self._count, self._ahead_max)
