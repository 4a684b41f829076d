"""Records waiting to become a batch.

Idea: parallel lists of values, keys and headers; keys and headers come into being with the first record that
has one, so that plain values cost one list append.

Contract: what cannot become a record is refused when it is added. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from . import columns
from .columns import Lengths
from .errors import InvalidBatch, RecordTooLarge

BATCH_BYTES = 4 << 20
"""Values of about so many bytes become one batch."""


class RecordBuffer:
    """Up to `limit` records (a list added at once may exceed it)."""

    def __init__(self, limit: int, max_record_bytes: int) -> None:
        self._limit = limit
        self._max_record_bytes = max_record_bytes
        self._values: list[bytes] = []
        self._lengths: Lengths | None = None  # of all values, while these are one list that was added at once
        self._keys: list[bytes | None] | None = None
        self._headers: list[Mapping[str, bytes] | None] | None = None
        self._plain = True

    def __len__(self) -> int:
        return len(self._values)

    def add(
        self,
        value: bytes | Sequence[bytes],
        key: bytes | None = None,
        keys: Sequence[bytes | None] | None = None,
        headers: Mapping[str, bytes] | Sequence[Mapping[str, bytes] | None] | None = None,
    ) -> bool:
        """Add one record or a list of them; True when the buffer is full. Raises InvalidBatch, RecordTooLarge."""
        values = self._values
        plain = self._plain and key is None and headers is None
        if plain and value.__class__ is bytes and len(value) <= self._max_record_bytes:
            values.append(value)  # pyright: ignore[reportArgumentType]
        elif isinstance(value, (bytes, bytearray, memoryview)):
            self._add_many([bytes(value)], [key], [headers])
        elif isinstance(value, str):
            raise InvalidBatch("a record must be bytes, not str; use .encode()")
        else:
            self._add_many(value, keys, headers)  # pyright: ignore[reportArgumentType]
        return len(values) >= self._limit

    def _add_many(self, values: Sequence[bytes], keys: Sequence[Any] | None, headers: Sequence[Any] | None) -> None:
        others = set(map(type, values)) - {bytes}
        if others:
            raise InvalidBatch(f"records must be bytes, not {' or '.join(sorted(each.__name__ for each in others))}")
        lengths = columns.lengths(values)
        longest = int(max(lengths, default=0) if isinstance(lengths, list) else lengths.max())
        if longest > self._max_record_bytes:
            raise self._too_large(longest)
        for name, column in (("keys", keys), ("headers", headers)):
            if column is not None and (isinstance(column, Mapping) or len(column) != len(values)):
                raise InvalidBatch(f"{name} must be a list with one entry for each of the {len(values)} records")
        self._keys = self._extended(self._keys, keys, len(values))
        self._headers = self._extended(self._headers, headers, len(values))
        self._lengths = None if self._values else lengths
        self._values += values
        self._plain = self._keys is None and self._headers is None

    def _extended(self, known: list[Any] | None, more: Sequence[Any] | None, count: int) -> list[Any] | None:
        if more is None or all(each is None for each in more):
            if known is not None:
                known += [None] * count
            return known
        return [*(known if known is not None else [None] * len(self._values)), *more]

    def _too_large(self, size: int) -> RecordTooLarge:
        return RecordTooLarge(f"a record of {size} bytes is over max_record_bytes={self._max_record_bytes}")

    def batches(self, encode: Callable[..., Any]) -> list[Any]:
        """What is buffered as batches of about BATCH_BYTES, made with `encode(values, keys=, headers=, lengths=)`."""
        values, keys, headers, lengths = self._values, self._keys, self._headers, self._lengths
        if lengths is None or len(lengths) != len(values):
            lengths = columns.lengths(values)
        if columns.total(lengths) <= BATCH_BYTES:
            return [encode(values, keys=keys, headers=headers, lengths=lengths)]
        return [
            encode(
                values[start:end],
                keys=None if keys is None else keys[start:end],
                headers=None if headers is None else headers[start:end],
            )
            for start, end in _parts(lengths)
        ]

    def clear(self) -> None:
        """Forget everything: it is in the log."""
        self._values, self._lengths, self._keys, self._headers, self._plain = [], None, None, None, True


def _parts(lengths: Lengths) -> Iterator[tuple[int, int]]:
    """Where batches of about BATCH_BYTES begin and end."""
    start, size = 0, 0
    for place, length in enumerate(map(int, lengths)):
        if size and size + length > BATCH_BYTES:
            yield start, place
            start, size = place, 0
        size += length
    yield start, len(lengths)
