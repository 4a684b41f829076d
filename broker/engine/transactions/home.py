"""The internal topic of decisions, created when the first transaction is committed.

Contract: the hash of a name chooses the partition of its decisions for as long as the topic lives. If any of the topic
cannot be read, decisions may be missing: `check_whole` says so. Must not know what a decision is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ....storage.errors import Error
from ....transport.partitioner import partition_of
from ...errors import Unavailable
from ..tables.settings import MIB, TopicSettings
from ..turns.portions import finished

if TYPE_CHECKING:
    from ..logs.log_registry import LogRegistry
    from ..logs.partition import Partition
    from ..logs.topics import Topic
    from ..ports import NodeConfig, Now
    from ..topics.topic_maker import TopicMaker

NAME = "__txn"
PARTITIONS = 4

SETTINGS = TopicSettings(segment_bytes=16 * MIB, retention_s=3600.0)
"""It holds no records. With any retention, segments that snapshots cover are removed."""


class Home:
    """The topic of a node's decisions."""

    def __init__(self, registry: LogRegistry, maker: TopicMaker, config: NodeConfig) -> None:
        self._registry = registry
        self._maker = maker
        self._count = min(PARTITIONS, config.max_partitions)
        self._asking: list[tuple[Callable[[Topic], None], Callable[[Error], None]]] = []

    @property
    def topic(self) -> Topic | None:
        """None before the first transaction."""
        return self._registry.topics.by_name.get(NAME)

    def make(self, now: Now, made: Callable[[Topic], None], refused: Callable[[Error], None]) -> None:
        """Have the topic made; later requests wait with the first. Raises errors that are known at once."""
        if not self._asking:
            finished(self._maker.make(NAME, self._count, SETTINGS, now, self._made, self._refused))
        self._asking.append((made, refused))

    def _made(self, topic: Topic) -> None:
        asking, self._asking = self._asking, []
        for made, _ in asking:
            made(topic)

    def _refused(self, error: Error) -> None:
        asking, self._asking = self._asking, []
        for _, refused in asking:
            refused(error)

    def partition(self, topic: Topic, name: str) -> Partition:
        """The partition with all decisions about a transaction. Raises Unavailable."""
        partition = topic.partition(partition_of(name.encode(), len(topic.partitions)))
        if partition.state_damaged:
            raise Unavailable(
                f"{partition!r} is damaged, so what was decided about transaction {name} is not known: "
                "run penstock log repair"
            )
        return partition

    def check_whole(self) -> None:
        """Raise Unavailable when a decision may be missing: then any stage might be decided."""
        if self._registry.catalogue.damaged and self.topic is None:
            raise Unavailable(
                "the metadata log is damaged, so whether there were transactions is not known: run penstock log repair"
            )
        topic = self.topic
        lost = [] if topic is None else [each for each in topic.partitions if not _is_whole(each)]
        if lost:
            raise Unavailable(
                f"{len(lost)} partitions of {NAME} cannot be opened or are damaged, so which stages are decided is not "
                "known, and none is dropped: run penstock log repair"
            )


def _is_whole(found: Partition | Error) -> bool:
    return not isinstance(found, Error) and not found.state_damaged
