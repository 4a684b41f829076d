"""Divides a fixed range of records into portions. Pure.

Idea: a portion takes the same share of every partition, so that all of them progress together, and follows from the
range and the number of portions alone: portion 7 always has the same records.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class ArchiveChunk(Struct, frozen=True):
    """Offsets from `start` up to, not including, `end` of one partition; at most `records` of them are there."""

    topic: str
    partition: int
    start: int
    end: int
    records: int


def portions_of(spans: Sequence[ArchiveChunk], most: int) -> int:
    """How many portions it takes for each to have about `most` records."""
    return -(-sum(span.records for span in spans) // most)


def portion(spans: Sequence[ArchiveChunk], number: int, of: int) -> list[ArchiveChunk]:
    """Portion `number`, from 0, of so many. Spans that have nothing in it are left out; it may be that all are."""
    return [part for span in spans if (part := _part(span, number, of)).start < part.end]


def _part(span: ArchiveChunk, number: int, of: int) -> ArchiveChunk:
    length = span.end - span.start
    start, end = span.start + length * number // of, span.start + length * (number + 1) // of
    return ArchiveChunk(span.topic, span.partition, start, end, min(end - start, span.records))
