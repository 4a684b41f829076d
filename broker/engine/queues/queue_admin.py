"""Queue groups as requests: create and set, list, pause, delete.

Contract: a group stands on all partitions of its topic or, refused, nothing changed. Counts are exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....transport.messages import Queue as QueueEntry
from ....transport.messages import QueuePartition, SetQueue
from ....transport.messages import Queues as QueuesReply
from ...errors import InvalidRequest
from ..names import check_name
from ..partition import Partition, check_time
from ..replies import Gather
from .leasing import has_stream_group, queue_settings
from .settings import altered

if TYPE_CHECKING:
    from ..clock import LogTime
    from ..ports import Handlers, Now, Payload, Peer, Port
    from ..topics import Topic, Topics
    from .leasing import Leasing
    from .queue import Queue
    from .watching import Watching


class QueueAdmin:
    """Handlers of what concerns a queue group as a whole."""

    def __init__(self, topics: Topics, port: Port, time: LogTime, leasing: Leasing, watching: Watching) -> None:
        self.handlers: Handlers = {SetQueue: self.set}
        self._topics = topics
        self._port = port
        self._time = time
        self._leasing = leasing
        self._watching = watching

    def set(self, peer: Peer, message: SetQueue, payload: Payload, now: Now) -> None:
        """Create a group or change its settings. Raises InvalidSettings, InvalidRequest, Unavailable, Poisoned."""
        topic, group = self._topics.get(message.topic), message.group
        check_name("group", group)
        check_time("start", message.start)
        if has_stream_group(topic, group):
            raise InvalidRequest(f"{group} of topic {topic.name} is a stream group: choose another name for a queue")
        settings = altered(queue_settings(topic, group), message.settings)
        for partition in topic.readable:
            partition.work.check()
        gather = Gather.answering(
            self._port, peer, message.request,
            lambda: QueuesReply(message.request, [describe(topic, group, self._time.last_us)]),
        )  # fmt: skip
        for partition in topic.readable:
            partition.work.set(group, settings, message.start, gather.one())
        gather.ready()

    def topic_grown(self, topic: Topic, partition: Partition) -> None:
        """A partition was added: every group of the topic works on it, from its first record on."""
        names = {name for each in topic.readable for name in each.ledger.head.queues.by_name}
        for group in sorted(names - set(partition.ledger.head.queues.by_name)):
            partition.work.set(group, queue_settings(topic, group), -1)


def describe(topic: Topic, group: str, now_us: int) -> QueueEntry:
    """A group as it stands."""
    found = [(each, each.ledger.applied.queues.by_name.get(group)) for each in topic.readable]
    partitions = [_partition(partition, queue, now_us) for partition, queue in found if queue is not None]
    return QueueEntry(topic.id, topic.name, group, queue_settings(topic, group).named(), partitions)


def _partition(partition: Partition, queue: Queue, now_us: int) -> QueuePartition:
    untouched = max(0, partition.end - max(queue.frontier, partition.first))
    later = sum([waiting.ready_us > now_us for waiting in queue.waiting.values()])
    ready = untouched + len(queue.waiting) - later + len(queue.held)
    paused = queue.paused_until_us if queue.paused_until_us > now_us else 0
    return QueuePartition(partition.number, ready, queue.in_flight, 0, later, len(queue.dead), -1, paused)
