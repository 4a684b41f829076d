"""The fields of many entries as columns of records (entries.py says which field is what).

Idea: entries that are appended one behind the other mostly have fields of the same names in the same order. Then the
names are looked at once, and the columns of what they contain are the columns of the records.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .entries import record_of
from .refusals import wrong_arity


class EntryColumns(NamedTuple):
    """Records of one partition, by column; keys and headers are None where no record has any."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None = None
    headers: Sequence[dict[str, bytes] | None] | None = None


def records_of(words: Sequence[Sequence[bytes]]) -> EntryColumns:
    """The records of entries, whose fields and values, in turn, are `words` by column. Raises CommandRefused."""
    if not words or len(words) % 2:
        raise wrong_arity("xadd")
    if len(words[0]) == 1:
        value, key, headers = record_of([word for (word,) in words])
        return EntryColumns([value], None if key is None else [key], None if headers is None else [headers])
    names = words[::2]
    if all(each.count(each[0]) == len(each) for each in names):
        return _alike([each[0] for each in names], words[1::2])
    values, keys, headers = zip(*map(record_of, zip(*words, strict=True)), strict=True)
    return EntryColumns(values, _unless_none(keys), _unless_none(headers))


def _alike(names: Sequence[bytes], contents: Sequence[Sequence[bytes]]) -> EntryColumns:
    """As `records_of`, where all entries have the same names: the columns are told apart like the fields of one."""
    fields: Any = [part for pair in zip(names, contents, strict=True) for part in pair]
    parts: Any = record_of(fields)
    values, keys, headers = parts
    if values is None:
        values = [None] * len(contents[0])
    if headers is not None:
        headers = [dict(zip(headers, each, strict=True)) for each in zip(*headers.values(), strict=True)]
    return EntryColumns(values, keys, headers)


def _unless_none(column: Sequence[Any]) -> Sequence[Any] | None:
    return None if column.count(None) == len(column) else column
