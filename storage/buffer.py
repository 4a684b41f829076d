"""Records waiting to become a batch.

Idea: one list, of plain values, and of tuples for records with a key or headers. Adding a plain value is one list
append, which needs no lock. A value of None is a null.

Contract: arguments that cannot become a record are refused when added, and may change afterwards. Any thread may call
`add_plain` at any time; everything else needs the caller's lock. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import add
from types import NoneType
from typing import Any, Protocol

from . import columns
from .columns import Lengths
from .encoding import pack_headers, pack_list
from .errors import InvalidBatch, RecordTooLarge
from .header_list import copied

BATCH_BYTES = 4 << 20
"""Records of about so many bytes, with their keys and headers, become one batch."""

BATCH_RECORDS = 1 << 20
"""At most: each takes some bytes of a batch, also one that is empty."""

RECORD_BYTES_MOST = (64 << 20) - 4096
"""Of one record with its key and headers: so that a batch of it is one that a log takes (room.py)."""

Extended = tuple[bytes | None, bytes | None, Mapping[str, bytes] | None, int]
"""A record that has a key or headers, and the bytes that these take."""


class Written(Protocol):
    """A log. An append moves its end in one step, or not at all."""

    @property
    def written(self) -> int: ...


class RecordBuffer:
    """Records to be appended, at most `limit` of them (a list added at once may exceed it)."""

    def __init__(self, limit: int, max_record_bytes: int) -> None:
        self.limit = limit
        self.max_record_bytes = min(max_record_bytes, RECORD_BYTES_MOST)
        self.items: list[bytes | Extended | None] = []
        self._lengths: Lengths | None = None  # of all values, while these are one list that was added at once
        self._plain = True
        self._taken = 0

    def __len__(self) -> int:
        return len(self.items)

    def alone(self, value: bytes, encode: Callable[..., Any]) -> list[Any]:
        """One record of bytes as a batch of its own, past the buffer. Raises RecordTooLarge."""
        if len(value) > self.max_record_bytes:
            raise self.too_large(len(value))
        return [encode([value], lengths=[len(value)])]

    def add_plain(self, value: bytes) -> bool:
        """Add one record of bytes; True when the buffer is full. Raises RecordTooLarge.

        `Log.write` does the same in place: the call is a tenth of what a record costs there.
        """
        if len(value) > self.max_record_bytes:
            raise self.too_large(len(value))
        items = self.items
        items.append(value)
        return len(items) >= self.limit

    def add(
        self,
        value: bytes | Sequence[bytes | None] | None,
        key: bytes | None = None,
        keys: Sequence[bytes | None] | None = None,
        headers: Mapping[str, bytes] | Sequence[Mapping[str, bytes] | None] | None = None,
    ) -> bool:
        """Add one record or a list of them; True when the buffer is full. Raises InvalidBatch, RecordTooLarge."""
        if value.__class__ is bytes and key is None and keys is None and headers is None:
            return self.add_plain(value)  # pyright: ignore[reportArgumentType]
        if value is None or isinstance(value, (bytes, bytearray, memoryview)):
            if keys is not None:
                raise InvalidBatch("keys= is for a list of records; one record takes key=")
            self._add_many([None if value is None else bytes(value)], [key], [headers])
        elif isinstance(value, str):
            raise InvalidBatch("a record must be bytes, not str; use .encode()")
        elif not isinstance(value, Sequence):
            raise InvalidBatch(f"a record must be bytes, and many of them a list, not {type(value).__name__}")
        elif key is not None:
            raise InvalidBatch("key= is for one record; a list takes keys=, with one or None for each")
        else:
            self._add_many(value, keys, headers)  # pyright: ignore[reportArgumentType]
        return len(self.items) >= self.limit

    def _add_many(
        self, values: Sequence[bytes | None], keys: Sequence[Any] | None, headers: Sequence[Any] | None
    ) -> None:
        strange = _strange(values, (bytes, NoneType))
        if strange:
            raise InvalidBatch(f"records must be bytes, or None for a null, not {strange}")
        lengths, known = _lengths(values)
        longest = int(max(lengths, default=0) if isinstance(lengths, list) else lengths.max())
        if longest > self.max_record_bytes:
            raise self.too_large(longest)
        for name, column in (("keys", keys), ("headers", headers)):
            if column is not None and (not isinstance(column, Sequence) or len(column) != len(values)):
                raise InvalidBatch(f"{name} must be a list with one entry for each of the {len(values)} records")
        strange = _strange(keys or (), (bytes, bytearray, memoryview, NoneType))
        if strange:
            raise InvalidBatch(f"keys must be bytes, not {strange}; text needs .encode()")
        for kind in set(map(type, headers or ())) - {dict, NoneType}:
            if not issubclass(kind, Mapping):
                raise InvalidBatch(f"the headers of a record must be a mapping of str to bytes, not {kind.__name__}")
        plain = _all_none(keys) and _all_none(headers)
        self._lengths = None if self.items or not plain else known
        if plain:
            self.items += values if isinstance(values, list) else list(values)
            return
        nothing = [None] * len(values)
        keys, headers, beside = _owned(keys or nothing, headers or nothing)
        if (largest := max(map(add, lengths, beside))) > RECORD_BYTES_MOST:
            raise RecordTooLarge(f"a record of {largest} bytes with its key and headers is over {RECORD_BYTES_MOST}")
        self._plain = False
        self.items += list(zip(values, keys, headers, beside, strict=True))

    def too_large(self, size: int) -> RecordTooLarge:
        return RecordTooLarge(f"a record of {size} bytes is over max_record_bytes={self.max_record_bytes}")

    def batches(self, encode: Callable[..., Any]) -> list[Any]:
        """Batches of about BATCH_BYTES from the buffered records: `encode(values, keys=, headers=, lengths=)`."""
        values, keys, headers, beside = self._columns()
        lengths, self._lengths = self._lengths, None  # of a list that may be gone soon
        known = lengths
        if lengths is None or len(lengths) != len(values):
            lengths, known = _lengths(values)
        sizes = lengths if beside is None else [size + more for size, more in zip(lengths, beside, strict=True)]
        if columns.total(sizes) <= BATCH_BYTES and len(values) <= BATCH_RECORDS:
            return [encode(values, keys=keys, headers=headers, lengths=known)]
        return [
            encode(
                values[start:end],
                keys=None if keys is None else keys[start:end],
                headers=None if headers is None else headers[start:end],
            )
            for start, end in _parts(sizes)
        ]

    def _columns(self) -> tuple[list[Any], list[Any] | None, list[Any] | None, list[int] | None]:
        """Values, keys and headers of all that is there by now, which `flush` forgets, and the bytes beside values."""
        items = self.items[:]
        self._taken = len(items)
        if self._plain:
            return items, None, None, None
        whole = [each if each.__class__ is tuple else (each, None, None, 0) for each in items]
        values, keys, headers, beside = map(list, zip(*whole, strict=True))
        return values, None if _all_none(keys) else keys, None if _all_none(headers) else headers, beside

    def flush(self, log: Written, append: Callable[[list[Any]], object], encode: Callable[..., Any]) -> None:
        """Have `append` put all that is there into `log`, and forget what stands there then, also if it fails."""
        before = log.written
        try:
            append(self.batches(encode))
        finally:
            if log.written != before:  # then all is in; Ctrl-C comes with a call, and between these there is none
                del self.items[: self._taken]
                self._taken = 0
        self._plain = self._plain or not self.items


def _lengths(values: Sequence[bytes | None]) -> tuple[Lengths, Lengths | None]:
    """Bytes of each value, and the same for the encoder, which takes none where a value is null."""
    try:
        found = columns.lengths(values)  # pyright: ignore[reportArgumentType]
    except InvalidBatch:
        return columns.lengths([value or b"" for value in values]), None
    return found, found


def _strange(column: Sequence[Any], allowed: tuple[type, ...]) -> str:
    """The names of other types than those allowed, which are looked at without a step of Python for each value."""
    return " or ".join(sorted(each.__name__ for each in set(map(type, column)) - set(allowed)))


def _all_none(column: Sequence[Any] | None) -> bool:
    return column is None or column.count(None) == len(column)


def _owned(keys: Sequence[Any], headers: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], list[int]]:
    """Keys and headers as they are now, whatever becomes of what was given, and their bytes. Raises InvalidBatch."""
    if _strange(keys, (bytes, NoneType)):
        keys = [None if key is None else bytes(key) for key in keys]
    beside = [len(key) if key else 0 for key in keys]
    if not _all_none(headers):
        headers = list(headers)
        places = list(map(id, headers))  # many records may have the same
        fixed = {id(one): copied(one) for one in headers if one is not None}
        sizes = {place: len(pack_headers(one)) + len(pack_list(one)) for place, one in fixed.items()}
        headers = [fixed.get(place) for place in places]
        beside = [size + sizes.get(place, 0) for size, place in zip(beside, places, strict=True)]
    return keys, headers, beside


def _parts(sizes: Lengths) -> Iterator[tuple[int, int]]:
    """Bounds of batches of about BATCH_BYTES."""
    start, size = 0, 0
    for place, more in enumerate(map(int, sizes)):
        if (size and size + more > BATCH_BYTES) or place - start == BATCH_RECORDS:
            yield start, place
            start, size = place, 0
        size += more
    yield start, len(sizes)
