"""The reading desk: requests that read committed state and decide nothing, in any role.

Contract: outlives offices. Only committed records leave.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .streams.ends import EndsRequests
from .streams.fetching import Fetching
from .streams.measuring import Measuring
from .turns.portions import Portions

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ...storage.errors import Error
    from .logs.partition import Partition
    from .logs.topics import Topic, Topics
    from .ports import Handlers, NodeConfig, Now, Peer, Port


class ReadingDesk:
    """Fetching, asking for ends, and measuring."""

    def __init__(self, topics: Topics, port: Port, config: NodeConfig) -> None:
        self.wakes = Portions()
        self.fetching = Fetching(topics, port, config, self.wakes)
        self.ends = EndsRequests(topics, port, config, self.wakes)
        self.handlers: Handlers = {
            **self.fetching.handlers,
            **self.ends.handlers,
            **Measuring(topics, port).handlers,
        }

    def end_moved(self, partition: Partition) -> None:
        """There are new records."""
        self.fetching.end_moved(partition)
        self.ends.end_moved(partition)

    def tick(self, now: Now) -> float | None:
        """Answer what has waited long enough. Returns when the next is due."""
        due_s = (self.fetching.tick(now), self.ends.tick(now))
        return min((each_s for each_s in due_s if each_s is not None), default=None)

    def warmed(self, token: Hashable) -> None:
        """Pages are in memory that a fetch waited for."""
        self.fetching.warmed(token)

    def disconnect(self, peer: Peer) -> None:
        """Drop what a peer waits for."""
        self.wakes.drop(peer)
        self.fetching.disconnect(peer)
        self.ends.disconnect(peer)

    def topic_grown(self, topic: Topic) -> None:
        """There are more partitions."""
        self.ends.topic_grown(topic)

    def topic_deleted(self, topic: Topic, error: Error) -> None:
        """A topic is about to go: answer those who wait for it."""
        for partition in topic.readable:
            self.fetching.topic_deleted(partition, error)
        self.ends.topic_deleted(topic)

    def stats(self) -> dict[str, Any]:
        """Numbers for people."""
        return {"fetch.waiting": self.fetching.waiting, "ends.waiting": self.ends.waiting}
