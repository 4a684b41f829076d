"""Pieces: many records for one partition as one batch, and the checks on records before they are sent.

Contract: a piece is encoded when a sender's session gives the sequence, not before. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ...broker.errors import UnsupportedVersion
from ...storage.batch import Kind
from ...storage.encoding import pack_headers, pack_list
from ...storage.errors import InvalidBatch, RecordTooLarge
from ...storage.header_list import HeaderList
from ...transport.messages import Topic
from ...transport.partitioner import PARTITIONERS, Partitioner
from ..arguments.checking import text
from .queued import PLAIN, Queued

if TYPE_CHECKING:
    from collections.abc import Buffer  # pyright: ignore[reportAttributeAccessIssue]

Encode = Callable[[int, int, int], "Buffer"]
"""Makes the batch from producer id, epoch and first sequence."""

OVERHEAD_BYTES = 8
"""The approximate overhead of a record in a batch, and of each of its headers."""

HEADERS_BYTES_MAX = 3 << 20
"""Limit of one record. Brokers take 4 MiB in one batch, and the record may share it with smaller ones."""

UTF8_BYTES_MAX = 4
"""Limit of one character."""


class Piece(msgspec.Struct):
    """A future batch; `partition` is None if any will do."""

    partition: int | None
    count: int
    size: int
    encode: Encode


class Shape(msgspec.Struct, frozen=True):
    """The target of pieces."""

    partitions: int
    codec: int
    max_record_bytes: int
    topic: str
    partitioner: Partitioner = PARTITIONERS["xxh3"]
    kind: int = Kind.RECORDS
    now_us: int = 0  # the event time of records that have none beside others that have one
    queued: Queued = PLAIN  # beside each record
    headers: Mapping[str, bytes] | None = None  # the same of each record


def partitioner_of(topic: Topic) -> Partitioner:
    """What chooses partitions by keys. Raises UnsupportedVersion."""
    name = topic.settings.get("partitioner", "xxh3")
    found = PARTITIONERS.get(str(name))
    if found is None:
        raise UnsupportedVersion(
            f"keys of topic {topic.name} choose partitions by {name!r}, which this client does not know: upgrade it"
        )
    return found


def check_record(size: int, shape: Shape, what: str = "") -> None:
    """Raise RecordTooLarge for a record that the topic would refuse; `what` names the part if not its value."""
    if size > shape.max_record_bytes:
        raise RecordTooLarge(
            f"a record {what}of {size} bytes is over max_record_bytes={shape.max_record_bytes} of topic {shape.topic}: "
            "raise the setting or split the record"
        )


def check_key(size: int, shape: Shape) -> None:
    """As `check_record`, for a key."""
    check_record(size, shape, "with a key ")


def check_headers(size: int, shape: Shape) -> None:
    """As `check_record`, for headers, which have a limit of their own."""
    check_record(size, shape, "with headers ")
    if size > HEADERS_BYTES_MAX:
        raise RecordTooLarge(
            f"a record with headers of {size} bytes is over {HEADERS_BYTES_MAX}: put what is large into the value"
        )


def extras_bytes(key: Any, headers: Mapping[str, bytes] | None, shape: Shape) -> int:
    """Approximate size of a key and headers in a batch.

    Raises InvalidBatch, RecordTooLarge for what would spoil the records it is gathered with.
    """
    size = 0
    if key is not None:
        if not isinstance(key, (bytes, bytearray, memoryview)):
            raise InvalidBatch(f"a key must be bytes, not {type(key).__name__}; text needs .encode()")
        size = len(key)
        if size > shape.max_record_bytes:
            check_key(size, shape)
    if headers is not None:
        size += _headers_bytes(headers, shape)
    return size


def _headers_bytes(headers: Mapping[str, bytes], shape: Shape) -> int:
    size = 0
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, bytes):
            raise InvalidBatch(f"header {name!r} must be a str with a bytes value, not {type(value).__name__}")
        text("a header", name)
        size += len(name) + len(value) + OVERHEAD_BYTES
    if isinstance(headers, HeaderList):
        for name, value in headers.pairs:
            text("a header", name)
            size += len(name) + len(value or b"") + OVERHEAD_BYTES
    most = UTF8_BYTES_MAX * size
    if most > shape.max_record_bytes or most > HEADERS_BYTES_MAX:
        size = packed_bytes(headers)
        check_headers(size, shape)
    return size


def packed_bytes(headers: Mapping[str, bytes]) -> int:
    """What headers take in a batch."""
    return len(pack_headers(headers)) + len(pack_list(headers))
