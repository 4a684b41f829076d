"""The extent of each segment of a log, for retention and for statistics.

Idea: a segment's extent is fixed as long as the same segment follows it (after a cut another one does), so it is
measured once, from the next one's header and its own last index row. Where the last one ends its owner knows, and where
it begins never changes: a log that was measured before is measured without opening a file.

Contract: a measure, not a promise: `record_bytes` of a sealed segment is 0 where its index does not agree with its last
batch, so retention keeps too much rather than too little. Must not know: what goes or stays.
"""

from __future__ import annotations

from contextlib import suppress

from .layout import DATA_START, SegmentName
from .reader import LogReader
from .retention import SegmentExtent


class Extents:
    """Measures segments through a reader and remembers those that cannot change any more."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._sealed: dict[SegmentName, tuple[SegmentName, SegmentExtent]] = {}
        self._last: tuple[SegmentName, int] | None = None  # the last segment that was measured, and its base offset

    def all(self, last_seq: int, position: int, end_offset: int, time_us: int) -> list[SegmentExtent]:
        """Every segment, oldest first; the arguments are the end of the log as its owner knows it."""
        names = self._reader.names
        found = [self._sealed_extent(place) for place in range(len(names) - 1)]
        name = names[-1]
        if self._last is None or self._last[0] != name:
            self._last = name, self._reader.base_offset(len(names) - 1)
        size = position - DATA_START if last_seq >= name.base_seq else 0
        return [*found, SegmentExtent(name.base_seq, last_seq, self._last[1], end_offset, size, time_us)]

    def _sealed_extent(self, place: int) -> SegmentExtent:
        name, following = self._reader.names[place : place + 2]
        known = self._sealed.get(name)
        if known is None or known[0] != following:
            end = self._reader.start(place + 1)
            measured = self._measure(place, following.base_seq - 1, end.offset, end.time_us)
            known = self._sealed[name] = following, measured
        return known[1]

    def _measure(self, place: int, last_seq: int, end_offset: int, time_us: int) -> SegmentExtent:
        name, row = self._reader.names[place], None
        if last_seq >= name.base_seq:
            with suppress(OSError):  # a bad sector is as a damaged row
                row = self._reader.segment(name).indexed(last_seq)
        size = 0 if row is None else row.end_position - DATA_START
        return SegmentExtent(name.base_seq, last_seq, self._reader.base_offset(place), end_offset, size, time_us)

    def forget(self, names: set[SegmentName]) -> None:
        """Remove segments that are gone."""
        for name in names:
            self._sealed.pop(name, None)


def extents_of(reader: LogReader) -> list[SegmentExtent]:
    """Every segment that a reader finds, also where retention removes some meanwhile."""

    def measure() -> list[SegmentExtent]:
        end = reader.limit()
        row = reader.row(end) if end >= reader.names[0].base_seq else None
        position, time_us = (row.end_position, row.append_time_us) if row is not None else (DATA_START, 0)
        return Extents(reader).all(end, position, reader.end_offset_at(end), time_us)

    return reader.despite_removal(measure)
