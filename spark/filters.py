"""Filters that Spark pushes down, as far as a batch read can skip records by them.

Idea: conditions on topic and partition choose partitions, those on offset cut spans, those on timestamp choose rows
where they are read. A filter taken here is applied exactly, so Spark need not apply it again; all others stay Spark's.
Contract: a filter is taken whole or left to Spark. Pure: values only.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from ..storage.arrow_numbers import numbers_of
from ..storage.batch import Batch, ColumnId
from .planning import PlannedSpan

LEAST = -(1 << 63)
MOST = (1 << 63) - 1

KINDS = {"topic": str, "partition": int, "offset": int, "timestamp": datetime}
"""Columns that filters are taken on, and what they are compared with."""

ALWAYS_THERE = frozenset({*KINDS, "timestampType"})

Comparison = EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual

OPERATORS: dict[type[Comparison], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}


def _column(attribute: Sequence[str]) -> str:
    """The column that a filter is on, "" for a part of one."""
    return attribute[0] if len(attribute) == 1 else ""


class Condition(NamedTuple):
    """A condition on a column's value: `holds(value, other)`."""

    holds: Callable[[Any, Any], bool]
    other: Any


class Moments(NamedTuple):
    """Times from `first` on and up to `last`, in microseconds."""

    first: int = LEAST
    last: int = MOST

    def may_hold(self, batch: Batch) -> bool:
        """Whether a record of the batch can be of these times; those whose producer gave none have one for all."""
        return batch.column(ColumnId.EVENT_TIME) is not None or self.first <= batch.append_time_us <= self.last

    def chosen(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of these times."""
        if self == EVER:
            return rows
        times = numbers_of(rows.column("timestamp"))
        return rows.filter(pa.array((self.first <= times) & (times <= self.last)))


EVER = Moments()


class Filters:
    """All filters that were taken."""

    def __init__(self) -> None:
        self._conditions: dict[str, list[Condition]] = {}

    def take(self, given: Filter) -> bool:
        """Take a filter. False: Spark has to apply it, too."""
        if isinstance(given, IsNotNull):
            return _column(given.attribute) in ALWAYS_THERE
        if isinstance(given, In):
            return self._take_any(_column(given.attribute), given.value)
        if isinstance(given, Comparison):
            return self._take_one(_column(given.attribute), OPERATORS[type(given)], given.value)
        return False

    def _take_one(self, name: str, holds: Callable[[Any, Any], bool], value: Any) -> bool:
        if name not in KINDS or not isinstance(value, KINDS[name]):
            return False
        self._add(name, holds, value)
        return True

    def _take_any(self, name: str, found: Sequence[Any]) -> bool:
        """One of several values: exact for what chooses partitions, a bound for the rest."""
        if name not in KINDS or not found or not all(isinstance(value, KINDS[name]) for value in found):
            return False
        if name in ("topic", "partition"):
            self._add(name, lambda value, others: value in others, frozenset(found))
            return True
        self._add(name, operator.ge, min(found))
        self._add(name, operator.le, max(found))
        return False

    def _add(self, name: str, holds: Callable[[Any, Any], bool], other: Any) -> None:
        self._conditions.setdefault(name, []).append(Condition(holds, other))

    def spans(self, spans: Sequence[PlannedSpan]) -> list[PlannedSpan]:
        """The parts of `spans` that pass the filters."""
        first, last = self._bounds("offset", int)
        found = []
        for span in spans:
            if self._holds("topic", span.place.topic) and self._holds("partition", span.place.partition):
                if first > span.begin.offset:
                    span = span._replace(begin=span.begin._replace(offset=first, term=-1))
                span = span._replace(end=min(span.end, last + 1))
                if span.rows > 0:
                    found.append(span)
        return found

    def moments(self) -> Moments:
        """The range of timestamps that passes the filters."""
        return Moments(*self._bounds("timestamp", _microseconds))

    def _holds(self, name: str, value: Any) -> bool:
        return all(condition.holds(value, condition.other) for condition in self._conditions.get(name, ()))

    def _bounds(self, name: str, number: Callable[[Any], int]) -> tuple[int, int]:
        """The lowest and the highest number that fulfils all conditions on a column."""
        first, last = LEAST, MOST
        for holds, other in self._conditions.get(name, ()):
            at = number(other)
            if holds in (operator.eq, operator.ge, operator.gt):
                first = max(first, at + (holds is operator.gt))
            if holds in (operator.eq, operator.le, operator.lt):
                last = min(last, at - (holds is operator.lt))
        return first, last


def _microseconds(moment: datetime) -> int:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return (moment.replace(tzinfo=moment.tzinfo or UTC) - epoch) // timedelta(microseconds=1)
