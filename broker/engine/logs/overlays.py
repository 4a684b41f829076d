"""The overlays of one office, one over each open log, and which of them a turn must process.

Idea: an office makes them when it opens, with nothing in flight, and drops them all at once: queued proposals are not
appended, and waiters hear nothing.

Contract: every open partition has its overlay here, from `create` on. Must not know what is proposed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..turns.marks import take
from .overlay import Overlay

if TYPE_CHECKING:
    from ....storage.errors import Error
    from ....storage.log import LogWriter
    from ..tables.settings import TopicSettings
    from .history import History, S
    from .log_registry import LogRegistry
    from .partition import Partition
    from .topics import Topic


class Overlays:
    """The overlays of one office."""

    def __init__(self, registry: LogRegistry) -> None:
        """Over every log that is open."""
        self.dirty: dict[Overlay[Any], None] = {}  # has proposals to append
        self.unsettled: dict[Overlay[Any], None] = {}  # has batches in flight
        self._registry = registry
        self.catalogue = self._over(registry.catalogue)
        for partition in registry.partitions.values():
            partition.lead(self._over(partition.history))

    def create(self, topic: Topic, number: int, settings: TopicSettings) -> Partition:
        """Prepare a new partition; see LogRegistry.create."""
        partition = self._registry.create(topic, number, settings)
        partition.lead(self._over(partition.history))
        return partition

    def end(self, partition: Partition, error: Error) -> None:
        """The log of a partition is about to be closed: what is proposed to it by now and later fails."""
        overlay = partition.overlay
        self.dirty.pop(overlay, None)
        self.unsettled.pop(overlay, None)
        overlay.end(error)

    def flush(self, time_us: int) -> list[LogWriter]:
        """Append everything proposed since the last flush. Returns the logs appended to."""
        appended: list[LogWriter] = []
        for overlay in take(self.dirty):
            if overlay.flush(time_us):
                self.unsettled[overlay] = None
                appended.append(overlay.log)
        return appended

    def _over(self, history: History[S]) -> Overlay[S]:
        return Overlay(history, self._has_work)

    def _has_work(self, overlay: Overlay[Any]) -> None:
        self.dirty[overlay] = None
