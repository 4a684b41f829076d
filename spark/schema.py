"""The columns of the source: those of Spark's Kafka source, name by name and type by type.

Contract: `declared` is the schema of a DataFrame unless its user names columns; `check` refuses unknown columns before
a task starts. Only the columns that a query needs are requested from the broker. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from .errors import InvalidColumns
from .source_options import SourceOptions

TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
"""In order, as Spark writes types."""

HEADERS = "headers"

NULLABLE = frozenset({"key", "value", HEADERS})
"""Columns that may lack a value. Spark does not look for one where it cannot be missing: a fifth of its time by row."""

TIMESTAMP = "timestamp"

STORED = {"key": "key", "value": "value", "timestamp": TIMESTAMP, "timestampType": TIMESTAMP, "headers": "headers"}
"""The batch column behind each column; the others are constant, or count."""


def declared(options: SourceOptions) -> str:
    """The schema as Spark's DDL. Raises InvalidColumns."""
    names = options.columns or [name for name in TYPES if name != HEADERS or options.include_headers]
    found = [_name(name) for name in names]
    return ", ".join(f"`{name}` {TYPES[name]}{'' if name in NULLABLE else ' NOT NULL'}" for name in found)


def _name(given: str) -> str:
    """The column that is meant; case does not matter to Spark."""
    known = {name.lower(): name for name in TYPES}
    if given.lower() not in known:
        near = get_close_matches(given.lower(), known, n=1, cutoff=0.5)
        way = f"did you mean {known[near[0]]}?" if near else f"there are: {', '.join(TYPES)}"
        raise InvalidColumns(f"records have no column {given}; {way}")
    return known[given.lower()]


def check(fields: Iterable[tuple[str, str]]) -> list[str]:
    """The columns that fields (name, type as Spark writes it) stand for, in order. Raises InvalidColumns."""
    found = []
    for given, kind in fields:
        name = _name(given)
        if kind != TYPES[name]:
            raise InvalidColumns(f"column {name} is {TYPES[name]}, not {kind}: read it so and cast it")
        found.append(name)
    return found


def needed(names: Sequence[str]) -> list[str]:
    """Columns of a batch that these are made of; where they need none, the one that most batches do not have."""
    return sorted({STORED[name] for name in names if name in STORED}) or [TIMESTAMP]
