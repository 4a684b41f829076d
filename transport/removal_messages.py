"""Messages that take records away on request. Normative text: PROTOCOL.md, section 8.11.

Pure: values only. No sockets, no clock, no rules.
"""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

from .message import Count, Int64, Listed, Message, TopicId


class TrimRule(IntEnum):
    """What names the first record that stays."""

    RECORDS = 0  # this many stay
    OFFSET = 1  # those before this offset go
    TIME = 2  # those appended before this time go; EARLIEST and LATEST: none, all


class Trim(Message, tag=96, frozen=True):
    """Let partitions begin later, at an exact record, whatever is open before it. Answered by TrimmedTopic."""

    request: Count
    topic: TopicId
    rule: Count
    value: Int64
    partition: Int64 = -1  # -1: each


class TrimmedPartition(Struct, array_like=True, frozen=True, gc=False):
    """One partition: where it began, where it begins, and how many unfinished records each group lost."""

    partition: Count
    before: Count
    first: Count
    lost: list[tuple[str, Count]]


class TrimmedTopic(Message, tag=97, frozen=True):
    """The partitions of a trim; committed."""

    request: Count
    partitions: list[TrimmedPartition]


class DeleteRecords(Message, tag=126, frozen=True):
    """Delete records: no queue group gets them, and doors hide them. Answered by Counted."""

    request: Count
    topic: TopicId
    offsets: Listed[tuple[Count, Count]]  # (partition, offset)


class ListDeleted(Message, tag=127, frozen=True):
    """Ask which records of a partition from `offset` on, below `end`, are deleted. Answered by DeletedRecords."""

    request: Count
    topic: TopicId
    partition: Count
    offset: Count
    end: Count


class DeletedRecords(Message, tag=128, frozen=True):
    """The deleted records of a range up to `next_offset`, in order."""

    request: Count
    ranges: list[tuple[Count, Count]]  # (first offset, how many)
    next_offset: Count  # the end of the range, or where to ask for more
