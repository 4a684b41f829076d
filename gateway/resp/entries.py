"""Entries of Redis Streams and records of topics (decision 064).

Idea: the id of an entry is `milliseconds-offset`: when the record was appended, and where. Of an entry's fields,
`value` is the record's value, `key` its key, and others are its headers. An entry without a `value` has an empty one;
an empty `value` beside other fields is kept as a header too, so that it is not lost.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...storage.batch import Batch
from ...storage.record import Record, record_runs
from .refusals import CommandRefused
from .replies import array, bulk

_ID = re.compile(rb"([0-9]{1,20})(?:-([0-9]{1,20}))?")
_PART_MAX = (1 << 64) - 1

BAD_ID = "Invalid stream ID specified as stream command argument"


class EntryId(NamedTuple):
    """The id of an entry, in the order of ids."""

    time_ms: int
    offset: int

    def __bytes__(self) -> bytes:
        return b"%d-%d" % self


FIRST = EntryId(0, 0)
LAST = EntryId(_PART_MAX, _PART_MAX)


def entry_id(text: bytes, missing_offset: int) -> EntryId:
    """An id as a client writes it; without an offset it has `missing_offset`. Raises CommandRefused."""
    found = _ID.fullmatch(text)
    if found is None:
        raise CommandRefused(BAD_ID)
    time_ms, offset = int(found[1]), missing_offset if found[2] is None else int(found[2])
    if time_ms > _PART_MAX or offset > _PART_MAX:
        raise CommandRefused(BAD_ID)
    return EntryId(time_ms, offset)


def lower_bound(text: bytes) -> EntryId:
    """The lowest id that a range takes: `-`, an id, or `(id`. Raises CommandRefused."""
    if text in (b"-", b"+"):
        return FIRST if text == b"-" else LAST
    if not text.startswith(b"("):
        return entry_id(text, 0)
    return following(entry_id(text[1:], 0))


def upper_bound(text: bytes) -> EntryId:
    """The id below which a range ends, from `+`, an id, or `(id`. Raises CommandRefused."""
    if text in (b"-", b"+"):
        return FIRST if text == b"-" else LAST
    if text.startswith(b"("):
        return entry_id(text[1:], 0)
    return following(entry_id(text, _PART_MAX))


def following(id_: EntryId) -> EntryId:
    """The lowest id above this one."""
    if id_.offset < _PART_MAX:
        return EntryId(id_.time_ms, id_.offset + 1)
    return EntryId(id_.time_ms + 1, 0)


RecordParts = tuple[bytes, bytes | None, dict[str, bytes] | None]
"""Value, key and headers."""


def record_of(fields: Sequence[bytes]) -> RecordParts:
    """The record of an entry's fields and values, in turn. Raises CommandRefused."""
    if len(fields) == 2 and fields[0] == b"value":
        return fields[1], None, None
    value, key, headers = None, None, {}
    for name, content in zip(fields[::2], fields[1::2], strict=True):
        if name == b"value" and value is None:
            value = content
        elif name == b"key" and key is None:
            key = content
        else:
            text = _text(name)
            if text in headers or name in (b"value", b"key"):
                raise CommandRefused(f"field {text!r} is there twice, and a record has each header once")
            headers[text] = content
    if value == b"" and (key is not None or headers):
        headers["value"] = b""
    return value or b"", key, headers or None


def _text(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise CommandRefused(f"field {name[:60]!r} is not UTF-8, as names of headers have to be") from None


def encoded_entries(batch: Batch, start: int, end: int) -> Iterator[bytes]:
    """The entries of a batch from offset `start` on and below `end`. Raises InvalidBatch."""
    time_ms = batch.append_time_us // 1000
    for run in record_runs(batch, start):
        for record in run:
            if record.offset >= end:
                return
            yield _entry(time_ms, record)


def _entry(time_ms: int, record: Record) -> bytes:
    fields: list[bytes] = []
    if record.value or (record.key is None and not record.headers):
        fields += (b"value", record.value)
    if record.key is not None:
        fields += (b"key", record.key)
    for name, content in record.headers.items():
        fields += (name.encode(), content)
    return array([bulk(b"%d-%d" % (time_ms, record.offset)), array([bulk(field) for field in fields])])
