"""Limits of a micro-batch: options maxOffsetsPerTrigger and maxBytesPerTrigger.

Idea: records are divided by arithmetic. Bytes are asked of the broker, which knows them from its index: first how many
each partition has waiting, then, where that is more than its share, where the share ends.
Contract: at least one record is taken whatever the limit, so that a query makes progress.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..broker.errors import UnknownTopic
from ..clients import Client
from ..storage.errors import Corrupt, OutOfBounds
from .offsets import UNKNOWN_TERM, PartitionKey, Position
from .planning import PlannedTopic, end_of, share
from .source_options import SourceOptions

EVERYTHING = 1 << 62
"""Bytes of a piece that is never full."""

ROOM = 2
"""How many times its share of records a partition is measured for its share of bytes: they differ in size."""

MeasuredSpan = tuple[int, int, int]
"""A partition, the first offset and the end."""


class Limits:
    """See the module."""

    def __init__(self, options: SourceOptions, client: Callable[[], Client]) -> None:
        self._max_rows = options.max_rows
        self._max_bytes = options.max_bytes
        self._client = client

    def ends(self, topics: Sequence[PlannedTopic], begins: Mapping[PartitionKey, Position]) -> dict[PartitionKey, int]:
        """The ends of the micro-batch that begins at `begins`."""
        ends = {place: end.end for place, end in end_of(topics).items()}
        if self._max_rows is not None:
            lags = {place: end - begins[place].offset for place, end in ends.items()}
            turn = sum(position.offset for position in begins.values())
            shares = share(lags, self._max_rows, turn)
            ends = {place: begins[place].offset + shares.get(place, 0) for place in ends}
        if self._max_bytes is not None:
            ends |= self._fitting(topics, begins, ends, self._max_bytes)
        return ends

    def _fitting(
        self,
        topics: Sequence[PlannedTopic],
        begins: Mapping[PartitionKey, Position],
        ends: Mapping[PartitionKey, int],
        most: int,
    ) -> dict[PartitionKey, int]:
        """Ends that keep the micro-batch within `most` bytes, by partition; empty if it is within already."""
        sizes = self._sizes(topics, begins, ends)
        total = sum(sizes.values())
        if total <= most:
            return {}
        by_name = {topic.name: topic for topic in topics}
        found = {}
        for place, size in sizes.items():
            begin, end = begins[place].offset, ends[place]
            near = begin + max((end - begin) * most * ROOM // total, 1)
            span = (place.partition, begin, min(near, end))
            found[place] = self._full(by_name[place.topic], span, max(size * most // total, 1))
        return found

    def _sizes(
        self, topics: Sequence[PlannedTopic], begins: Mapping[PartitionKey, Position], ends: Mapping[PartitionKey, int]
    ) -> dict[PartitionKey, int]:
        """Bytes of what waits, of partitions where something does."""
        found: dict[PartitionKey, int] = {}
        for topic in topics:
            own = [PartitionKey(topic.name, number) for number in sorted(topic.ends)]
            waiting = [place for place in own if ends[place] > begins[place].offset]
            if waiting:
                wanted = [(place.partition, begins[place].offset, ends[place]) for place in waiting]
                pieces = self._measured(topic, wanted, EVERYTHING)
                found |= {place: sum(size for _, size in of) for place, of in zip(waiting, pieces, strict=True)}
        return found

    def _full(self, topic: PlannedTopic, span: MeasuredSpan, most: int) -> int:
        """The end of the first piece of `most` bytes."""
        (pieces,) = self._measured(topic, [span], most)
        return pieces[0][0] if pieces else span[2]

    def _measured(self, topic: PlannedTopic, spans: Sequence[MeasuredSpan], most: int) -> list[list[tuple[int, int]]]:
        """The pieces of spans; none of what went or was damaged meanwhile: planning or reading it says what is lost."""
        try:
            return self._client().measure(topic.name, spans, most, id=topic.id)
        except UnknownTopic:
            return [[] for _ in spans]
        except (OutOfBounds, Corrupt) as error:
            if len(spans) > 1:
                return [pieces for span in spans for pieces in self._measured(topic, [span], most)]
            ((partition, begin, end),) = spans
            left = (partition, error.offset, end)
            return self._measured(topic, [left], most) if begin < error.offset < end else [[]]

    def position(self, topics: Sequence[PlannedTopic], place: PartitionKey, begin: Position, offset: int) -> Position:
        """An offset inside a partition, with the term of the record before it: between two equal ones it is theirs."""
        if offset == begin.offset:
            return begin
        topic = next(topic for topic in topics if topic.name == place.topic)
        if begin.term == topic.ends[place.partition].term:
            return Position(offset, begin.term)
        try:
            before = self._client().range(*place, offset - 1, offset, columns=["timestamp"], id=topic.id)
            return Position(offset, next(batch.term for batch in before))
        except (UnknownTopic, OutOfBounds, Corrupt):  # the task that reads it says what is wrong
            return Position(offset, UNKNOWN_TERM)
