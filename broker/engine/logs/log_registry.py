"""The registry: every log of a node, open, with what it adds up to.

Idea: opening replays the catalogue, then each partition it names; a partition that cannot be opened keeps its
place and its reason. New logs are made here, and old ones closed and given to the store to erase.

Contract: files are removed only for topics whose tombstone is committed. Must not know peers or messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ....storage.errors import Corrupt, Error, Poisoned, StorageError
from ...errors import Unavailable, UnknownTopic
from ..ports import Store
from ..tables import effects as fx
from ..tables import settings as topic_settings
from ..tables.settings import TopicSettings
from ..tables.state import PartitionState
from ..turns.marks import take
from ..turns.portions import finished
from .agenda import LogAgenda
from .catalogue import CatalogueState
from .finals import Finals
from .history import History
from .overlay import Overlay
from .partition import Partition
from .replay import replay
from .topics import Topic, Topics

if TYPE_CHECKING:
    from ....storage.log import LogWriter

CENSUS = 64
"""Partitions or topics that are counted in one step."""


class LogRegistry:
    """All logs of a node."""

    def __init__(self, store: Store, agenda: LogAgenda) -> None:
        """Open and replay the metadata log and every partition it names. Raises Corrupt without the former."""
        self.store = store
        self.topics = Topics()
        self.partitions: dict[History[Any], Partition] = {}
        self._agenda = agenda
        self._told_end: dict[Partition, int] = {}
        self.catalogue = self._open_catalogue()
        for topic_id in list(self.catalogue.history.committed.tombstones):
            self._erase(topic_id)
        for entry in sorted(self.catalogue.history.committed.topics.values(), key=lambda each: each.name):
            topic = Topic(entry.name, entry.topic, topic_settings.parse(entry.settings))
            for number in range(entry.partitions):
                topic.add(self._open(topic, number))
            self.topics.add(topic)

    def _open_catalogue(self) -> Overlay[CatalogueState]:
        try:
            return Overlay(replay(self.store.metadata(), CatalogueState, self.store), self._has_work)
        except (Corrupt, OSError) as error:
            reason = _named(error).message
            raise Corrupt(
                f"the catalogue cannot be read, and without it the node knows none of its topics: {reason}"
            ) from error

    def histories(self) -> Iterator[History[Any]]:
        """The catalogue's, then every partition's."""
        yield self.catalogue.history
        yield from self.partitions

    def logs(self) -> Iterator[LogWriter]:
        """Every log, the metadata log first."""
        return (history.log for history in self.histories())

    def holds(self, partition: Partition) -> bool:
        """Whether a partition is still open here."""
        return partition.history in self.partitions

    def create(self, topic: Topic, number: int, settings: TopicSettings) -> Partition:
        """Make and open the log of a new partition. Raises StorageFull, Unavailable."""
        try:
            log = self.store.create(topic.id, number, settings)
        except FileExistsError:
            log = self._left_over(topic, number, settings)
        except OSError as error:
            raise StorageError(f"partition {number} of topic {topic.name} cannot be made: {error}") from error
        return self._admit(topic, number, settings, log)

    def configure(self, topic: Topic, settings: TopicSettings) -> None:
        """The topic has new settings."""
        topic.settings = settings
        for partition in topic.readable:
            partition.settings = settings
            self.store.configure(partition.log, settings)

    def close(self, partition: Partition, *, keep: bool = True) -> None:
        """Close a partition's log and forget it. Not to `keep` it: nothing is synced any more."""
        overlay, history = partition.overlay, partition.history
        del self.partitions[history]
        self._told_end.pop(partition, None)
        self._agenda.dirty.pop(overlay, None)
        self._agenda.unsettled.pop(overlay, None)
        self._agenda.grown.pop(history, None)
        idle = overlay.idle
        overlay.end(UnknownTopic(f"{partition!r} was closed before this was committed"))
        partition.close(clean=idle and keep)

    def discard(self, topic: Topic) -> None:
        """Remove what was made for a topic that was never committed."""
        for partition in topic.readable:
            self.close(partition, keep=False)
        self.store.delete(topic.id)

    def erase(self, topic: Topic) -> None:
        """Remove the files of a topic whose tombstone is committed."""
        for partition in topic.readable:
            self.close(partition, keep=False)
        self._erase(topic.id)

    def applied(self, history: History[Any]) -> None:
        """More of a log is applied: do what its state says about the log itself."""
        partition = self.partitions.get(history)
        if partition is not None:
            partition.applied()

    def take_moved(self) -> list[Partition]:
        """Partitions whose end moved since the last call."""
        moved: list[Partition] = []
        for history in take(self._agenda.advanced):
            partition = self.partitions.get(history)
            if partition is not None and self._told_end[partition] != partition.end:
                self._told_end[partition] = partition.end
                moved.append(partition)
        return moved

    def settle(self) -> None:
        """Sync what is not durable yet, one log after the other. A log that fails is poisoned and says so itself."""
        for log in self.logs():
            if log.durable < log.written and log.poisoned is None:
                with suppress(Poisoned):
                    log.sync()

    def close_all(self) -> None:
        """Close every log."""
        for partition in list(self.partitions.values()):
            with suppress(StorageError):  # poisoned now, or no room for its mark: it recovers when it is opened
                self.close(partition)
        with suppress(StorageError):
            self.catalogue.log.close(self.catalogue.idle)

    def unavailable(self) -> dict[str, str]:
        """Why partitions could not be opened, by topic and number."""
        found: dict[str, str] = {}
        for topic in self.topics.by_id.values():
            found |= _unavailable(topic)
        return found

    def stats(self) -> dict[str, Any]:
        """Numbers for people."""
        return finished(self.census())

    def census(self) -> Generator[int | None, None, dict[str, Any]]:
        """The same, counted in steps."""
        states: Counter[str] = Counter()
        for looks, partition in enumerate(list(self.partitions.values()), 1):
            states[partition.state] += 1
            if looks % CENSUS == 0:
                yield
        unavailable: dict[str, str] = {}
        for looks, topic in enumerate(list(self.topics.by_id.values()), 1):
            unavailable |= _unavailable(topic)
            if looks % CENSUS == 0:
                yield
        return {
            "topics": len(self.topics.by_id),
            "partitions": states.total() + len(unavailable),
            "partitions.poisoned": states["poisoned"],
            "partitions.damaged": states["damaged"] + len(unavailable),
            **{f"partitions.unavailable.{place}": reason for place, reason in unavailable.items()},
            "batches.in_flight": sum(len(overlay.history.in_flight) for overlay in self._agenda.unsettled),
        }

    def _left_over(self, topic: Topic, number: int, settings: TopicSettings) -> LogWriter:
        """A log made for a partition that was then not logged. One that holds anything is not ours to reuse."""
        log = self.store.open(topic.id, number, settings)
        if log.written:
            log.close(clean=False)
            raise Unavailable(f"{log.path} holds batches, but the catalogue knows no such partition: move it away")
        return log

    def _open(self, topic: Topic, number: int) -> Partition | Error:
        try:
            log = self.store.open(topic.id, number, topic.settings)
        except (StorageError, OSError) as error:
            return _named(error)
        try:
            return self._admit(topic, number, topic.settings, log)
        except (Error, OSError) as error:
            log.close(clean=False)
            return _named(error)

    def _admit(self, topic: Topic, number: int, settings: TopicSettings, log: LogWriter) -> Partition:
        finals = Finals(self.store.finals(log))

        def begin(state: PartitionState) -> None:
            queues = state.queues
            finals.recover(log, [group for group, queue in queues.by_name.items() if queue.finals], state.seq)
            queues.finals = finals

        history = replay(log, PartitionState, self.store, begin)
        overlay = Overlay(history, self._has_work)
        partition = Partition(topic.name, number, settings, overlay, finals)
        self.partitions[history] = partition
        self._told_end[partition] = partition.end
        if history.in_flight:
            self._agenda.unsettled[overlay] = None
        return partition

    def _erase(self, topic_id: bytes) -> None:
        try:
            self.store.delete(topic_id)
        except (Error, OSError):
            return  # the tombstone stands: the next start tries again
        if self.catalogue.log.poisoned is None:
            self.catalogue.propose(fx.TopicErased(topic_id))

    def _has_work(self, overlay: Overlay[Any]) -> None:
        self._agenda.dirty[overlay] = None


def _named(error: Error | OSError) -> Error:
    """An error of the tree, with a sentence: those of the system name the file."""
    return error if isinstance(error, Error) else StorageError(str(error))


def _unavailable(topic: Topic) -> dict[str, str]:
    if len(topic.readable) == len(topic.partitions):
        return {}
    numbered = enumerate(topic.partitions)
    return {f"{topic.name}/{number}": found.message for number, found in numbered if isinstance(found, Error)}
