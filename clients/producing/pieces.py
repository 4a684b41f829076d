"""Pieces: many records that go to one partition as one batch, and what is checked of records before they are sent.

Contract: a piece is encoded when a sender's session gives the sequence, not before. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ...storage.batch import Kind
from ...storage.errors import InvalidBatch, RecordTooLarge
from ..arguments.checking import text
from .queued import PLAIN, Queued

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

Encode = Callable[[int, int, int], "Buffer"]
"""Makes the batch from producer id, epoch and first sequence."""

OVERHEAD_BYTES = 8
"""What a record takes in a batch beside its bytes, about."""


class Piece(msgspec.Struct):
    """One batch to be: `partition` is None where any will do."""

    partition: int | None
    count: int
    size: int
    encode: Encode


class Shape(msgspec.Struct, frozen=True):
    """What pieces are made for."""

    partitions: int
    codec: int
    max_record_bytes: int
    topic: str
    kind: int = Kind.RECORDS
    now_us: int = 0  # the event time of records that have none beside others that have one
    queued: Queued = PLAIN  # beside each record


def check_record(size: int, shape: Shape) -> None:
    """Raise RecordTooLarge for a record that the topic would refuse."""
    if size > shape.max_record_bytes:
        raise RecordTooLarge(
            f"a record of {size} bytes is over max_record_bytes={shape.max_record_bytes} of topic {shape.topic}: "
            "raise the setting or split the record"
        )


def check_extras(key: Any, headers: Any) -> None:
    """Raise InvalidBatch for what cannot go with a record, before it would spoil those it is gathered with."""
    if key is not None and not isinstance(key, (bytes, bytearray, memoryview)):
        raise InvalidBatch(f"a key must be bytes, not {type(key).__name__}; text needs .encode()")
    if headers is not None:
        if not isinstance(headers, Mapping):
            raise InvalidBatch(f"headers must be names with values as bytes, not {type(headers).__name__}")
        for name, value in headers.items():
            if not isinstance(name, str) or not isinstance(value, bytes):
                raise InvalidBatch(f"header {name!r} must be a str with a bytes value, not {type(value).__name__}")
            text("a header", name)
