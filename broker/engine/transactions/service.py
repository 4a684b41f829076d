"""The transaction service of a node: assembles the handlers and forwards the node's calls to them.

Contract: as the node's. The rules live in the handlers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .commits import Commits
from .committing import Committing
from .forgetting import Forgetting
from .home import Home
from .publishing import Publisher
from .stage_reader import Portion, StageReader

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ..guard import Guard
    from ..logs.clock import LogTime
    from ..logs.grace import Grace
    from ..logs.log_registry import LogRegistry
    from ..logs.partition import Partition
    from ..logs.topics import Topic
    from ..ports import Handlers, NodeConfig, Port
    from ..topics.topic_maker import TopicMaker
    from ..turns.alarms import Alarms
    from ..turns.roster import Roster


class Transactions:
    """Everything about transactions in one node."""

    def __init__(
        self,
        registry: LogRegistry,
        port: Port,
        config: NodeConfig,
        time: LogTime,
        grace: Grace,
        alarms: Alarms[int],
        maker: TopicMaker,
        seals: Roster[Partition, int, None],
        guard: Guard,
    ) -> None:
        """Seals the stages that the logs say are decided."""
        self._registry = registry
        self._reader = StageReader(port)
        self._publisher = Publisher(registry, self._reader, alarms, time)
        home = Home(registry, maker, config)
        self._commits = Commits(registry, home, self._publisher, alarms, seals)
        self._forgetting = Forgetting(config, grace, home, self._commits)
        self._committing = Committing(
            registry, port, config, time, alarms, home, self._commits, self._forgetting, guard
        )
        self.handlers: Handlers = self._committing.handlers

    def look(self, partition: Partition) -> None:
        """Time has passed."""
        self._forgetting.look(partition)

    def warmed(self, token: Hashable) -> bool:
        """Pages are in memory; whether a read of stages waited for them."""
        if isinstance(token, Portion):
            self._reader.warmed(token)
            return True
        return False

    def topic_deleted(self, topic: Topic) -> None:
        """Stop publishing to a deleted topic."""
        self._publisher.topic_deleted(topic)

    def end(self) -> None:
        """The node is being closed."""
        self._publisher.end()

    def stats(self) -> dict[str, Any]:
        """Numbers for people."""
        tables = [partition.committed.stages for partition in self._registry.partitions.values()]
        return {
            "stages.open": sum(map(len, tables)),
            "stages.bytes": sum(table.bytes for table in tables),
            "stages.dropped": self._forgetting.dropped,
            "transactions.decided": self._committing.decided,
            "transactions.unfinished": len(self._commits),
            **self._publisher.stats(),
        }
