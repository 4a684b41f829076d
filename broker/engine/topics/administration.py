"""Topics as requests: create, alter, delete, list, and find offsets.

Idea: topic_maker.py creates topics. Deleting goes the other way: the tombstone is logged, then the topic is closed,
then its files are removed. The registry (logs/log_registry.py) acts on committed entries, in any role; waiters here
only answer.

Contract: answers follow the commit. A failure before the commit leaves nothing visible. Internal topics can only be
listed, and only by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....storage.errors import Error
from ....transport.messages import (  # fmt: skip
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    Done,
    FindOffsets,
    ListTopics,
    Offsets,
)
from ....transport.messages import Partition as PartitionMessage
from ....transport.messages import Topic as TopicMessage
from ....transport.messages import Topics as TopicsMessage
from ...errors import InvalidRequest, UnknownTopic
from ..logs.catalogue import CatalogueState
from ..logs.log_registry import LogRegistry
from ..logs.overlay import Overlay
from ..logs.overlays import Overlays
from ..logs.partition import check_time
from ..logs.topics import Topic, Topics
from ..ports import Handlers, NodeConfig, Now, Payload, Peer, Port, Store, Work
from ..queues.topic_queues import why_unavailable
from ..tables import effects as fx
from ..tables import settings as topic_settings
from ..tables.names import check_topic_name, is_reserved
from ..tables.settings import TopicSettings
from ..turns.replies import Gather, failure
from .topic_maker import MADE, TopicMaker

if TYPE_CHECKING:
    from collections.abc import Generator

    from ..turns.portions import Portions

FOUND = 4
"""Steps that it takes to find an offset: a file may have to be opened."""

DESCRIBED = 2
"""Partitions that are described in one step."""


class Administration:
    """Handlers of everything that concerns whole topics."""

    def __init__(
        self,
        registry: LogRegistry,
        overlays: Overlays,
        port: Port,
        config: NodeConfig,
        maker: TopicMaker,
        later: Portions,
    ) -> None:
        """`later` describes topics that were made or altered."""
        self.handlers: Handlers = {
            CreateTopic: self.create, AlterTopic: self.alter, DeleteTopic: self.delete, ListTopics: self.list,
            FindOffsets: self.find_offsets,
        }  # fmt: skip
        self._registry = registry
        self._topics: Topics = registry.topics
        self._overlays = overlays
        self._catalogue: Overlay[CatalogueState] = overlays.catalogue
        self._store: Store = registry.store
        self._port = port
        self._config = config
        self._maker = maker
        self._later = later
        self._growing: set[bytes] = set()  # topics whose new partitions are being made

    def create(self, peer: Peer, message: CreateTopic, payload: Payload, now: Now) -> Work:
        """Make the logs, then log the topic. Raises InvalidTopic, InvalidSettings, TopicExists, LimitReached."""
        check_topic_name(message.name)
        settings = topic_settings.parse(message.settings)
        yield from self._maker.make(
            message.name, message.partitions, settings, now,
            lambda topic: self._answer(peer, message.request, topic),
            lambda error: self._refuse(peer, message.request, error),
        )  # fmt: skip

    def alter(self, peer: Peer, message: AlterTopic, payload: Payload, now: Now) -> Work:
        """Change settings, grow. Raises InvalidSettings, InvalidRequest."""
        topic = self._topics.get(message.topic)
        entry = self._catalogue.proposed.topics.get(message.topic)
        if entry is None:
            raise UnknownTopic(f"topic {topic.name} is being deleted")
        settings = topic_settings.altered(topic_settings.parse(entry.settings), message.settings)
        count = message.partitions or entry.partitions
        if count < entry.partitions:
            raise InvalidRequest(f"topic {topic.name} has {entry.partitions} partitions and cannot shrink to {count}")
        self._maker.check_size(topic.name, count, settings)
        self._maker.check_catalogue()
        grown = range(entry.partitions, count)
        yield from self._grow(topic, grown, settings)

        def refused(error: Error) -> None:
            self._registry.withdraw(topic.id, grown)
            self._refuse(peer, message.request, error)

        gather = Gather(lambda: self._answer(peer, message.request, topic), refused)
        self._catalogue.propose_in_order(fx.TopicAltered(topic.id, count, settings.named()), gather.one())
        gather.ready()

    def _grow(self, topic: Topic, grown: range, settings: TopicSettings) -> Work:
        """New partitions, not logged yet. Raises InvalidRequest, UnknownTopic, and what making them raises."""
        if topic.id in self._growing:
            raise InvalidRequest(f"topic {topic.name} is growing already: alter it again when that is done")
        self._growing.add(topic.id)
        try:
            for number in grown:
                self._overlays.create(topic, number, settings)
                yield MADE
            if grown:
                self._topics.get(topic.id)
        except Error:
            self._registry.withdraw(topic.id, grown)
            raise
        finally:
            self._growing.discard(topic.id)

    def delete(self, peer: Peer, message: DeleteTopic, payload: Payload, now: Now) -> None:
        """Log the tombstone, then end all use, then remove the files."""
        topic = self._topics.get(message.topic)
        self._maker.check_catalogue()
        gather = Gather(
            lambda: self._done(peer, message.request),
            lambda error: self._refuse(peer, message.request, error),
        )
        self._catalogue.propose_in_order(fx.TopicDeleted(topic.id), gather.one())
        gather.ready()

    def list(self, peer: Peer, message: ListTopics, payload: Payload, now: Now) -> Work:
        """Topics as they stand, by name. Internal ones only by name. Raises InvalidRequest."""
        names = message.names or sorted(name for name in self._topics.by_name if not is_reserved(name))
        if len(set(names)) < len(names):
            raise InvalidRequest("a topic is named twice: name each once")
        found: list[TopicMessage] = []
        for name in names:
            if message.names or name in self._topics.by_name:  # else it was deleted meanwhile
                found.append((yield from self._describe(self._topics.named(name))))
        self._port.reply(peer, TopicsMessage(message.request, found))

    def find_offsets(self, peer: Peer, message: FindOffsets, payload: Payload, now: Now) -> Work:
        """One offset per partition."""
        topic = self._topics.get(message.topic)
        check_time("time_us", message.time_us)
        found: list[tuple[int, int]] = []
        for number in range(len(topic.partitions)):
            partition = topic.partition(number)
            offset = partition.find(message.time_us)
            found.append((offset, partition.term_at(offset)))
            yield FOUND
            self._topics.get(message.topic)
        self._port.reply(peer, Offsets(message.request, found))

    # -- after the commit ---------------------------------------------------------------------------

    def _done(self, peer: Peer, request: int) -> None:
        self._port.reply(peer, Done(request))

    def _refuse(self, peer: Peer, request: int, error: Error) -> None:
        self._port.reply(peer, failure(request, error))

    # -- pieces -------------------------------------------------------------------------------------

    def _answer(self, peer: Peer, request: int, topic: Topic) -> None:
        self._later.add(peer, self._tell(peer, request, topic))

    def _tell(self, peer: Peer, request: int, topic: Topic) -> Work:
        try:
            self._port.reply(peer, TopicsMessage(request, [(yield from self._describe(topic))]))
        except Error as error:
            self._port.reply(peer, failure(request, error))

    def _describe(self, topic: Topic) -> Generator[int | None, None, TopicMessage]:
        """A topic as it stands. Raises UnknownTopic."""
        partitions: list[PartitionMessage] = []
        while len(partitions) < len(topic.partitions):
            if self._topics.by_id.get(topic.id) is not topic:
                raise UnknownTopic(f"topic {topic.name} was deleted meanwhile")
            partitions.append(self._describe_partition(topic, len(partitions)))
            if len(partitions) % DESCRIBED == 0:
                yield
        return TopicMessage(topic.name, topic.id, topic.settings.named(), partitions)

    def _describe_partition(self, topic: Topic, number: int) -> PartitionMessage:
        found, endpoint = topic.partitions[number], self._config.endpoint
        directory, unavailable = self._store.directory(topic.id, number), why_unavailable(topic, number)
        if isinstance(found, Error):
            return PartitionMessage(number, endpoint, b"", 0, 0, 0, 0, 0, directory, -1, "damaged", unavailable)
        log = found.log
        extents = log.segments()
        size = sum(extent.record_bytes for extent in extents)
        return PartitionMessage(
            number, endpoint, log.log_id, log.term, found.first, found.end, size, len(extents), directory,
            self._store.row(log), found.state, unavailable,
        )  # fmt: skip
