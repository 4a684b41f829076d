"""A queue group across the partitions of its topic: what is the same on all of them.

Contract: looks and changes nothing; refuses with one sentence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import InvalidRequest, UnknownGroup
from .settings import QueueSettings

if TYPE_CHECKING:
    from ..partition import Partition
    from ..topics import Topic


def queue_settings(topic: Topic, group: str) -> QueueSettings:
    """The settings of a group, which are the same on every partition; the defaults for a new one."""
    for partition in topic.readable:
        queue = partition.work.find(group)
        if queue is not None:
            return queue.settings
    return QueueSettings()


def serving(topic: Topic) -> list[Partition]:
    """The partitions that queue groups can work on."""
    return [partition for partition in topic.readable if partition.work.serves]


def having(topic: Topic, group: str) -> list[Partition]:
    """The partitions that have a group. Raises UnknownGroup."""
    found = [partition for partition in topic.readable if partition.work.find(group) is not None]
    if not found:
        raise UnknownGroup(f"topic {topic.name} has no queue group {group!r}: list queues to see which it has")
    return found


def check_length(topic: Topic, group: str, lease_ms: int) -> None:
    """Raise InvalidRequest for a lease that is longer than the group allows."""
    longest_s = queue_settings(topic, group).lease_max_s
    if lease_ms > longest_s * 1000:
        raise InvalidRequest(
            f"a lease of {lease_ms} ms is longer than group {group}'s lease_max_s={longest_s:g}: ask for less and "
            "extend it, or raise the setting"
        )


def check_no_stream(topic: Topic, group: str) -> None:
    """Raise InvalidRequest when a name is taken by a group of consumers."""
    known = (partition.ledger.head.groups.by_name for partition in topic.readable)
    if group in topic.memberships or any(group in names for names in known):
        raise InvalidRequest(f"{group} of topic {topic.name} is a stream group: choose another name for a queue")


def check_no_queue(topic: Topic, group: str) -> None:
    """Raise InvalidRequest when a name is taken by a queue group."""
    if any(partition.work.find(group) is not None for partition in topic.readable):
        raise InvalidRequest(f"{group} of topic {topic.name} is a queue group: choose another name for a stream")
