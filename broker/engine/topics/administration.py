"""Topics as requests: create, alter, delete.

Idea: topic_maker.py creates topics. Deleting goes the other way: the tombstone is logged, then the topic is closed,
then its files are removed. The registry (logs/log_registry.py) acts on committed entries, in any role; waiters here
only answer.

Contract: answers follow the commit. A failure before the commit leaves nothing visible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....storage.errors import Error
from ....transport.messages import (  # fmt: skip
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    Done,
)
from ....transport.messages import Topics as TopicsMessage
from ...errors import InvalidRequest, TopicExists, UnknownTopic
from ..logs.catalogue import CatalogueState
from ..logs.log_registry import LogRegistry
from ..logs.overlay import Overlay
from ..logs.overlays import Overlays
from ..logs.topics import Topic, Topics
from ..ports import Handlers, NodeConfig, Now, Payload, Peer, Port, Work
from ..tables import effects as fx
from ..tables import settings as topic_settings
from ..tables.names import check_topic_name
from ..tables.settings import TopicSettings
from ..turns.replies import Gather, refusing
from .listing import describe
from .topic_maker import MADE, TopicMaker

if TYPE_CHECKING:
    from ..turns.portions import Portions


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
            CreateTopic: self.create, AlterTopic: self.alter, DeleteTopic: self.delete,
        }  # fmt: skip
        self._registry = registry
        self._topics: Topics = registry.topics
        self._overlays = overlays
        self._catalogue: Overlay[CatalogueState] = overlays.catalogue
        self._port = port
        self._endpoint = config.endpoint
        self._maker = maker
        self._later = later
        self._growing: set[bytes] = set()  # topics whose new partitions are being made

    def create(self, peer: Peer, message: CreateTopic, payload: Payload, now: Now) -> Work:
        """Make the logs, then log the topic. Raises InvalidTopic, InvalidSettings, LimitReached."""
        check_topic_name(message.name)
        settings = topic_settings.parse(message.settings)
        refuse = refusing(self._port, peer, message.request)
        try:
            yield from self._maker.make(
                message.name, message.partitions, settings, now,
                lambda topic: self._answer(peer, message.request, topic), refuse,
            )  # fmt: skip
        except TopicExists as error:  # told once the topic is committed, so that who hears of it can use it
            exists = error
            self._catalogue.barrier(Gather(lambda: refuse(exists), refuse))

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
        grown, refuse = range(entry.partitions, count), refusing(self._port, peer, message.request)
        yield from self._grow(topic, grown, settings)

        def refused(error: Error) -> None:
            self._registry.withdraw(topic.id, grown)
            refuse(error)

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
        """Log the tombstone, behind which nothing is appended, then end all use, then remove the files."""
        topic = self._topics.get(message.topic)
        self._maker.check_catalogue()
        finish = lambda: self._port.reply(peer, Done(message.request))  # noqa: E731
        resume = self._overlays.halt(topic)
        gather = Gather(finish, refusing(self._port, peer, message.request), resume)
        self._catalogue.propose_in_order(fx.TopicDeleted(topic.id), gather.one())
        gather.ready()

    def _answer(self, peer: Peer, request: int, topic: Topic) -> None:
        self._later.add(peer, self._tell(peer, request, topic), refusing(self._port, peer, request))

    def _tell(self, peer: Peer, request: int, topic: Topic) -> Work:
        found = yield from describe(self._registry, self._endpoint, topic)
        self._port.reply(peer, TopicsMessage(request, [found]))
