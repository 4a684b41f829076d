"""A range: the batches of one partition that hold the records from one offset to another, in order.

Idea: the caller knows where the range begins and ends, so reading needs no session and waits for no new records. On the
broker's machine the batches are those of the mapped segments; else they are fetched, a few questions ahead.

Contract: every record of the range is in exactly one batch handed out; the first and the last batch may contain
records outside it. Batches stay valid as long as they are referenced. If the topic was replaced, or records are gone,
lost or damaged, the range ends with an error; it goes on behind damage that was accepted, with a warning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from ...broker.errors import UnknownPartition, UnknownTopic
from ...storage import units
from ...storage.accepted import passed
from ...storage.batch import Batch, ColumnId, Origin
from ...storage.errors import AcceptedLoss, Corrupt, InvalidTopic, OutOfBounds
from ...storage.projection import with_validity
from ..arguments.checking import some_of
from ..connection.steps import Steps
from ..errors import InvalidArgument, MappedUnavailable
from ..reading.readable import verify
from .fetched import FetchedRange
from .mapped import MappedRange

if TYPE_CHECKING:
    from ...transport.messages import Partition, Topic
    from ..connection.connection import Connection
    from .known_topics import KnownTopics

COLUMNS = {
    "value": ColumnId.VALUE,
    "key": ColumnId.KEY,
    "headers": ColumnId.HEADERS,
    "timestamp": ColumnId.EVENT_TIME,
    "offset": ColumnId.OFFSET,
    "priority": ColumnId.PRIORITY,
    "not_before": ColumnId.NOT_BEFORE,
    "dedup": ColumnId.DEDUP,
    "topic": ColumnId.OFFSET,
    "partition": ColumnId.OFFSET,
}
"""Names of what a batch may have, and where it stands. Records that were not kept follow each other, and have no column
of offsets; that of a topic or partition needs nothing."""


class Wanted(Struct, frozen=True, kw_only=True):
    """Records `start` to `end` - 1 of one partition. Checked."""

    topic: str
    topic_id: bytes  # b"": whichever has the name
    partition: int
    start: int
    end: int
    term: int  # of the record before `start`; -1: not known
    columns: tuple[str, ...]  # none: all
    verify: bool


def column_names(given: Sequence[str] | None) -> tuple[str, ...]:
    """The columns of these names; all if None. Raises InvalidArgument."""
    if given is None:
        return ()
    some_of("columns", given, COLUMNS)
    return tuple(given)


def core_of(
    connection: Connection, topics: KnownTopics, ways: list[str], topic: str, partition: int, start: int, end: int,
    columns: Sequence[str],
) -> RangeCore:  # fmt: skip
    """The range of whichever topic has the name, verified."""
    wanted = Wanted(
        topic=topic, topic_id=b"", partition=partition, start=start, end=end, term=-1, columns=column_names(columns),
        verify=True,
    )  # fmt: skip
    return RangeCore(connection, topics, wanted, ways)


class Reading(Protocol):
    """One way to read the batches."""

    def more(self) -> Steps[list[Batch]]:
        """The next batches with records of the range; none at its end."""
        ...

    def close(self) -> None:
        """Release open files and requests."""
        ...


class RangeCore:
    """See the module. Used by one thread or task at a time."""

    def __init__(self, connection: Connection, topics: KnownTopics, wanted: Wanted, ways: list[str]) -> None:
        """`ways`: how the batches may travel, the best way first: mapped, control."""
        if not 0 <= wanted.start <= wanted.end:
            raise InvalidArgument(f"no range begins at {wanted.start} and ends at {wanted.end}")
        self.wanted = wanted
        self._connection = connection
        self._topics = topics
        self._ways = ways
        self._position = wanted.start
        self._id = wanted.topic_id
        self._partition: Partition | None = None
        self._reading: Reading | None = None
        self._ids = frozenset(COLUMNS[name] for name in wanted.columns)
        self._checked = with_validity(self._ids) if self._ids else None
        self._origin = Origin(wanted.topic, wanted.partition, wanted.columns)

    def found(self) -> Steps[None]:
        """Find the range, and check that all of it exists unless the topic is known by its id.

        Raises UnknownTopic, UnknownPartition, OutOfBounds.
        """
        self._partition = self._topics.partition(self._id, self.wanted.partition)
        if self._partition is None:
            yield from self._look()

    def _look(self) -> Steps[None]:
        """Ask the broker. Raises UnknownTopic, UnknownPartition, OutOfBounds."""
        topic = yield from self._connection.find_topic(self.wanted.topic, self._connection.deadline())
        self._topics.remember(topic)
        self._partition = self._part_of(topic)

    def more(self) -> Steps[list[Batch]]:
        """The next batches; none at the end of the range. After an error there are no more."""
        while self._position < self.wanted.end:
            try:
                if self._reading is None:
                    self._reading = self._begin()
                batches = self._in_order((yield from self._reading.more()))
            except MappedUnavailable:
                self.close()
                if len(self._ways) == 1:
                    yield from self._look()
                    raise
                self._ways = self._ways[1:]
                continue
            except AcceptedLoss as loss:
                if loss.next_offset is None or loss.next_offset <= self._position:
                    raise
                self.close()
                self._position = passed(loss)
                continue
            except Corrupt as damage:
                damage.topic, damage.partition = self.wanted.topic, self.wanted.partition
                raise
            except (OutOfBounds, InvalidTopic):  # of a topic that is gone, or of what retention took
                yield from self._look()
                raise
            if batches:
                return batches
        self.close()
        return []

    def check(self, batch: Batch) -> None:
        """Verify the requested columns, if that is wanted. Raises BadChecksum. Needs no lock."""
        if self.wanted.verify:
            verify(batch, self.wanted.partition, self.wanted.topic, self._checked)

    def close(self) -> None:
        """Release everything; batches handed out stay good. Idempotent."""
        if self._reading is not None:
            self._reading.close()
            self._reading = None

    def _begin(self) -> Reading:
        """Begin to read where the last way ended. Raises MappedUnavailable, Diverged, OutOfBounds."""
        assert self._partition is not None, "the range was looked for"
        wanted, position, connection = self.wanted, self._position, self._connection
        term = wanted.term if position == wanted.start else -1
        if self._ways[0] == "mapped":
            assert connection.welcome is not None, "the broker has greeted us"
            logs = connection.channel.open_logs(connection.welcome)
            return MappedRange(logs, self._partition, position, wanted.end, term)
        return FetchedRange(connection, self._id, wanted.partition, position, wanted.end, term, self._ids)

    def _in_order(self, batches: list[Batch]) -> list[Batch]:
        """The batches that continue where the last one ended. Raises Corrupt when records between them are missing."""
        kept: list[Batch] = []
        for batch in batches:
            if batch.base_offset > self._position and kept:
                break  # these come first
            if batch.base_offset > self._position:
                raise self._missing(batch.base_offset)
            end = batch.base_offset + batch.record_count
            if end > self._position:
                batch.origin = self._origin
                kept.append(batch)
                self._position = end
        return kept

    def _missing(self, following: int) -> Corrupt:
        wanted = self.wanted
        return Corrupt(
            f"records {self._position} to {following - 1} of partition {wanted.partition} of topic {wanted.topic} are "
            f"missing; good records go on at {following}",
            next_offset=following,
        )

    def _part_of(self, topic: Topic) -> Partition:
        wanted = self.wanted
        if wanted.topic_id and wanted.topic_id != topic.topic:
            raise UnknownTopic(
                f"topic {topic.name} with id {wanted.topic_id.hex()} was deleted; the one of this name now has id "
                f"{topic.topic.hex()}"
            )
        if not 0 <= wanted.partition < len(topic.partitions):
            raise UnknownPartition(
                f"topic {topic.name} has no partition {wanted.partition}: it has {len(topic.partitions)}, "
                "numbered from 0"
            )
        self._id = topic.topic
        partition = topic.partitions[wanted.partition]
        if not partition.first <= self._position <= wanted.end <= partition.end:
            error = OutOfBounds(
                f"records {self._position} to {wanted.end - 1} of partition {wanted.partition} of topic {topic.name} "
                f"are not all there: it has {units.span_text(partition.first, partition.end)}"
            )
            error.offset = partition.first if self._position < partition.first else partition.end
            raise error
        return partition
