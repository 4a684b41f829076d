"""The registry: every open log of a node, with its state.

Idea: opening replays the catalogue, then each partition it names; a partition that cannot be opened keeps its place
and its reason. From then on, applied entries of the catalogue take effect in any role: prepared logs become
partitions, settings change, logs of deleted topics are closed and erased by the store. A watcher is told.

Contract: files are removed only for topics whose tombstone is committed, or that never were committed. Must not know
peers, messages, or what is proposed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from ....storage.errors import Corrupt, Error, Poisoned, StorageError, is_damage
from ...errors import Unavailable
from ..ports import RecordRoom, Store
from ..tables import effects as fx
from ..tables import settings as topic_settings
from ..tables.entry import Entry, entry_of
from ..tables.settings import TopicSettings
from ..tables.state import PartitionState
from ..turns.portions import finished
from .catalogue import CatalogueState
from .finals import Finals
from .history import History
from .log_agenda import LogAgenda
from .partition import Partition
from .replay import replay
from .topics import Topic, Topics

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ....storage.batch import Batch
    from ....storage.log import LogWriter

CENSUS = 48
"""Partitions or topics that are counted in one step."""


class TopicWatcher(Protocol):
    """Whatever uses topics and partitions, told what the catalogue has decided about them."""

    def topic_grown(self, topic: Topic, partitions: list[Partition]) -> None:
        """Handle new partitions of a topic."""
        ...

    def topic_deleted(self, topic: Topic) -> None:
        """The tombstone is committed: end all use. The topic is closed and erased next."""
        ...

    def topic_erased(self, topic_id: bytes) -> None:
        """The files of a deleted topic are gone, which the catalogue does not say yet."""
        ...

    def partition_closing(self, partition: Partition) -> None:
        """Its log is closed next."""
        ...


class LogRegistry:
    """All logs of a node."""

    def __init__(self, store: Store, agenda: LogAgenda, watcher: TopicWatcher) -> None:
        """Open and replay the metadata log and every partition it names; `watcher` hears of what comes after that.

        Raises Corrupt without the metadata log.
        """
        self.store = store
        self.topics = Topics()
        self.partitions: dict[History[Any], Partition] = {}
        self.erased: dict[bytes, None] = {}  # deleted topics without files, which the catalogue still has tombstones of
        self._agenda = agenda
        self._watcher = watcher
        self.trimmed: dict[Partition, None] = {}
        """Partitions that have moved their first offset, and may have files below it."""
        self.on_damage: Callable[[Corrupt], StorageError] = lambda damage: damage
        """Told of what reading a partition meets."""
        self.told_end: dict[Partition, int] = {}
        """The end that readers of a partition were told of."""
        self.reserve: RecordRoom | None = None
        """What records leave of the disk; None where that does not count."""
        self._prepared: dict[tuple[bytes, int], Partition] = {}  # by topic and number: not in the catalogue yet
        self._by_log: dict[bytes, History[Any]] = {}
        self.catalogue = self._open_catalogue()
        for topic_id in list(self.catalogue.committed.tombstones):
            self._erase(topic_id)
        for entry in sorted(self.catalogue.committed.topics.values(), key=lambda each: each.name):
            self._add(entry.name, entry.topic, entry.partitions, entry.settings)
        for entry in self.catalogue.in_flight:
            self._foresee(entry)
        self.catalogue.on_applied = self._obey

    def _open_catalogue(self) -> History[CatalogueState]:
        try:
            return replay(self.store.metadata(), CatalogueState, self.store)
        except (Corrupt, OSError) as error:
            if not is_damage(error):
                raise
            reason = _named(error).message
            raise Corrupt(
                f"the catalogue cannot be read, and without it the node knows none of its topics: {reason}"
            ) from error

    def history_of(self, log_id: bytes) -> History[Any] | None:
        """The history of an open log, by the log's id."""
        return self.catalogue if log_id == self.catalogue.log.log_id else self._by_log.get(log_id)

    def follow(self, history: History[Any], batches: Sequence[Batch]) -> None:
        """A leader's batches stand in a log now, and are not committed. Logs of topics to come are prepared."""
        for batch in batches:
            entry = entry_of(batch)
            history.in_flight.append(entry)
            history.since_snapshot_bytes += batch.batch_bytes
            if history is self.catalogue:
                self._foresee(entry)

    def prepare(self, batch: Batch, most: int) -> bool:
        """Prepare so many of the logs that a batch of the catalogue names. Returns whether all of them are there.

        Raises StorageFull, and whatever keeps one from being made.
        """
        return self._foresee(entry_of(batch), most)

    def _foresee(self, entry: Entry, most: int = 1 << 62) -> bool:
        """Prepare the logs of an entry of the catalogue that is in flight: batches for them may come next."""
        wanted = [(topic, number) for topic, count in self._growth(entry) for number in self._missing(topic, count)]
        for topic, number in wanted[:most]:
            found = self._open(topic, number)
            if isinstance(found, Error):
                raise found
            self._prepared[topic.id, number] = found
        return len(wanted) <= most

    def _growth(self, entry: Entry) -> Iterator[tuple[Topic, int]]:
        """Topics that an entry of the catalogue makes or grows, and how many partitions each has then."""
        for effect in entry.effects:
            if isinstance(effect, fx.TopicCreated):
                settings = topic_settings.parse(effect.settings)
                yield Topic(effect.name, effect.topic, settings), effect.partitions
            elif isinstance(effect, fx.TopicAltered) and (topic := self._coming(effect.topic)) is not None:
                yield topic, effect.partitions

    def _coming(self, topic_id: bytes) -> Topic | None:
        """A topic, also one that an entry in flight makes: its first log is prepared. None for a deleted one."""
        known, first = self.topics.by_id.get(topic_id), self._prepared.get((topic_id, 0))
        return known if known or not first else Topic(first.topic, topic_id, first.settings)

    def _missing(self, topic: Topic, count: int) -> Iterator[int]:
        known = self.topics.by_id.get(topic.id, topic)
        return (each for each in range(len(known.partitions), count) if (topic.id, each) not in self._prepared)

    def histories(self) -> Iterator[History[Any]]:
        """The catalogue's, then every partition's."""
        yield self.catalogue
        yield from self.partitions

    def logs(self) -> Iterator[LogWriter]:
        """Every log, the metadata log first."""
        return (history.log for history in self.histories())

    def holds(self, partition: Partition) -> bool:
        """Whether a partition is still open here."""
        return partition.history in self.partitions

    def take_room(self, size: int, now_s: float) -> None:
        """Take so many bytes of the disk for records. Raises StorageFull, and takes nothing."""
        if self.reserve is not None:
            self.reserve.take(size, now_s)

    def create(self, topic: Topic, number: int, settings: TopicSettings) -> Partition:
        """Make and open the log of a new partition, which counts when the catalogue has it.

        Raises StorageFull, Unavailable.
        """
        try:
            log = self.store.create(topic.id, number, settings)
        except FileExistsError:
            log = self._left_over(topic, number, settings)
        except OSError as error:
            raise StorageError(f"partition {number} of topic {topic.name} cannot be made: {error}") from error
        partition = self._prepared[topic.id, number] = self._admit(topic, number, settings, log)
        return partition

    def withdraw(self, topic_id: bytes, numbers: Iterable[int]) -> None:
        """Close what was prepared and will not be in the catalogue; remove the files of a topic that never was."""
        for number in numbers:
            partition = self._prepared.pop((topic_id, number), None)
            if partition is not None:
                self.close(partition, keep=False)
        if topic_id not in self.topics.by_id and not any(prepared == topic_id for prepared, _ in self._prepared):
            self._remove(topic_id)

    def withdraw_prepared(self) -> None:
        """Withdraw all prepared logs: their proposer is gone, and no catalogue entry in flight names them."""
        for topic_id, number in list(self._prepared):
            self.withdraw(topic_id, [number])

    def close(self, partition: Partition, *, keep: bool = True) -> None:
        """Close a partition's log and forget it. Not to `keep` it: nothing is synced any more."""
        history = partition.history
        del self.partitions[history]
        self._by_log.pop(history.log.log_id, None)
        self.told_end.pop(partition, None)
        self.trimmed.pop(partition, None)
        self._agenda.grown.pop(history, None)
        idle = not history.in_flight
        self._watcher.partition_closing(partition)
        partition.close(clean=idle and keep)

    @property
    def settled(self) -> bool:
        """Whether all that stands in the logs is committed, and none is poisoned."""
        return not any(history.in_flight or history.log.poisoned for history in self.histories())

    def advance(self) -> bool:
        """Apply what is committed by now, without an office. Returns whether there may be something new."""
        moved = False
        for history in self.histories():  # the catalogue's first: it may close others
            if history.in_flight and list(history.advance()):
                self.applied(history)
                moved = True
        return moved

    def applied(self, history: History[Any]) -> Partition | None:
        """More of a log is applied: do what its state says about the log itself. Returns its partition."""
        self._agenda.advanced[history] = self._agenda.grown[history] = None
        partition = self.partitions.get(history)
        if partition is not None and partition.applied():
            self.trimmed[partition] = None
        return partition

    def take_moved(self) -> list[Partition]:
        """Partitions whose end moved since the last call."""
        moved: list[Partition] = []
        histories = list(self._agenda.advanced)
        self._agenda.advanced.clear()
        for history in histories:
            partition = self.partitions.get(history)
            if partition is not None and self.told_end[partition] != (end := history.committed.end):
                self.told_end[partition] = end
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
            self.catalogue.log.close(not self.catalogue.in_flight)

    def unavailable(self) -> dict[str, str]:
        """Why partitions could not be opened, by topic and number."""
        found: dict[str, str] = {}
        for topic in self.topics.by_id.values():
            found |= _unavailable(topic)
        return found

    def unsound(self) -> Iterator[tuple[str, Error]]:
        """Logs that could not be opened, or that add up to less than was stored: directory, and why."""
        if self.catalogue.damaged:
            yield self.catalogue.log.path, _unread(self.catalogue)
        for topic in self.topics.by_id.values():
            for number, found in enumerate(topic.partitions):
                if isinstance(found, Error):
                    yield self.store.directory(topic.id, number), found
                elif found.damaged:
                    yield found.log.path, _unread(found.history)

    def stats(self) -> dict[str, Any]:
        """Numbers for people."""
        return finished(self.census())

    def census(self) -> Generator[int | None, None, dict[str, Any]]:
        """The same, counted in steps."""
        states: Counter[str] = Counter()
        in_flight, barrier_bytes = len(self.catalogue.in_flight), 0
        for looks, partition in enumerate(list(self.partitions.values()), 1):
            states[partition.state] += 1
            in_flight += len(partition.history.in_flight)
            barrier_bytes = max(barrier_bytes, partition.history.committed.barriers.bytes)
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
            "batches.in_flight": in_flight,
            "barriers.most_bytes": barrier_bytes,
        }

    # -- what the catalogue says ----------------------------------------------------------------------

    def _obey(self, entry: Entry) -> None:
        """An entry of the catalogue is applied."""
        for effect in entry.effects:
            match effect:
                case fx.TopicCreated(name, topic_id, count, settings):
                    self._add(name, topic_id, count, settings)
                case fx.TopicAltered(topic_id, count, settings):
                    self._alter(topic_id, count, topic_settings.parse(settings))
                case fx.TopicDeleted(topic_id):
                    self._delete(topic_id)
                case fx.TopicErased(topic_id):
                    self.erased.pop(topic_id, None)

    def _add(self, name: str, topic_id: bytes, count: int, settings: dict[str, Any]) -> None:
        topic = Topic(name, topic_id, topic_settings.parse(settings))
        for number in range(count):
            topic.add(self._take(topic, number))
        self.topics.add(topic)

    def _alter(self, topic_id: bytes, count: int, settings: TopicSettings) -> None:
        topic = self.topics.by_id.get(topic_id)
        if topic is None:
            return  # deleted in the meantime
        topic.settings = settings
        known = len(topic.readable)
        for number in range(len(topic.partitions), count):
            topic.add(self._take(topic, number))
        for partition in topic.readable:  # new ones, too: a log that was prepared for this has the settings before it
            partition.settings = settings
            self.store.configure(partition.log, settings)
        if len(topic.readable) > known:
            self._watcher.topic_grown(topic, topic.readable[known:])

    def _delete(self, topic_id: bytes) -> None:
        topic = self.topics.by_id.get(topic_id)
        if topic is None:
            return  # deleted twice
        self._watcher.topic_deleted(topic)
        self.topics.remove(topic)
        prepared = [partition for (prepared, _), partition in self._prepared.items() if prepared == topic_id]
        for partition in [*topic.readable, *prepared]:
            self._prepared.pop((topic_id, partition.number), None)
            self.close(partition, keep=False)
        if self._erase(topic_id):
            self._watcher.topic_erased(topic_id)

    def _take(self, topic: Topic, number: int) -> Partition | Error:
        """A partition that the catalogue has: as it was prepared, else as it is on the disk."""
        return self._prepared.pop((topic.id, number), None) or self._open(topic, number)

    def _erase(self, topic_id: bytes) -> bool:
        """Remove the files of a topic whose tombstone is committed. Returns whether they are gone."""
        gone = self._remove(topic_id)
        if gone:
            self.erased[topic_id] = None
        return gone

    def _remove(self, topic_id: bytes) -> bool:
        try:
            self.store.delete(topic_id)
        except (Error, OSError):
            return False  # a tombstone stands, and the next start tries again; what no topic names is left alone
        return True

    # -- opening --------------------------------------------------------------------------------------

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
            with suppress(StorageError, OSError):  # one that stays is removed, or written over, later
                self.store.runs(log).drop(range(state.shelves.last_run + 1))  # others are of a state that was lost
            queues = state.queues
            finals.recover(log, [group for group, queue in queues.by_name.items() if queue.finals], state.seq)
            queues.finals = finals

        history = replay(log, PartitionState, self.store, begin)
        partition = Partition(topic.name, number, settings, history, finals)
        self.partitions[history] = partition
        self._by_log[log.log_id] = history
        self.told_end[partition] = partition.end
        if partition.first:
            self.trimmed[partition] = None
        partition.on_damage = lambda damage: self.on_damage(damage)
        return partition


def _named(error: Error | OSError) -> Error:
    """An error of the tree, with a sentence: those of the system name the file."""
    if isinstance(error, Error):
        return error
    found = StorageError(str(error))
    found.__cause__ = error
    return found


def _unread(history: History[Any]) -> Error:
    return Corrupt(f"{history.log.path} has batches that cannot be read", path=history.log.path)


def _unavailable(topic: Topic) -> dict[str, str]:
    if len(topic.readable) == len(topic.partitions):
        return {}
    numbered = enumerate(topic.partitions)
    return {f"{topic.name}/{number}": found.message for number, found in numbered if isinstance(found, Error)}
