"""Messages of whole topics: they are made, changed, listed, deleted. Normative text: PROTOCOL.md, section 8.2.

Pure: values only. No sockets, no clock, no rules.
"""

from __future__ import annotations

from msgspec import Struct

from .message import Count, Int64, Listed, Message, Setting, Settings, TopicId


class Partition(Struct, array_like=True, frozen=True, gc=False):
    """One partition as it stands. `end` is the first offset not yet committed."""

    partition: Count
    endpoint: str
    log_id: bytes
    term: Int64
    first: Count
    end: Count
    size_bytes: Count
    segments: Count
    directory: str
    row: Int64  # row on the board, -1 without one
    state: str = "ok"  # ok | poisoned | damaged
    unavailable: str = ""  # why it cannot be opened, or queue groups cannot work there
    lent_to: str = ""  # name or id of the producer that appends to it by itself, and its process
    lent_process: Count = 0
    borrowed: Count = 0  # since the log was opened, as `recalled`
    recalled: Count = 0


class Topic(Struct, array_like=True, frozen=True, gc=False):
    """One topic: identity, settings by name, partitions in order."""

    name: str
    topic: TopicId
    settings: dict[str, Setting]
    partitions: list[Partition]


class CreateTopic(Message, tag=10, frozen=True):
    """Answered by Topics with one entry."""

    request: Count
    name: str
    partitions: Count
    settings: Settings


class AlterTopic(Message, tag=11, frozen=True):
    """Change settings, or grow to `partitions` (0: leave). Answered by Topics with one entry."""

    request: Count
    topic: TopicId
    settings: Settings
    partitions: Count = 0


class DeleteTopic(Message, tag=12, frozen=True):
    """Answered by Done."""

    request: Count
    topic: TopicId


class ListTopics(Message, tag=13, frozen=True):
    """A page of all topics, or those named. Answered by Topics; an unknown name is a Failure."""

    request: Count
    names: Listed[str]
    after: str = ""


class Topics(Message, tag=14, frozen=True):
    request: Count
    topics: list[Topic]
    next: str = ""  # behind which name to go on; "": that was all


class FindOffsets(Message, tag=15, frozen=True):
    """Per partition, the first offset whose append time is >= `time_us`; EARLIEST or LATEST for the ends."""

    request: Count
    topic: TopicId
    time_us: Int64


class Offsets(Message, tag=16, frozen=True):
    """[offset, term] by partition, in order. The term is that of the batch before the offset (0: none)."""

    request: Count
    offsets: list[tuple[Count, Int64]]
