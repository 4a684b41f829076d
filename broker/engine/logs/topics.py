"""The topics of a node and their open partitions.

Idea: the catalogue joined with the partitions that could be opened. A partition that could not be opened keeps its
place, with the reason, so that the others serve.

Contract: lookups raise UnknownTopic, UnknownPartition, Unavailable with one sentence. Requests name ids; names are for
people and for creating. Requests for an internal topic by id raise InvalidTopic.
"""

from __future__ import annotations

from ....storage.errors import Error
from ...errors import Unavailable, UnknownPartition, UnknownTopic
from ..tables.names import check_not_reserved, is_reserved
from ..tables.settings import TopicSettings
from .partition import Partition


class Topic:
    """One topic. `readable` holds the partitions that are open, in order."""

    def __init__(self, name: str, id_: bytes, settings: TopicSettings) -> None:
        self.name = name
        self.id = id_
        self.settings = settings
        self.reserved = is_reserved(name)  # internal
        self.partitions: list[Partition | Error] = []
        self.readable: list[Partition] = []

    def add(self, partition: Partition | Error) -> None:
        """The next partition, or why it could not be opened."""
        self.partitions.append(partition)
        if isinstance(partition, Partition):
            self.readable.append(partition)

    def partition(self, number: int) -> Partition:
        """An open partition by number. Raises UnknownPartition, Unavailable."""
        if not 0 <= number < len(self.partitions):
            raise UnknownPartition(
                f"topic {self.name} has no partition {number}: it has {len(self.partitions)}, numbered from 0"
            )
        found = self.partitions[number]
        if isinstance(found, Partition):
            return found
        raise Unavailable(f"partition {number} of topic {self.name} cannot be opened: {found.message}")

    @property
    def closed(self) -> list[int]:
        """The partitions that could not be opened, in order."""
        return [number for number, found in enumerate(self.partitions) if isinstance(found, Error)]


class Topics:
    """All topics of a node, by name and by id."""

    def __init__(self) -> None:
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}
        self._names: list[str] | None = None  # until topics come or go

    @property
    def names(self) -> list[str]:
        """Those of all topics but internal ones, in order. The list stays as it is."""
        if self._names is None:
            self._names = sorted(name for name, topic in self.by_name.items() if not topic.reserved)
        return self._names

    def add(self, topic: Topic) -> None:
        """A topic that is committed."""
        self.by_name[topic.name] = self.by_id[topic.id] = topic
        self._names = None

    def remove(self, topic: Topic) -> None:
        """A topic whose tombstone is committed."""
        del self.by_id[topic.id]
        if self.by_name.get(topic.name) is topic:
            del self.by_name[topic.name]
            self._names = None

    def check(self, topic: Topic) -> None:
        """Raise UnknownTopic for one that was deleted meanwhile: its files may be gone."""
        if self.by_id.get(topic.id) is not topic:
            raise UnknownTopic(f"topic {topic.name} was deleted meanwhile")

    def get(self, id_: bytes) -> Topic:
        """A topic by id. Raises UnknownTopic, InvalidTopic."""
        topic = self.find(id_)
        if topic is None:
            raise UnknownTopic(f"topic id {id_.hex()} is unknown: it was deleted, or belongs to another broker")
        return topic

    def find(self, id_: bytes) -> Topic | None:
        """A topic by id, None when it is not there. Raises InvalidTopic."""
        topic = self.by_id.get(id_)
        if topic is not None:
            check_not_reserved(topic.name)
        return topic

    def named(self, name: str) -> Topic:
        """A topic by name. Raises UnknownTopic."""
        topic = self.by_name.get(name)
        if topic is None:
            raise UnknownTopic(f"topic {name!r} does not exist: create it first, or list what there is")
        return topic

    def partition(self, id_: bytes, number: int) -> Partition:
        """An open partition. Raises UnknownTopic, InvalidTopic, UnknownPartition, Unavailable."""
        topic = self.by_id.get(id_)
        if topic is not None and not topic.reserved and 0 <= number < len(topic.partitions):
            found = topic.partitions[number]
            if isinstance(found, Partition):
                return found
        return self.get(id_).partition(number)
