"""Finds how far so many bytes of a log reach, from its indexes.

Idea: index rows ascend by offset and by position, so bisection finds the end of a piece of so many bytes without
reading what lies between.

Contract: reads no batch. An index is believed without asking its batches, so bytes are approximate; offsets ascend and
end where the span ends, whatever an index says. A segment without an index counts as one batch. Pure but for the
reader that it is handed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from . import index
from .errors import OutOfBounds
from .layout import DATA_START, IndexRow, SegmentName

if TYPE_CHECKING:
    from .reader import LogReader


PIECES_MAX = 100_000
"""In the answer to one question about any number of spans."""


class Stretch(NamedTuple):
    """The batches of one segment that a span needs: rows `low` to `high` - 1, at positions `begin` to `finish`."""

    low: int
    high: int
    begin: int
    finish: int


def pieces(
    reader: LogReader, offset: int, end: int, piece_bytes: int, limit_seq: int
) -> Iterator[tuple[int, int] | None]:
    """Cut the span from `offset` on and below `end` into pieces: where each ends, and the bytes of its batches.

    A piece ends with the batch that brings it to `piece_bytes`; the last one ends at `end`. `limit_seq` is the last
    batch that is committed. Segments are looked at as the pieces are asked for; each is followed by a None,
    so that the caller can do other things. Raises OutOfBounds when retention took one meanwhile, Corrupt.
    """
    reader.refresh()
    names = reader.names[reader.place_at(offset) :] if offset < end else []
    begun, size = offset, 0
    for number, name in enumerate(names):
        following = reader.base_offset(_place(reader, names[number + 1])) if number + 1 < len(names) else None
        stretch = _stretch(reader, name, offset if not number else None, end, following, limit_seq)
        at = stretch.begin
        while at < stretch.finish and size + stretch.finish - at >= piece_bytes:
            row = _reaching(reader, name, stretch, at, max(at + piece_bytes - size, at + 1))
            if row is None or row.end_offset >= end:
                break
            size, at = size + row.end_position - at, row.end_position
            if row.end_offset > begun:  # a piece has records
                yield row.end_offset, size
                begun, size = row.end_offset, 0
        size += stretch.finish - at
        yield None
        if following is None or following >= end:
            break
    if offset < end:
        yield end, size


def _place(reader: LogReader, name: SegmentName) -> int:
    """The index of a segment among the present ones."""
    place = reader.place_of(name.base_seq)
    if reader.names[place] != name:
        raise OutOfBounds(f"segment {name} of {reader.path} is gone; the log begins at offset {reader.first_offset}")
    return place


def _stretch(
    reader: LogReader, name: SegmentName, offset: int | None, end: int, following: int | None, limit_seq: int
) -> Stretch:
    """The part of a segment that a span needs; `offset` is where the span begins, None if in an earlier segment."""
    place = _place(reader, name)
    count = reader.last_seq(place, limit_seq) - name.base_seq + 1
    rows = _rows(reader, name, count)
    if rows is None:
        return Stretch(0, 0, 0, reader.segment(name).size)
    low = 0 if offset is None else max(index.last_at_or_before(rows, offset), 0)
    high = count if following is not None and following <= end else index.first_at_or_after(rows, end)
    if high <= low:
        return Stretch(low, low, 0, 0)
    begin = rows[low].position if low else DATA_START
    return Stretch(low, high, begin, max(rows[high - 1].end_position, begin))


def _rows(reader: LogReader, name: SegmentName, count: int) -> Sequence[IndexRow] | None:
    """The rows of a segment; None without an index."""
    file = reader.segment(name).index_file()
    return None if file is None else index.IndexRows(file, max(count, 0))


def _reaching(reader: LogReader, name: SegmentName, stretch: Stretch, at: int, position: int) -> IndexRow | None:
    """The row of the first batch that reaches `position`; None when the index does not help."""
    rows = _rows(reader, name, stretch.high)
    if rows is None:
        return None
    found = bisect_left(rows, position, stretch.low, stretch.high, key=lambda row: row.end_position)
    row = rows[min(found, stretch.high - 1)]
    return row if row.end_position > at else None
