"""Descriptions of topics, partitions and groups, as clients return them: frozen values, detached from the wire."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from ..transport import messages


class Partition(msgspec.Struct, frozen=True):
    """One partition. `first` is the oldest offset that can be read, `end` the next one to be committed.

    Made by `Client.topic`.
    """

    partition: int
    first: int
    end: int
    size_bytes: int
    segments: int
    state: str  # ok | poisoned | damaged
    term: int
    endpoint: str
    directory: str
    unavailable: str = ""
    """Why it cannot be opened, or why queue groups cannot work there."""
    lent_to: str = ""
    """The producer that appends to it by itself now (`direct=True`): its name, else its id in hexadecimal."""
    lent_process: int = 0
    """Number of that producer's process."""
    borrowed: int = 0
    """How often the broker appended between such a producer's appends, since the broker opened the partition."""
    recalled: int = 0
    """How often a producer gave the partition back, or lost it, since then."""

    @property
    def records(self) -> int:
        """Records that can be read."""
        return self.end - self.first


class Topic(msgspec.Struct, frozen=True):
    """One topic. A topic that is deleted and created again has another `id`. Made by `Client.topic`."""

    name: str
    id: str
    settings: dict[str, Any]
    partitions: list[Partition]

    @property
    def records(self) -> int:
        """Records that can be read, over all partitions."""
        return sum(partition.records for partition in self.partitions)

    @property
    def appended(self) -> int:
        """Records that were ever appended and committed, over all partitions: their ends."""
        return sum(partition.end for partition in self.partitions)

    @property
    def size_bytes(self) -> int:
        """Bytes on disk, over all partitions."""
        return sum(partition.size_bytes for partition in self.partitions)


class TrimmedPartition(msgspec.Struct, frozen=True):
    """What a trim did to one partition, which began at `before` and begins at `first`. Made by `Client.trim`.

    `lost` has the groups, of consumers or of a queue, and how many records each had not finished, or dead-lettered.
    """

    partition: int
    before: int
    first: int
    lost: dict[str, int]

    @property
    def removed(self) -> int:
        """Records that can be read no more."""
        return self.first - self.before


class End(msgspec.Struct, frozen=True):
    """The bounds of one partition: `term` is that of the record before `end`, 0 without one. Made by `Client.ends`."""

    first: int
    end: int
    term: int


class OpenedProducer(msgspec.Struct, frozen=True):
    """A producer on one partition: what the header of its next batch has. Batches of lower epochs are refused.

    Made by `Client.open_producer`.
    """

    producer_id: int
    epoch: int
    next_sequence: int


class Appended(msgspec.Struct, frozen=True):
    """Where a batch stands: the offset of its first record, and the term and microseconds UTC it was appended at.

    Made by `Client.append_batch`.
    """

    offset: int
    term: int
    time_us: int


class Committed(msgspec.Struct, frozen=True):
    """A group's cursor in one partition: the next offset it reads, and the note that its reader left.

    Made by `Client.committed`.
    """

    offset: int
    note: str


class AssignmentChange(msgspec.Struct, frozen=True):
    """Partitions of one topic that a consumer reads from now on, and those that it reads no more.

    Made by consumers, for the `on_assignment` of `Client.consumer`.
    """

    topic: str
    given: list[int]
    taken: list[int]


class TopicEnds(msgspec.Struct, frozen=True):
    """The bounds of one topic's partitions, by number. Made by `Client.ends`."""

    id: str
    partitions: list[End]


class Member(msgspec.Struct, frozen=True):
    """One member of a group, and the seconds since it was last heard of. Made by `Client.group`."""

    name: str
    idle_s: float


class GroupPartition(msgspec.Struct, frozen=True):
    """A group on one partition. `cursor` is -1 before its first commit; `lag` then counts from `first`.

    `first` is the oldest offset that can be read, and `lag` counts what can be read. `oldest` is when the oldest
    record of the lag was appended; None without a lag, or where it cannot be read.

    Made by `Client.group`.
    """

    partition: int
    cursor: int
    end: int
    lag: int
    member: str
    epoch: int
    first: int = 0
    oldest: datetime | None = None

    @property
    def removed(self) -> int:
        """Records from the cursor on that retention removed before the group committed them."""
        return max(self.first - self.cursor, 0) if self.cursor >= 0 else 0


class Group(msgspec.Struct, frozen=True):
    """One group on one topic. `unavailable`: partitions that cannot be opened, of which `lag` knows nothing.

    Made by `Client.group`.
    """

    topic: str
    name: str
    members: list[Member]
    partitions: list[GroupPartition]
    unavailable: list[int] = []

    @property
    def lag(self) -> int:
        """Records the group has yet to commit and can read, over all partitions."""
        return sum(partition.lag for partition in self.partitions)

    @property
    def removed(self) -> int:
        """Records that retention removed before the group committed them, over all partitions."""
        return sum(partition.removed for partition in self.partitions)

    @property
    def oldest(self) -> datetime | None:
        """When the oldest record of the lag was appended."""
        return min((partition.oldest for partition in self.partitions if partition.oldest is not None), default=None)


def moment(time_us: int) -> datetime | None:
    """A time of the wire, None for -1; one that no calendar has is the last one there is."""
    return None if time_us < 0 else instant(time_us)


def instant(time_us: int) -> datetime:
    """As `moment`, of a time that is there."""
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def age_s(since: datetime | None, now: datetime) -> float | None:
    """Seconds that passed since then, 0.0 for a time ahead; None without one."""
    return None if since is None else max((now - since).total_seconds(), 0.0)


def topic_of(found: messages.Topic) -> Topic:
    """A topic as the wire has it."""
    return Topic(found.name, found.topic.hex(), dict(found.settings), [_partition_of(p) for p in found.partitions])


def _partition_of(found: messages.Partition) -> Partition:
    return Partition(
        found.partition, found.first, found.end, found.size_bytes, found.segments, found.state, found.term,
        found.endpoint, found.directory, found.unavailable, found.lent_to, found.lent_process, found.borrowed,
        found.recalled,
    )  # fmt: skip


def ends_of(id_: bytes, found: list[messages.End]) -> TopicEnds:
    """The ends of a topic as the wire has them."""
    return TopicEnds(id_.hex(), [End(each.first, each.end, each.term) for each in found])


def trimmed_of(found: messages.TrimmedPartition) -> TrimmedPartition:
    """A trimmed partition as the wire has it."""
    return TrimmedPartition(found.partition, found.before, found.first, dict(found.lost))


def _group_partition_of(found: messages.GroupPartition) -> GroupPartition:
    return GroupPartition(
        found.partition, found.cursor, found.end, found.lag, found.member, found.epoch, found.first,
        moment(found.oldest_us),
    )  # fmt: skip


def group_of(found: messages.Group) -> Group:
    """A group as the wire has it."""
    return Group(
        found.topic_name,
        found.group,
        [Member(name, idle_ms / 1000) for name, idle_ms in found.members],
        [_group_partition_of(p) for p in found.partitions],
        list(found.unavailable),
    )
