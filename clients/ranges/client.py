"""The range verbs of a client: ends of whole topics, sizes of parts, and reading them.

Contract: as client.py, of which this is a part: any number of threads may call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ...storage.batch import Batch
from ..arguments.quantities import Duration, Size, Start
from ..connection.delivery import Delivery, range_ways
from ..connection.driver import Driver
from ..descriptions import Committed, TopicEnds
from .iterating import each_batch_of_range
from .known_topics import KnownTopics
from .range import RangeCore, Wanted, column_names
from .verbs import RangeVerbs, topic_id


class RangeClient:
    """The part of `Client` that concerns whole topics and ranges of them."""

    def __init__(self, driver: Driver, delivery: Delivery) -> None:
        self._driver = driver
        self._delivery: Delivery = delivery
        self._range_verbs = RangeVerbs(driver.connection)
        self._known_topics = KnownTopics(driver.connection)

    def ends(
        self, topics: Iterable[str], *, known: Mapping[str, TopicEnds] | None = None, wait: Duration = 0.0
    ) -> dict[str, TopicEnds]:
        """The first and end offsets of all partitions of some topics, in one request.

        Args:
            topics: their names.
            known: what an earlier call said. Then this one is about the topics with the same ids, and one that is gone
                is looked up by its name: it may have another id now.
            wait: at most so long, while nothing differs from `known`: no end, no partition more, no topic gone.

        Raises: UnknownTopic.
        """
        return self._driver.run(self._range_verbs.ends(topics, known, wait))

    def positions(self, topic: str, at: Start, *, id: str | None = None) -> dict[int, tuple[int, int]]:
        """As `Client.offsets`, with the term of the record before: (offset, term) by partition.

        Args:
            topic, at: as of `Client.offsets`.
            id: of the topic; one that was deleted and made again is UnknownTopic.
        """
        return self._driver.run(self._range_verbs.positions(topic, at, id))

    def measure(
        self, topic: str, spans: Iterable[tuple[int, int, int]], piece_bytes: Size, *, id: str | None = None
    ) -> list[list[tuple[int, int]]]:
        """Cut spans of `topic` into pieces: (end, bytes) of each.

        Args:
            spans: (partition, first offset, end) of each.
            piece_bytes: about how large a piece is to be.
            id: of the topic; one that was deleted and made again is UnknownTopic.

        Pieces end where batches do; their bytes are those of whole batches as stored, by what the indexes say.
        """
        return self._driver.run(self._range_verbs.measure(topic, spans, piece_bytes, id))

    def begin_group(
        self, topic: str, group: str, positions: Mapping[int, int], *, id: str | None = None
    ) -> dict[int, tuple[int, int]]:
        """Give `group` on `topic` its first cursors if it has none: the first request decides.

        Args:
            positions: offsets by partition.
            id: of the topic; one that was deleted and made again is UnknownTopic.

        Returns where it stands in all partitions, as (offset, term of the record before it); where it has no cursor,
        that is the first offset. A group has begun when the lowest partition named has a cursor.
        """
        return self._driver.run(self._range_verbs.begin_group(topic, group, positions, id))

    def commit_group(
        self, topic: str, group: str, positions: Mapping[int, int], *, note: str = "", id: str | None = None
    ) -> None:
        """Move cursors of `group` on `topic`; a new group is made.

        Args:
            positions: offsets by partition.
            note: up to 4 KiB that stand beside these cursors until they move again.
            id: of the topic; one that was deleted and made again is UnknownTopic.

        Raises: GroupActive while it has members.
        """
        self._driver.run(self._range_verbs.commit_group(topic, group, positions, note, id))

    def committed(self, topic: str, group: str) -> dict[int, Committed]:
        """The cursors of `group` on `topic` by partition, with their notes; of those that were moved."""
        found = self._driver.run(self._range_verbs.committed(topic, group))
        return {partition: Committed(offset, note) for partition, offset, note in found}

    def range(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        term: int | None = None,
        columns: Sequence[str] | None = None,
        id: str | None = None,
        delivery: Delivery | None = None,
        verify: bool = True,
    ) -> Iterator[Batch]:
        """The batches with records `start` to `end` - 1 of one partition, in order; the outer two may hold more.

        Args:
            topic, partition: which partition.
            term: of the record before `start`; when it has another one by now, that is Diverged.
            columns: what is needed of value, key, headers, timestamp, offset, topic, partition, priority, not_before,
                dedup. Batches may come without any others, and others are not verified. All but the last three are
                columns of `batch.arrow()`, too.
            id: of the topic; one that was deleted and made again is UnknownTopic. With it, all but the first range of a
                topic are begun without asking the broker where they are.
            delivery: as in `connect`: "mapped" where the broker's files can be read, "control" (and "push") over the
                client's connection.
            verify: check every column against its checksum before it is handed out.

        Raises, at once or while it is read: UnknownTopic, OutOfBounds, which says which records there are, Diverged,
        and Corrupt with `next_offset`, where good records go on.
        """
        self._driver.check_open()
        wanted = Wanted(
            topic=topic, topic_id=b"" if id is None else topic_id(id), partition=partition, start=start, end=end,
            term=-1 if term is None else term, columns=column_names(columns), verify=verify,
        )  # fmt: skip
        ways = range_ways(self._driver.connection, delivery or self._delivery, may_map=self._driver.may_map)
        core = RangeCore(self._driver.connection, self._known_topics, wanted, ways)
        self._driver.run(core.found())
        return each_batch_of_range(self._driver, core)
