"""Reads places of topics for doors: batches of a range, and where an append time is.

Contract: every batch is verified. Records that were lost with consent are passed over; other damage raises Corrupt.
What is read lies within the bounds that the place had when it was looked up.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import repeat

from msgspec import structs

from ..clients.reading.readable import readable, verify
from ..storage.accepted import passed
from ..storage.batch import Batch, Kind, batches
from ..storage.errors import AcceptedLoss, OutOfBounds
from ..transport.messages import AskEnds, DeletedRecords, Ends, FindOffsets, Known, ListDeleted, Offsets
from .asking import ask
from .link import BrokerLink, TopicPlace

_TIME_US_MAX = (1 << 63) - 1


class PlaceReading:
    """The batches of a place with records from `start` on and below `end`, asked for `max_bytes` at a time.

    `offset` is where reading goes on: behind what was read, and behind what was lost, also where that goes beyond
    `end`. To be iterated once.
    """

    def __init__(self, link: BrokerLink, place: TopicPlace, start: int, end: int, max_bytes: int) -> None:
        self.offset = max(start, place.first)
        self._link = link
        self._place = place
        self._end = end
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[Batch]:
        place = self._place
        while self.offset < self._end:
            try:
                payload, answer = await self._link.fetch(place, self.offset, self._max_bytes)
            except AcceptedLoss as loss:
                self.offset = passed(loss)
                continue
            found, error = readable(batches(payload), self.offset, answer.next_offset)
            for batch in found:
                verify(batch, place.partition, place.topic.name)
                yield batch
            if error is not None:
                raise error
            if answer.next_offset <= self.offset:
                return
            self.offset = min(answer.next_offset, self._end)


async def deleted(link: BrokerLink, place: TopicPlace, start: int, end: int) -> list[range]:
    """The deleted records of a place from `start` on and below `end`, as stretches in order."""
    found: list[range] = []
    offset = max(start, place.first)
    while offset < end:
        wanted = ListDeleted(0, place.topic.topic, place.partition, offset, end)
        answer, _ = await ask(
            link.driver,
            lambda request, wanted=wanted: structs.replace(wanted, request=request),
            DeletedRecords,
            f"asking for deleted records of topic {place.topic.name}",
        )
        found += [range(first, first + count) for first, count in answer.ranges]
        if answer.next_offset <= offset:
            break
        offset = answer.next_offset
    return found


async def offset_at(link: BrokerLink, place: TopicPlace, time_ms: int, offset: int) -> int:
    """The first offset whose record has an append time and an offset of at least these, compared in this order."""
    if time_ms == 0 or place.end == place.first:
        return place.first
    for neighbour in (offset, offset - 1):
        if place.first <= neighbour < place.end and await append_time_ms(link, place, neighbour) == time_ms:
            return offset
    lowest, highest = await _at_time(link, place, time_ms), await _at_time(link, place, time_ms + 1)
    return min(max(offset, lowest, place.first), highest)


async def append_time_ms(link: BrokerLink, place: TopicPlace, offset: int) -> int:
    """When the record at an offset was appended; -1 if it cannot be read."""
    where, known = (place.topic.topic, place.partition), link.append_times
    found = known.milliseconds(where, offset)
    if found >= 0:
        return found
    with suppress(OutOfBounds):
        async for batch in PlaceReading(link, place, offset, offset + 1, 1):
            if batch.kind != Kind.KEPT:  # others have gaps
                range_ = range(batch.base_offset, batch.end_offset)
                known.note(where, range_, repeat(batch.append_time_us, len(range_)))
            return int(batch.append_times()[batch.first_at(offset)]) // 1000
    return -1


async def _at_time(link: BrokerLink, place: TopicPlace, time_ms: int) -> int:
    time_us = time_ms * 1000
    if time_us > _TIME_US_MAX:
        return place.end
    connection = link.driver.connection
    found = await link.driver.run(
        connection.ask(
            lambda request: FindOffsets(request, place.topic.topic, time_us),
            Offsets,
            deadline=connection.deadline(),
            what=f"finding offsets of topic {place.topic.name}",
        )
    )
    return min(found.offsets[place.partition][0], place.end)


async def news(link: BrokerLink, places: list[TopicPlace], seconds: float) -> None:
    """Wait until some topic of `places` differs from what they say, for so long at most; below 0 counts as 0."""
    connection = link.driver.connection
    topics = {place.topic.topic: place.topic for place in places}
    known = [Known(id_, [partition.end for partition in topic.partitions]) for id_, topic in topics.items()]
    await link.driver.run(
        connection.ask(
            lambda request: AskEnds(request, known, max(round(seconds * 1000), 0)),
            Ends,
            deadline=connection.deadline() + seconds,
            what="waiting for records",
        )
    )
