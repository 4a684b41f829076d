"""Messages for reading whole ranges: the ends of partitions, how far so many bytes reach, where a group begins.

One question covers any number of partitions, so that a planner asks once. Normative text: PROTOCOL.md, section 8.10.

Pure: values only. No sockets, no clock, no rules.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from .message import Count, Int64, Listed, Message, TopicId

ENDS_MAX = 100_000
"""Partitions of one topic whose ends an asker may know."""


class Known(Struct, array_like=True, frozen=True, gc=False):
    """The ends of one topic that the client knows, by partition; empty if it knows none."""

    topic: TopicId
    ends: Annotated[list[Count], Meta(max_length=ENDS_MAX)] = []


class AskEnds(Message, tag=110, frozen=True):
    """Asks for the ends of topics' partitions; waits up to `wait_ms` while nothing differs from `known`."""

    request: Count
    topics: Listed[Known]
    wait_ms: Count = 0


class End(Struct, array_like=True, frozen=True, gc=False):
    """One partition: the first offset that can be read, the first not yet committed, and the term before that."""

    first: Count
    end: Count
    term: Int64


class Ends(Message, tag=111, frozen=True):
    """The ends of each topic asked for, by partition; none for a topic deleted meanwhile."""

    request: Count
    topics: list[list[End]]


class Span(Struct, array_like=True, frozen=True, gc=False):
    """Records of one partition from `offset` on, below `end`."""

    partition: Count
    offset: Count
    end: Count


class Measure(Message, tag=112, frozen=True):
    """Cut spans of a topic where so many bytes are full, each at the end of a batch. Answered by Measured."""

    request: Count
    topic: TopicId
    spans: Listed[Span]
    piece_bytes: Count


class Measured(Message, tag=113, frozen=True):
    """The pieces of each span asked for: (end offset, bytes), in order; the last one ends where the span does."""

    request: Count
    pieces: list[list[tuple[Count, Count]]]


class BeginGroup(Message, tag=114, frozen=True):
    """Give a group its cursors unless it has some. Answered by Begun, once committed."""

    request: Count
    topic: TopicId
    group: str
    positions: Listed[tuple[Count, Count]]  # (partition, offset)


class AskCursors(Message, tag=129, frozen=True):
    """Cursors of a group with their notes, from a partition on. Answered by Cursors."""

    request: Count
    topic: TopicId
    group: str
    partition: Count = 0


class Cursors(Message, tag=130, frozen=True):
    """Cursors, in the order of partitions; ask again from `next_partition` on, which is -1 at the end."""

    request: Count
    cursors: list[tuple[Count, Count, str]]  # (partition, offset, note)
    next_partition: Int64 = -1


class Begun(Message, tag=115, frozen=True):
    """The positions of the group, whichever client began it: (offset, term before it) by partition."""

    request: Count
    positions: list[tuple[Count, Int64]]
