"""Endings: the offset below which a queue group's records finished long enough ago to expire.

Idea: retention only removes a prefix of the log, so one entry per minute is enough: the lowest record that ended in
it. An entry is dropped when a later minute has a lower record. What remains is a short list with ascending times and
offsets; `forgettable` is the first offset that is not old enough.

Contract: never reports a record as older than it is; when there are too many minutes, the oldest merge into the later
one. Part of a partition's state: the same log gives the same list. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

MINUTE_US = 60_000_000

MOST = 512
"""Limit of entries; beyond it the older half is halved."""


class Endings:
    """See the module. Invariant: `entries` are (minute in microseconds, offset), and both rise from one to the next."""

    __slots__ = ("entries", "first")

    def __init__(self, entries: Iterable[tuple[int, int]] = (), first: int = 0) -> None:
        """`first`: where the log begins; what was carried forward from before is not counted."""
        self.entries = list(entries)
        self.first = first

    def note(self, time_us: int, offset: int, count: int) -> None:
        """Note records that ended."""
        if offset + count <= self.first:
            return
        offset, minute_us, entries = max(offset, self.first), time_us - time_us % MINUTE_US, self.entries
        if entries and entries[-1][0] == minute_us and entries[-1][1] <= offset:
            return
        while entries and entries[-1][1] >= offset:
            entries.pop()
        if not entries or entries[-1][0] < minute_us:
            entries.append((minute_us, offset))
            if len(entries) > MOST:
                self._thin()

    def _thin(self) -> None:
        """Count two old minutes as the later one: their records are kept a little longer."""
        old, self.entries = self.entries[: MOST // 2], self.entries[MOST // 2 :]
        pairs = zip(old[::2], old[1::2], strict=True)
        self.entries[:0] = [(later_us, lowest) for (_, lowest), (later_us, _) in pairs]

    def forgettable(self, before_us: int, end: int) -> int:
        """The lowest offset that ended at `before_us` or later; `end` if there is none."""
        return next((offset for minute_us, offset in self.entries if minute_us + MINUTE_US > before_us), end)

    def next_us(self, keep_us: int) -> int | None:
        """When the next records expire that are kept for so long; None when all have."""
        return self.entries[0][0] + MINUTE_US + keep_us if self.entries else None

    def forget_below(self, first: int) -> None:
        """The log's first offset moved."""
        self.first = max(self.first, first)
        low = [minute_us for minute_us, offset in self.entries if offset < first]
        if low:
            rest = self.entries[len(low) :]
            self.entries = rest if rest and rest[0][1] == first else [(low[-1], first), *rest]
