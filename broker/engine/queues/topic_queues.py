"""Finds queue groups on one partition, and across the partitions of a topic.

Contract: reads state and changes none; refuses with one sentence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ....storage.errors import Error
from ...errors import InvalidRequest, Unavailable, UnknownGroup
from ..tables.queues.settings import QueueSettings

if TYPE_CHECKING:
    from collections.abc import Container

    from ..logs.partition import Partition
    from ..logs.topics import Topic
    from ..tables.queues.queue import Queue


def unknown(where: object, group: str) -> UnknownGroup:
    """The error that says so."""
    return UnknownGroup(f"{where} has no queue group {group!r}: list queues to see which it has")


def serves(partition: Partition) -> bool:
    """Whether queue groups can work on a partition."""
    return not (partition.history.damaged or partition.log.poisoned)


def check_serves(partition: Partition) -> None:
    """Raise Unavailable or Poisoned unless queue groups can work on a partition."""
    if partition.state_damaged:
        raise Unavailable(
            f"{partition!r} is damaged, so that what its queue groups have done is not known for certain: stop the "
            "broker and run penstock log repair; reading as a stream goes on"
        )
    partition.check_writable()


def find(partition: Partition, group: str) -> Queue | None:
    """A group in the proposed state of a partition."""
    return partition.overlay.proposed.queues.by_name.get(group)


def proposed(partition: Partition, group: str) -> Queue:
    """As `find`. Raises UnknownGroup."""
    queue = find(partition, group)
    if queue is None:
        raise unknown(partition, group)
    return queue


def committed(partition: Partition, group: str) -> Queue:
    """A group as it is committed on a partition. Raises UnknownGroup."""
    queue = partition.committed.queues.by_name.get(group)
    if queue is None:
        raise unknown(partition, group)
    return queue


def queue_settings(topic: Topic, group: str) -> QueueSettings:
    """The settings of a group, which are the same on every partition; the defaults for a new one."""
    for partition in topic.readable:
        queue = find(partition, group)
        if queue is not None:
            return queue.settings
    return QueueSettings()


def serving(topic: Topic) -> list[Partition]:
    """The partitions that queue groups can work on."""
    return [partition for partition in topic.readable if serves(partition)]


def why_unavailable(topic: Topic, number: int) -> str:
    """Why queue groups cannot work on a partition, which may not be open; "" when they can."""
    try:
        check_serves(topic.partition(number))
    except Error as error:
        return error.message
    return ""


def having(topic: Topic, group: str) -> list[Partition]:
    """The partitions that have a group. Raises UnknownGroup."""
    found = [partition for partition in topic.readable if find(partition, group) is not None]
    if not found:
        raise unknown(f"topic {topic.name}", group)
    return found


def check_there(topic: Topic, group: str) -> None:
    """Raise UnknownGroup for a group that no partition has."""
    if all(find(partition, group) is None for partition in topic.readable):
        raise unknown(f"topic {topic.name}", group)


def check_length(topic: Topic, group: str, lease_ms: int) -> None:
    """Raise InvalidRequest for a lease that is longer than the group allows."""
    longest_s = queue_settings(topic, group).lease_max_s
    if lease_ms > longest_s * 1000:
        raise InvalidRequest(
            f"a lease of {lease_ms / 1000:g} s is longer than group {group}'s lease_max_s={longest_s:g}: ask for "
            "less and extend it, or raise the setting"
        )


class StreamGroups(Protocol):
    """The groups of consumers that have members."""

    def of(self, topic: Topic, /) -> Container[str]:
        """Their names on a topic."""
        ...


def check_no_stream(streams: StreamGroups, topic: Topic, group: str) -> None:
    """Raise InvalidRequest when a name is taken by a group of consumers."""
    known = (partition.proposed.groups.by_name for partition in topic.readable)
    if group in streams.of(topic) or any(group in names for names in known):
        raise InvalidRequest(f"{group} of topic {topic.name} is a stream group: choose another name for a queue")


def check_no_queue(topic: Topic, group: str) -> None:
    """Raise InvalidRequest when a name is taken by a queue group."""
    if any(find(partition, group) is not None for partition in topic.readable):
        raise InvalidRequest(f"{group} of topic {topic.name} is a queue group: choose another name for a stream")
