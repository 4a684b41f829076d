"""Filters: what is taken, what Spark keeps, and that neither loses a row."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("pyspark", reason="needs the extra penstock[spark]")

from penstock.spark.filters import EVER, Filters, Moments
from penstock.spark.offsets import PartitionKey, Position
from penstock.spark.planning import PlannedSpan
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

SPANS = [PlannedSpan(PartitionKey(topic, number), "x", Position(10, 2), 20) for topic in "ab" for number in range(3)]
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
NOON_US = 1_704_110_400_000_000


def left(*given: Filter) -> list[tuple[str, int, int]]:
    """What is read, every filter having been taken."""
    filters = Filters()
    assert all(filters.take(one) for one in given)
    return [(str(span.place), span.begin.offset, span.end) for span in filters.spans(SPANS)]


def test_without_filters_everything_is_read():
    assert left() == [(str(span.place), 10, 20) for span in SPANS]
    assert Filters().moments() == EVER


@pytest.mark.parametrize(
    ("given", "numbers"),
    [
        (EqualTo(("partition",), 1), [1]),
        (GreaterThan(("partition",), 1), [2]),
        (GreaterThanOrEqual(("partition",), 1), [1, 2]),
        (LessThan(("partition",), 1), [0]),
        (LessThanOrEqual(("partition",), 1), [0, 1]),
        (In(("partition",), (0, 2, 9)), [0, 2]),
        (EqualTo(("partition",), 7), []),
    ],
)
def test_conditions_on_partition_choose_partitions(given, numbers):
    assert left(EqualTo(("topic",), "a"), given) == [(f"a-{number}", 10, 20) for number in numbers]


@pytest.mark.parametrize(
    ("given", "begin", "end"),
    [
        (EqualTo(("offset",), 12), 12, 13),
        (GreaterThan(("offset",), 12), 13, 20),
        (GreaterThanOrEqual(("offset",), 12), 12, 20),
        (LessThan(("offset",), 12), 10, 12),
        (LessThanOrEqual(("offset",), 12), 10, 13),
        (GreaterThan(("offset",), 3), 10, 20),
        (LessThan(("offset",), 99), 10, 20),
    ],
)
def test_conditions_on_offset_cut_spans(given, begin, end):
    assert left(EqualTo(("topic",), "a"), EqualTo(("partition",), 0), given) == [("a-0", begin, end)]


def test_a_span_that_is_cut_at_its_front_does_not_know_the_term_there():
    filters = Filters()
    filters.take(GreaterThan(("offset",), 12))
    assert filters.spans(SPANS[:1])[0].begin == Position(13)
    filters = Filters()
    filters.take(GreaterThan(("offset",), 9))
    assert filters.spans(SPANS[:1])[0].begin == Position(10, 2)


def test_offsets_outside_leave_nothing():
    assert left(GreaterThan(("offset",), 19)) == left(LessThan(("offset",), 10)) == []
    assert left(GreaterThan(("offset",), 15), LessThan(("offset",), 15)) == []


def test_several_offsets_are_a_bound_and_spark_looks_again():
    filters = Filters()
    assert not filters.take(In(("offset",), (12, 15)))
    assert [(span.begin.offset, span.end) for span in filters.spans(SPANS[:1])] == [(12, 16)]


def test_times_are_bounds_in_microseconds():
    filters = Filters()
    assert filters.take(GreaterThan(("timestamp",), NOON))
    assert filters.take(LessThanOrEqual(("timestamp",), NOON + timedelta(seconds=1)))
    assert filters.moments() == Moments(NOON_US + 1, NOON_US + 1_000_000)
    filters = Filters()
    assert filters.take(EqualTo(("timestamp",), NOON))
    assert filters.moments() == Moments(NOON_US, NOON_US)


def test_a_time_without_a_zone_is_utc():
    filters = Filters()
    filters.take(GreaterThanOrEqual(("timestamp",), NOON.replace(tzinfo=None)))
    assert filters.moments().first == NOON_US


@pytest.mark.parametrize("column", ["topic", "partition", "offset", "timestamp", "timestampType"])
def test_what_is_always_there_is_not_null(column):
    assert Filters().take(IsNotNull((column,)))


@pytest.mark.parametrize(
    "given",
    [
        IsNotNull(("key",)),
        IsNotNull(("value",)),
        IsNull(("partition",)),
        EqualTo(("value",), b"x"),
        EqualTo(("key",), b"x"),
        EqualTo(("headers", "key"), "x"),
        EqualTo(("partition",), "1"),
        EqualTo(("offset",), None),
        EqualNullSafe(("offset",), 1),
        In(("partition",), (1, None)),
        In(("partition",), ()),
        Not(EqualTo(("partition",), 1)),
        StringStartsWith(("topic",), "a"),
        GreaterThan(("timestamp",), "2024"),
        EqualTo(("timestampType",), 1),
    ],
)
def test_everything_else_is_sparks(given):
    filters = Filters()
    assert not filters.take(given)
    assert filters.spans(SPANS) == SPANS
    assert filters.moments() == EVER
