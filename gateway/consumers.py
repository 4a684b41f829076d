"""Topics as queues with named consumers: a consumer has an offset in each partition, and reads from there.

Idea: a consumer of a door is a consumer group without members, so that the offsets outlive the gateway and every
other client sees them.

Contract: reading does not move an offset; `move` does. A consumer that has none begins at the first record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..broker.errors import UnknownGroup, UnknownPartition
from ..clients.errors import InvalidArgument
from ..storage.batch import Batch
from ..storage.errors import OutOfBounds
from ..storage.record import Record, record_runs
from ..storage.recovery import end_offset_of
from ..transport.messages import Topic
from ..transport.names import is_name
from .link import BrokerLink, TopicPlace
from .reading import PlaceReading, deleted

FETCH_BYTES = 1 << 20
FEW = 100
FEW_BYTES = 64 << 10
"""Of one question to the broker: for many records, and where `FEW` are wanted at most."""

TAKEN_BYTES_MAX = 16 << 20
"""Of batches read for one answer, and one batch more."""


async def positions(link: BrokerLink, topic: Topic, consumer: str) -> dict[int, int]:
    """Where a consumer reads next, by partition: its offset, or the first record that there still is.

    Raises UnknownGroup for a name that no consumer can have.
    """
    try:
        group = await link.client.group(topic.name, consumer)
    except UnknownGroup:
        if not is_name(consumer):
            raise
        return {partition.partition: partition.first for partition in topic.partitions}
    cursors = {partition.partition: partition.cursor for partition in group.partitions}
    return {each.partition: max(cursors.get(each.partition, -1), each.first) for each in topic.partitions}


async def move(link: BrokerLink, topic: Topic, consumer: str, offsets: Mapping[int, int], note: str = "") -> None:
    """Move offsets of a consumer, which makes a new one, and leave a note there.

    Raises InvalidArgument for one behind the end, GroupActive.
    """
    ends = {partition.partition: partition.end for partition in topic.partitions}
    for partition, offset in offsets.items():
        if partition in ends and offset > ends[partition]:
            raise InvalidArgument(f"offset {offset} is behind the end of the topic, which is {ends[partition]}")
    await link.client.commit_group(topic.name, consumer, offsets, note=note, id=topic.topic.hex())


def start(topic: Topic, partition: int, offset: int | None) -> int:
    """Where to read a partition from: `offset`, or the first record. Raises UnknownPartition, OutOfBounds."""
    if partition >= len(topic.partitions):
        raise UnknownPartition(f"topic {topic.name} has {len(topic.partitions)} partitions, numbered from 0")
    place = TopicPlace(topic, partition)
    if offset is not None and not place.first <= offset <= place.end:
        bounds = f"offsets from {place.first} to {place.end}"
        raise OutOfBounds(f"partition {partition} of topic {topic.name} has {bounds}, not {offset}")
    return place.first if offset is None else offset


class BatchPart(NamedTuple):
    """The records of a batch from offset `start` on and below `end`, but for those that were deleted."""

    partition: int
    batch: Batch
    start: int
    end: int
    hidden: Sequence[range] = ()

    def records(self) -> list[Record]:
        """As records. Raises InvalidBatch."""
        runs = record_runs(self.batch, self.start, self.partition)
        found = [record for run in runs for record in run if record.offset < self.end]
        return [record for record in found if self.shows(record.offset)] if self.hidden else found

    def shows(self, offset: int) -> bool:
        """Whether the record at an offset was not deleted."""
        return not any(offset in gap for gap in self.hidden)

    @property
    def is_empty(self) -> bool:
        """Whether all of its records were deleted."""
        lowest, highest = max(self.start, self.batch.base_offset), min(self.end, end_offset_of(self.batch)) - 1
        return any(lowest in gap and highest in gap for gap in self.hidden)


async def take(
    link: BrokerLink, topic: Topic, starts: Mapping[int, int], max_records: int
) -> tuple[list[BatchPart], dict[int, int]]:
    """Records from `starts` on, or from the first that there are, and the offsets behind them.

    Partitions with more left come first, so that none is left behind for good.
    """
    found: list[BatchPart] = []
    nexts, left, size = dict(starts), max_records, 0
    most_bytes = FEW_BYTES if max_records <= FEW else FETCH_BYTES
    for place in sorted((TopicPlace(topic, each) for each in starts), key=lambda p: starts[p.partition] - p.end):
        number, start = place.partition, max(starts[place.partition], place.first)
        end = min(place.end, start + left)
        hidden = await deleted(link, place, start, end)
        reading = PlaceReading(link, place, start, end, most_bytes)
        async for batch in reading:
            part = BatchPart(number, batch, start, end, hidden)
            if not part.is_empty:
                found.append(part)
            nexts[number] = max(nexts[number], min(end_offset_of(batch), end))
            size += batch.batch_bytes
            if size > TAKEN_BYTES_MAX:
                return found, nexts
        nexts[number] = max(nexts[number], reading.offset)
        left -= max(nexts[number] - start, 0)
    return found, nexts


async def take_some(
    link: BrokerLink, topic: Topic, starts: Mapping[int, int], max_records: int
) -> tuple[list[BatchPart], dict[int, int]]:
    """As `take`, but goes on where all records of a stretch were deleted or lost: none says that there is none."""
    found, nexts = await take(link, topic, starts, max_records)
    while not found and nexts != starts:
        starts = nexts
        found, nexts = await take(link, topic, starts, max_records)
    return found, nexts
