"""The reading desk: requests that read committed state and decide nothing, in any role.

Contract: outlives offices. Only committed records leave.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .queues.choosing.picking import Pick
from .queues.requests.barrier_list import BarrierList
from .queues.requests.dead_letter_list import DeadLetterList
from .queues.requests.schedule_list import ScheduleList
from .streams.ends import EndsRequests
from .streams.fetching import Fetching
from .streams.fetching_many import FetchingMany, ManyFetch
from .streams.measuring import Measuring
from .streams.reading import Reads
from .topics.checkpointing import Checkpointing
from .topics.deleting import DeletedList
from .topics.listing import Listing
from .turns.alarms import Alarms
from .turns.portions import Portions

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ...storage.errors import Error
    from .guard import Guard
    from .logs.log_registry import LogRegistry
    from .logs.partition import Partition
    from .logs.topics import Topic
    from .ports import Handlers, NodeConfig, Peer, Port


class ReadingDesk:
    """Fetching, asking for ends, measuring, and lists of what is committed."""

    def __init__(self, registry: LogRegistry, port: Port, config: NodeConfig, guard: Guard) -> None:
        topics = registry.topics
        self.wakes = Portions()
        self.deadlines: Alarms[float] = Alarms()
        self._reads = Reads(port)
        self.fetching = Fetching(topics, port, config, self._reads, self.wakes, self.deadlines)
        self.fetching_many = FetchingMany(topics, port, config, self._reads, self.wakes, self.deadlines)
        self.ends = EndsRequests(topics, port, config, self.wakes, self.deadlines)
        self._dead = DeadLetterList(topics, port)
        self.handlers: Handlers = {
            **self.fetching.handlers,
            **self.fetching_many.handlers,
            **self.ends.handlers,
            **Measuring(topics, port).handlers,
            **Listing(registry, port, config, guard).handlers,
            **ScheduleList(topics, port, guard).handlers,
            **BarrierList(topics, port, guard).handlers,
            **Checkpointing(registry, port).handlers,
            **DeletedList(topics, port).handlers,
            **self._dead.handlers,
        }

    @property
    def awaits(self) -> bool:
        """Whether a request waits for records."""
        return bool(self.fetching.awaiting.parked.standing or self.fetching_many.standing or self.ends.by_topic)

    def end_moved(self, partition: Partition) -> None:
        """Offer new records to requests that wait for them."""
        if self.fetching.awaiting.parked.standing:
            self.fetching.end_moved(partition)
        if self.fetching_many.standing:
            self.fetching_many.end_moved(partition)
        if self.ends.by_topic:
            self.ends.end_moved(partition)

    def warmed(self, token: Hashable) -> None:
        """Pages are in memory that a read waited for."""
        if isinstance(token, Pick):
            self._dead.warmed(token)
        elif isinstance(token, ManyFetch):
            self.fetching_many.warmed(token)
        else:
            self.fetching.warmed(token)

    def disconnect(self, peer: Peer) -> None:
        """Drop what a peer waits for."""
        self.wakes.drop(peer)
        self._reads.disconnect(peer)
        self.fetching.disconnect(peer)
        self.fetching_many.disconnect(peer)
        self.ends.disconnect(peer)

    def topic_grown(self, topic: Topic) -> None:
        """Answer questions about a topic that has new partitions."""
        self.ends.topic_grown(topic)

    def topic_deleted(self, topic: Topic, error: Error) -> None:
        """A topic is about to go: answer those who wait for it."""
        for partition in topic.readable:
            self._reads.close(partition)
            self.fetching.topic_deleted(partition, error)
            self.fetching_many.topic_deleted(partition, error)
        self.ends.topic_deleted(topic)

    def stats(self) -> dict[str, Any]:
        """Numbers for people."""
        fetches = self.fetching.waiting + self.fetching_many.waiting
        return {"fetch.waiting": fetches, "ends.waiting": self.ends.waiting}
