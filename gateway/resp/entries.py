"""Entries of Redis Streams and records of topics (decision 064).

Idea: the id of an entry is `milliseconds-offset`: when the record was appended, and where. Of an entry's fields,
`value` is the record's value, `key` its key, and others are its headers. An entry without a `value` is a record with a
null.

Pure.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from typing import NamedTuple

from ...storage.batch import Batch, Value
from ...storage.header_list import pairs_of
from ...storage.record import NO_HEADERS
from .refusals import CommandRefused, wrong_arity

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


def id_text(time_ms: int, offset: int) -> bytes:
    """An id as clients see it. A record that is gone, of which no time is known, has the time 0."""
    return b"%d-%d" % (max(time_ms, 0), offset)


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


RecordParts = tuple[bytes | None, bytes | None, dict[str, bytes] | None]
"""Value, key and headers."""


def record_of(fields: Sequence[bytes]) -> RecordParts:
    """The record of an entry's fields and values, in turn. Raises CommandRefused."""
    if len(fields) == 2 and fields[0] == b"value":
        return fields[1], None, None
    if not fields or len(fields) % 2:
        raise wrong_arity("xadd")
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
    return value, key, headers or None


def _text(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise CommandRefused(f"field {name[:60]!r} is not UTF-8, as names of headers have to be") from None


Keys = Iterable[bytes | None]
Headers = Iterable[Mapping[str, bytes]]


def encoded_entries(
    batch: Batch, start: int, end: int, most: int | None = None, deleted: Sequence[range] = ()
) -> list[bytes]:
    """The entries of a batch from offset `start` on and below `end`, `most` at most. Raises InvalidBatch.

    `deleted`: stretches of records that are left out.
    """
    found: list[bytes] = []
    for gap in deleted:
        if start < gap.stop and gap.start < end:
            found += encoded_entries(batch, start, gap.start, None if most is None else most - len(found))
            start = gap.stop
    if found or deleted:
        return found + encoded_entries(batch, start, end, None if most is None else most - len(found))
    first, beyond = batch.first_at(start), batch.first_at(end)
    if most is not None:
        beyond = min(beyond, first + most)
    keys, headers = batch.keys(), batch.headers()
    return encoded(
        batch.values()[first:beyond],
        None if keys is None else keys[first:beyond],
        None if headers is None else headers[first:beyond],
        batch.offsets()[first:beyond].tolist(),
        batch.append_times()[first:beyond].tolist(),
    )


def encoded(
    values: Sequence[Value], keys: Keys | None, headers: Headers | None, offsets: Sequence[int], times: Sequence[int]
) -> list[bytes]:
    """Records as entries; `times` are those of appending, in microseconds."""
    if not times:
        return []
    if keys is None and headers is None and times[0] == times[-1]:
        with suppress(TypeError):  # of a null, which has no length
            return _plain(values, offsets, times[0] // 1000)
    ids = [b"%d-%d" % (time_us // 1000, offset) for time_us, offset in zip(times, offsets, strict=True)]
    each_key, each_headers = keys or repeat(None), headers or repeat(NO_HEADERS)
    return list(map(_entry, ids, values, each_key, each_headers))


def _plain(values: Sequence[bytes], offsets: Sequence[int], time_ms: int) -> list[bytes]:
    """Entries of one time that have a value alone: of the same form while their offsets have as many digits."""
    found: list[bytes] = []
    begin = 0
    while begin < len(offsets):
        digits = len(str(offsets[begin]))
        end = bisect_left(offsets, 10**digits, begin)
        some = values[begin:end]
        id_bytes = len(str(time_ms)) + 1 + digits
        form = b"*2\r\n$%d\r\n%d-%%d\r\n*2\r\n$5\r\nvalue\r\n$%%d\r\n%%b\r\n" % (id_bytes, time_ms)
        found += map(form.__mod__, zip(offsets[begin:end], map(len, some), some, strict=True))
        begin = end
    return found


def _entry(id_: bytes, value: bytes | None, key: bytes | None, headers: Mapping[str, bytes]) -> bytes:
    fields: list[bytes] = []
    if value is not None:
        fields.append(b"$5\r\nvalue\r\n$%d\r\n%b\r\n" % (len(value), value))
    if key is not None:
        fields.append(b"$3\r\nkey\r\n$%d\r\n%b\r\n" % (len(key), key))
    for name, found in pairs_of(headers):
        text, content = name.encode(), found or b""  # a null has an empty field
        fields.append(b"$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(text), text, len(content), content))
    return b"*2\r\n$%d\r\n%b\r\n*%d\r\n%b" % (len(id_), id_, 2 * len(fields), b"".join(fields))
