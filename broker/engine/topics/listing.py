"""Topics as they stand: listed by name, and their offsets found by time.

Contract: decides nothing, and is done in steps. Internal topics are listed only by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....storage.errors import Error
from ....transport.messages import FindOffsets, ListTopics, Offsets
from ....transport.messages import Partition as PartitionMessage
from ....transport.messages import Topic as TopicMessage
from ....transport.messages import Topics as TopicsMessage
from ...errors import InvalidRequest, UnknownTopic
from ..logs.partition import FIND_STEPS, check_time
from ..logs.topic_page import TopicPage
from ..queues.topic_queues import why_unavailable

if TYPE_CHECKING:
    from collections.abc import Generator

    from ..guard import Guard, Sees
    from ..logs.log_registry import LogRegistry
    from ..logs.topics import Topic
    from ..ports import Handlers, NodeConfig, Now, Payload, Peer, Port, Work


DESCRIBED = 2
"""Partitions that are described in one step."""

LOOKS = 16
"""Partitions whose ends are looked at in one step: no file is read for them."""


class Listing:
    """Handlers of ListTopics and FindOffsets."""

    def __init__(self, registry: LogRegistry, port: Port, config: NodeConfig, guard: Guard) -> None:
        self.handlers: Handlers = {ListTopics: self.list, FindOffsets: self.find_offsets}
        self._registry = registry
        self._topics = registry.topics
        self._port = port
        self._endpoint = config.endpoint
        self._guard = guard

    def list(self, peer: Peer, message: ListTopics, payload: Payload, now: Now) -> Work:
        """Topics as they stand, by name. Internal ones only by name. Raises InvalidRequest."""
        names = message.names
        if not names:
            return self._page(peer, message, self._guard.viewer())
        if len(set(names)) < len(names):
            raise InvalidRequest("a topic is named twice: name each once")
        return self._list(peer, message)

    def _list(self, peer: Peer, message: ListTopics) -> Work:
        found: list[TopicMessage] = []
        for name in message.names:
            found.append((yield from describe(self._registry, self._endpoint, self._topics.named(name))))
        self._port.reply(peer, TopicsMessage(message.request, found))

    def _page(self, peer: Peer, message: ListTopics, sees: Sees) -> Work:
        """Those behind a name that may be seen."""
        found, page = list[TopicMessage](), TopicPage(self._topics, message.after)
        for topic in page:
            if sees(f"topic:{topic.name}"):
                try:
                    found.append((yield from describe(self._registry, self._endpoint, topic)))
                    page.take(len(topic.partitions) - 1)
                except UnknownTopic:
                    pass  # deleted meanwhile
        self._port.reply(peer, TopicsMessage(message.request, found, page.next))

    def find_offsets(self, peer: Peer, message: FindOffsets, payload: Payload, now: Now) -> Work:
        """One offset per partition."""
        topic = self._topics.get(message.topic)
        check_time("time_us", message.time_us)
        found: list[tuple[int, int]] = []
        for number in range(len(topic.partitions)):
            partition = topic.partition(number)
            offset = partition.find(message.time_us)
            found.append((offset, partition.end_term if offset == partition.end else partition.term_at(offset)))
            if message.time_us >= 0 or len(found) % LOOKS == 0:
                yield FIND_STEPS if message.time_us >= 0 else 1
                self._topics.get(message.topic)
        self._port.reply(peer, Offsets(message.request, found))


def describe(registry: LogRegistry, endpoint: str, topic: Topic) -> Generator[int | None, None, TopicMessage]:
    """A topic as it stands, served at `endpoint`. Raises UnknownTopic."""
    partitions: list[PartitionMessage] = []
    while len(partitions) < len(topic.partitions):
        registry.topics.check(topic)
        partitions.append(_describe_partition(registry, endpoint, topic, len(partitions)))
        if len(partitions) % DESCRIBED == 0 or len(partitions) == len(topic.partitions):
            yield
    return TopicMessage(topic.name, topic.id, topic.settings.named(), partitions)


def _describe_partition(registry: LogRegistry, endpoint: str, topic: Topic, number: int) -> PartitionMessage:
    found, store = topic.partitions[number], registry.store
    directory, unavailable = store.directory(topic.id, number), why_unavailable(topic, number)
    if isinstance(found, Error):
        return PartitionMessage(number, endpoint, b"", 0, 0, 0, 0, 0, directory, -1, "damaged", unavailable)
    log, lent = found.log, found.lent
    extents = log.segments()
    size = sum(extent.record_bytes for extent in extents)
    return PartitionMessage(
        number, endpoint, log.log_id, log.term, found.first, found.end, size, len(extents), directory,
        store.row(log), found.state, unavailable, lent.to, lent.process, lent.borrowed, lent.recalled,
    )  # fmt: skip
