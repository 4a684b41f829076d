"""Remembers when records of places were appended, to tell ids that name a record from others.

Idea: an id of a Redis entry is a time and an offset, and a queue group knows records by their offsets. A consumer
that acknowledges an entry had it from this gateway as a rule, so the times of what was handed out are kept, by
stretches of records that were appended together.

Contract: says a time only if it is known. Memory: `PLACES_MAX` places of `SPANS_MAX` stretches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import groupby

PLACES_MAX = 1_000
SPANS_MAX = 4_096

Place = tuple[bytes, int]
"""A topic id and a partition."""


class AppendTimes:
    """See the module."""

    def __init__(self) -> None:
        self._places: OrderedDict[Place, _Spans] = OrderedDict()

    def note(self, place: Place, offsets: Sequence[int], times_us: Iterable[int]) -> None:
        """Records of a place, without a gap and in order, and when each was appended."""
        spans = self._places.setdefault(place, _Spans())
        self._places.move_to_end(place)
        if len(self._places) > PLACES_MAX:
            self._places.popitem(last=False)
        at = 0
        for time_us, group in groupby(times_us):
            end = at + len(list(group))
            spans.add(offsets[at], offsets[end - 1] + 1, time_us // 1000)
            at = end

    def milliseconds(self, place: Place, offset: int) -> int:
        """When a record was appended; -1 if that is not known."""
        return self.span(place, offset)[2]

    def span(self, place: Place, offset: int) -> tuple[int, int, int]:
        """Records appended with one: the first offset, that behind the last, and when; -1 if that is not known."""
        spans = self._places.get(place)
        return (offset, offset, -1) if spans is None else spans.at(offset)


class _Spans:
    """Stretches of one place, by their first offsets. What overlaps agrees: an append time never changes."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._spans: list[tuple[int, int]] = []  # the offset behind it, and milliseconds

    def add(self, first: int, end: int, time_ms: int) -> None:
        at = bisect_right(self._firsts, first)
        if at and self._spans[at - 1][1] == time_ms and self._spans[at - 1][0] >= first:
            self._spans[at - 1] = (max(self._spans[at - 1][0], end), time_ms)
            return
        self._firsts.insert(at, first)
        self._spans.insert(at, (end, time_ms))
        if len(self._firsts) > SPANS_MAX:
            del self._firsts[0], self._spans[0]

    def at(self, offset: int) -> tuple[int, int, int]:
        at = bisect_right(self._firsts, offset) - 1
        if at < 0 or offset >= self._spans[at][0]:
            return offset, offset, -1
        return self._firsts[at], *self._spans[at]


class EntriesRead:
    """What clients said of how much groups have read, where their positions say otherwise. Advice, as in Redis."""

    def __init__(self) -> None:
        self._said: OrderedDict[tuple[str, str], list[int]] = OrderedDict()

    def set(self, topic: str, group: str, count: int) -> None:
        """A client says so of a group as it is now; -1: not."""
        self._said.pop((topic, group), None)
        if count >= 0:
            self._said[topic, group] = [count, -1]
            if len(self._said) > PLACES_MAX:
                self._said.popitem(last=False)

    def count(self, topic: str, group: str, position: int) -> int:
        """How much a group has read that is at a position."""
        said = self._said.get((topic, group))
        if said is None:
            return position
        if said[1] < 0:
            said[1] = position
        return said[0] + position - said[1]
