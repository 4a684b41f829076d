"""Makes topics: first their logs, then the entry in the catalogue.

Contract: the caller is told exactly once, after the commit; a failure before it leaves nothing visible. Must not know:
callers, and which names they may use.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from ....storage.errors import Error
from ...errors import InvalidRequest, InvalidSettings, LimitReached, TopicExists, Unavailable
from ..logs.log_registry import LogRegistry
from ..logs.overlays import Overlays
from ..logs.topics import Topic
from ..ports import NodeConfig, Now, Randomness
from ..tables import effects as fx
from ..tables.settings import TopicSettings
from ..turns.replies import Gather

MADE = 16
"""Steps that it takes to make a partition: its files are made durably."""

DEFAULT_RECORD_BYTES = TopicSettings().max_record_bytes
"""Allowed also where frames are smaller: a broker with a low `max_frame_bytes` makes topics without settings, too."""


class TopicMaker:
    """Makes the topics of a node."""

    def __init__(self, registry: LogRegistry, overlays: Overlays, config: NodeConfig, randomness: Randomness) -> None:
        self._registry = registry
        self._overlays = overlays
        self._config = config
        self._randomness = randomness

    def make(
        self,
        name: str,
        count: int,
        settings: TopicSettings,
        now: Now,
        made: Callable[[Topic], None],
        refused: Callable[[Error], None],
    ) -> Generator[int | None, None, None]:
        """Begin a topic; `made` or `refused` is called later. Raises what is known at once, TopicExists among it."""
        self.check_size(name, count, settings)
        self.check_catalogue()
        self._check_name(name)
        topic = Topic(name, self._randomness(16), settings)
        yield from self._make_logs(topic, count)

        def failed(error: Error) -> None:
            self._registry.withdraw(topic.id, range(count))
            refused(error)

        gather = Gather(lambda: made(self._registry.topics.by_id[topic.id]), failed)
        effect = fx.TopicCreated(topic.name, topic.id, count, settings.named(), now.wall_us)
        self._overlays.catalogue.propose_in_order(effect, gather.one())
        gather.ready()

    def _check_name(self, name: str) -> None:
        """Raise TopicExists, LimitReached unless there may be a topic of this name."""
        catalogue = self._overlays.catalogue
        if catalogue.proposed.name_taken(name):
            raise TopicExists(f"topic {name} exists already: use it, or delete it first")
        if len(catalogue.proposed.topics) >= self._config.max_topics:
            raise LimitReached(
                f"{self._config.max_topics} topics are there, which is the limit: delete some or raise it"
            )

    def check_size(self, name: str, count: int, settings: TopicSettings) -> None:
        """Raise InvalidRequest, InvalidSettings unless a topic may have such partitions, records and commits."""
        if settings.commit == "written" and self._config.members > 1:
            raise InvalidSettings(
                f"topic {name} with commit=written is not possible in a cluster of {self._config.members}: a majority "
                "syncs what it commits; leave commit out, or say commit=durable"
            )
        limit, frame = self._config.max_partitions, self._config.max_frame_bytes
        if not 1 <= count <= limit:
            raise InvalidRequest(f"topic {name} with partitions={count} is not possible: 1 to {limit}")
        if settings.max_record_bytes > max(frame, DEFAULT_RECORD_BYTES):
            raise InvalidSettings(
                f"topic {name} with max_record_bytes={settings.max_record_bytes} is not possible: no record can be "
                f"sent that is larger than the broker's max_frame_bytes={frame}"
            )

    def check_catalogue(self) -> None:
        """Raise Poisoned or Unavailable unless topics can be made, altered and deleted."""
        catalogue = self._overlays.catalogue
        catalogue.history.check_writable()
        if catalogue.history.damaged:
            raise Unavailable(
                f"the metadata log {catalogue.log.path} is damaged: topics serve, but none can be created, "
                "altered or deleted until it is repaired (penstock log repair)"
            )

    def _make_logs(self, topic: Topic, count: int) -> Generator[int | None, None, None]:
        try:
            for number in range(count):
                self._overlays.create(topic, number, topic.settings)
                yield MADE
            self._check_name(topic.name)  # another request may have made it meanwhile
            self.check_catalogue()
        except Error:
            self._registry.withdraw(topic.id, range(count))
            raise
