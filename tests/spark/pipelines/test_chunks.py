"""Portions of a range: together they are the range, and each is the same whenever it is asked for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from penstock.spark.pipelines.chunks import ArchiveChunk, portion, portions_of


def span(partition: int, start: int, end: int, records: int | None = None) -> ArchiveChunk:
    return ArchiveChunk("flights", partition, start, end, end - start if records is None else records)


RANGES = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 5_000)), max_size=6)


@given(RANGES, st.integers(1, 3_000))
def test_every_offset_is_in_one_portion_and_portions_are_in_order(ranges, most):
    spans = [span(number, start, start + length) for number, (start, length) in enumerate(ranges)]
    count = portions_of(spans, most)
    found = [part for number in range(count) for part in portion(spans, number, count)]
    for each in spans:
        parts = [part for part in found if part.partition == each.partition]
        offsets = [offset for part in parts for offset in range(part.start, part.end)]
        assert offsets == list(range(each.start, each.end))


@given(RANGES, st.integers(1, 3_000))
def test_portions_have_about_as_many_records_as_asked_for(ranges, most):
    spans = [span(number, start, start + length) for number, (start, length) in enumerate(ranges)]
    count = portions_of(spans, most)
    for number in range(count):
        assert sum(part.end - part.start for part in portion(spans, number, count)) <= most + len(spans)


def test_nothing_takes_no_portion():
    assert portions_of([], 10) == 0


def test_records_and_not_offsets_are_counted():
    assert portions_of([span(0, 0, 1_000_000, records=100)], 100) == 1
