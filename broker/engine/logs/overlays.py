"""The overlays of one office, one over each open log, and which of them a turn must process.

Idea: an office makes them when it opens, with nothing in flight, and drops them all at once: queued proposals are not
appended, and waiters hear nothing.

Contract: every open partition has its overlay here, from `create` on. Must not know what is proposed.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

from .overlay import Overlay

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ....storage.errors import Error
    from ....storage.log import LogWriter
    from ..tables.entry import Entry
    from ..tables.settings import TopicSettings
    from .history import History, S
    from .log_registry import LogRegistry
    from .partition import Partition
    from .topics import Topic


OPENED_AT_ONCE = 8
"""Logs that one flush opens for their next append, which takes syncs: clients and peers are served meanwhile."""


class Gate(Protocol):
    """Stands before a log that another process appends to."""

    def opens(self) -> bool:
        """Whether the log may be appended to now. If not, its overlay is made dirty again later."""
        ...

    def closes(self) -> None:
        """The appends are done."""
        ...


class Overlays:
    """The overlays of one office."""

    def __init__(self, registry: LogRegistry) -> None:
        """Over every log that is open."""
        self.dirty: dict[Overlay[Any], None] = {}  # has proposals to append
        self.unsettled: dict[Overlay[Any], None] = {}  # has batches in flight
        self.gates: Mapping[LogWriter, Gate] = {}  # before logs that other processes append to
        self.followed: dict[LogWriter, None] = {}  # have batches of another process that no flush has returned
        self._halted: Counter[Overlay[Any]] = Counter()  # by how many deletions of the topic that are proposed
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
        self._halted.pop(overlay, None)
        self.dirty.pop(overlay, None)
        self.unsettled.pop(overlay, None)
        overlay.end(error)

    def halt(self, topic: Topic) -> Callable[[], None]:
        """A topic's deletion is proposed: nothing is appended to its logs behind it. What is proposed to them waits
        until it fails with the deletion. Returns what ends that, where the deletion is not committed.
        """
        halted = [partition.overlay for partition in topic.readable]
        self._halted.update(halted)

        def resume() -> None:
            for overlay in halted:
                self._halted[overlay] -= 1
                if self._halted[overlay] <= 0:
                    del self._halted[overlay]
                    if not overlay.idle:
                        self.dirty[overlay] = None

        return resume

    def flush(self, time_us: int, *, hurry: bool = False) -> list[LogWriter]:
        """Append everything proposed since the last flush, but behind a gate that is closed, and to logs of a topic
        that is being deleted. Where many logs rest, some of them stay dirty until the next flush.

        `hurry`: the disk begins to write at once if it is one log that becomes durable. Returns the logs with something
        new.
        """
        appended, gates, opened = self.followed, self.gates, 0
        overlays = [each for each in self.dirty if each not in self._halted] if self._halted else list(self.dirty)
        self.dirty.clear()
        hurry = hurry and len(overlays) == 1
        for overlay in overlays:
            overlay.log.hurries = hurry and overlay.log.options.commit == "durable"
            if overlay.log.rests:
                if opened == OPENED_AT_ONCE:
                    self.dirty[overlay] = None
                    continue
                opened += 1
            gate = gates.get(overlay.log) if gates else None
            if gate is not None and not gate.opens():
                continue
            if overlay.flush(time_us):
                self.unsettled[overlay] = None
                appended[overlay.log] = None
            if gate is not None:
                gate.closes()
        logs = list(appended)
        appended.clear()
        return logs

    def follow(self, overlay: Overlay[Any], entries: Sequence[Entry], size: int) -> None:
        """Batches of another process stand in a log now."""
        overlay.follow(entries, size)
        self.unsettled[overlay] = self.followed[overlay.log] = None

    def _over(self, history: History[S]) -> Overlay[S]:
        return Overlay(history, self._has_work)

    def _has_work(self, overlay: Overlay[Any]) -> None:
        self.dirty[overlay] = None
