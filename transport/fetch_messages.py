"""Messages for reading from many partitions in one request. Normative text: PROTOCOL.md, section 8.10.

Pure: values only. No sockets, no clock, no rules.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from .message import Count, Int64, Message, TopicId

PLACES_MAX = 4096
"""Partitions that one FetchMany reads from."""


class FetchFrom(Struct, array_like=True, frozen=True, gc=False):
    """One partition of a FetchMany, as of Fetch: from `offset` on, about `max_bytes` of it."""

    topic: TopicId
    partition: Count
    offset: Int64
    max_bytes: Count
    term: Int64 = -1


class FetchMany(Message, tag=131, frozen=True):
    """Batches of many partitions. Answered by FetchedMany.

    At most `max_bytes` (but at least one batch), waiting up to `wait_ms` while there are less than `min_bytes`.
    """

    request: Count
    places: Annotated[list[FetchFrom], Meta(max_length=PLACES_MAX)]
    max_bytes: Count
    min_bytes: Count
    wait_ms: Count


class FetchedFrom(Struct, array_like=True, frozen=True, gc=False):
    """One partition of a FetchedMany: how much of the second frame is its own, or why it cannot be read."""

    size_bytes: Count
    next_offset: Int64  # where to go on
    first: Count
    end: Count
    code: str = ""
    message: str = ""
    retry: bool = False
    offset: Int64 = -1  # as of Failure


class FetchedMany(Message, tag=132, frozen=True):
    """The partitions in the order asked for. Second frame: the batches of each, one behind the other, as of Fetched."""

    request: Count
    partitions: list[FetchedFrom]
