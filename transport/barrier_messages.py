"""Messages of barriers: callbacks that are appended once tasks elsewhere have ended.

A *barrier* belongs to one partition of the callback's topic. Its *members* are records of any partition of the broker,
which name it in the Produce that appends them (`Tie`). Normative text: PROTOCOL.md, section 8.14.

Pure: values only. No sockets, no clock, no rules.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from .message import SETTINGS_MAX, Count, Int64, Message, TopicId

MEMBERS_MAX = 1000
"""Members of one barrier."""

LISTED_MAX = 20
"""Members of one barrier that a list names."""

BarrierId = Annotated[bytes, Meta(min_length=16, max_length=16)]
"""Chosen by the client, at random."""


class Tie(Struct, array_like=True, frozen=True):
    """Says in a Produce that its records are members of a barrier: `members` has the number of each, in order."""

    group: str  # the queue group whose tasks they are
    topic: TopicId  # of the barrier
    partition: Count
    barrier: BarrierId
    members: Annotated[list[Count], Meta(max_length=MEMBERS_MAX)]


class MemberQueue(Struct, array_like=True, frozen=True):
    """A queue group whose tasks are members."""

    topic: TopicId
    group: str


class SetBarrier(Message, tag=134, frozen=True):
    """Append a record once members 0 to `members` - 1 have ended. Answered by Done."""

    request: Count
    topic: TopicId
    partition: Count
    barrier: BarrierId
    members: Count
    ended: bool  # in whichever way; else once all have completed
    headers: Annotated[dict[str, bytes], Meta(max_length=SETTINGS_MAX)] = {}
    priority: Count = 0
    lifetime_ms: Count = 30 * 86_400_000  # then it is forgotten
    queues: Annotated[list[MemberQueue], Meta(max_length=MEMBERS_MAX)] = []  # which have to be there


class DeleteBarrier(Message, tag=137, frozen=True):
    """Forget a barrier: it appends nothing. Answered by Done."""

    request: Count
    topic: TopicId
    barrier: BarrierId


class ListBarriers(Message, tag=135, frozen=True):
    """Barriers of one topic or all. Answered by Barriers."""

    request: Count
    topic: Annotated[bytes, Meta(max_length=16)] = b""
    most: Count = 1000


class Barrier(Struct, array_like=True, frozen=True, gc=False):
    """One barrier as it stands."""

    topic: TopicId
    topic_name: str
    partition: Count
    barrier: BarrierId
    members: Count
    ended: bool
    headers: dict[str, bytes]
    until_us: Int64
    waiting: Count  # members that have not ended
    first_waiting: list[Count]  # the first of them
    holding: list[tuple[Count, str, str]]  # members that ended and keep it waiting: (member, state, reason)
    tasks: list[tuple[str, Count, Int64]] = []  # of each, (name of topic, partition, offset); "", 0, -1: none


class Barriers(Message, tag=136, frozen=True):
    request: Count
    barriers: list[Barrier]
