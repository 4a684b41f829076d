"""The columns a DataFrame must have to be written, and how they map to records.

Idea: columns are found by name, whatever their order and case, as Spark does. Columns that only the broker can set
(`offset`, `timestampType`) are allowed and not sent, so that a frame that was read can be written.
Contract: an invalid schema is refused here, before a task starts. Pure: knows types, not rows.
"""

from __future__ import annotations

from collections import Counter
from difflib import get_close_matches
from typing import NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ..errors import InvalidColumns
from ..schema import TYPES

TAKEN = {
    "key": "string or binary",
    "value": "string or binary",
    "headers": TYPES["headers"],
    "topic": "string",
    "partition": "int",
    "timestamp": "timestamp",
}
"""The valid types of each column, for messages."""

PASSED_BY = frozenset({"offset", "timestamptype"})
"""Columns of the source that the broker assigns; the sink refuses them."""


class Layout(NamedTuple):
    """Which column of a row is what. `topic` is where all rows go; "" when `topic_at` says it row by row."""

    names: tuple[str, ...]  # of the columns that a record is made of
    places: tuple[int, ...]  # of each among those of the DataFrame
    topic: str
    topic_at: int = -1


def layout_of(schema: StructType, topic: str) -> Layout:
    """How rows of `schema` become records of `topic`, or of those that they name. Raises InvalidColumns."""
    places = _places(schema)
    for name, at in places.items():
        _check(name, schema.fields[at])
    if "value" not in places:
        raise InvalidColumns(f'writing needs a column "value", a string or binary; this DataFrame has {_shown(schema)}')
    if not topic and "topic" not in places:
        raise InvalidColumns(
            f'there is no topic to write to: give the option "topic", or a column "topic"; this DataFrame has '
            f"{_shown(schema)}"
        )
    sent = {name: at for name, at in places.items() if name in TAKEN and name != "topic"}
    return Layout(tuple(sent), tuple(sent.values()), topic, -1 if topic else places["topic"])


def _places(schema: StructType) -> dict[str, int]:
    names = [name.lower() for name in schema.fieldNames()]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InvalidColumns(f"column {twice[0]!r} stands in the DataFrame twice: select one of the two")
    return {name: at for at, name in enumerate(names)}


def _check(name: str, field: StructField) -> None:
    if name in PASSED_BY:
        return
    if name not in TAKEN:
        near = get_close_matches(name, TAKEN, 1)
        meant = f" (did you mean {near[0]!r}?)" if near else ""
        raise InvalidColumns(
            f"column {field.name!r} is not part of a record{meant}: select only {', '.join(TAKEN)}, or put it into the "
            "value, with to_json(struct(...)) for example"
        )
    if not _fits(name, field.dataType):
        raise InvalidColumns(
            f"column {field.name!r} is {field.dataType.simpleString()} and must be {TAKEN[name]}: cast it"
        )


def _fits(name: str, found: DataType) -> bool:
    if name in ("key", "value"):
        return isinstance(found, (StringType, BinaryType))
    if name == "headers":
        return _are_headers(found)
    return isinstance(found, {"topic": StringType, "partition": IntegerType, "timestamp": TimestampType}[name])


def _are_headers(found: DataType) -> bool:
    if not isinstance(found, ArrayType) or not isinstance(found.elementType, StructType):
        return False
    fields = found.elementType.fields
    return [(field.name, type(field.dataType)) for field in fields] == [("key", StringType), ("value", BinaryType)]


def _shown(schema: StructType) -> str:
    return ", ".join(schema.fieldNames()) or "no columns"
