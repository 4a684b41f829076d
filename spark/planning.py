"""Plans a query: where it begins, how far it goes, and how its partitions are divided into tasks.

Idea: a query has a position in each partition; the broker says where partitions begin and end now. From both come
spans of offsets, and a sentence for each record that should exist and does not, which the caller raises or logs.
Contract: the same arguments give the same plan, in the order of topics, partitions and offsets. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heapreplace
from itertools import pairwise
from typing import NamedTuple

from ..clients.descriptions import End
from .offsets import PartitionKey, Position, Positions, SourceOffsets

FEW_ROWS = 1000
"""Records that one task reads although several partitions have them; however large they are, that is soon done."""


class PlannedTopic(NamedTuple):
    """A topic as the broker has it now: its partitions that are read, by number."""

    name: str
    id: str
    ends: Mapping[int, End]


class PlannedSpan(NamedTuple):
    """Records of one partition of a topic: from `begin` on, below `end`."""

    place: PartitionKey
    id: str
    begin: Position
    end: int

    @property
    def rows(self) -> int:
        """How many records."""
        return self.end - self.begin.offset


class QueryStart(NamedTuple):
    """The start of a micro-batch. `moved`: partitions that do not continue where the previous one ended."""

    positions: dict[PartitionKey, Position]
    moved: set[PartitionKey]
    losses: list[str]


def places(topics: Iterable[PlannedTopic]) -> list[PartitionKey]:
    """Every partition, in order."""
    return [PartitionKey(topic.name, partition) for topic in sorted(topics) for partition in sorted(topic.ends)]


def end_of(topics: Iterable[PlannedTopic]) -> dict[PartitionKey, End]:
    """The ends of every partition."""
    return {PartitionKey(topic.name, partition): end for topic in topics for partition, end in topic.ends.items()}


def beginning(start: SourceOffsets, topics: Sequence[PlannedTopic]) -> QueryStart:
    """The start of a query that stands at `start`, given the present topics. It reads new partitions from the first."""
    found = QueryStart({}, set(), [])
    for name in sorted(start.topics.keys() - {topic.name for topic in topics}):
        found.losses.append(f"topic {name} is gone: it was deleted")
    for topic in sorted(topics):
        known = start.topics.get(topic.name)
        if known is not None and known.id != topic.id:
            found.losses.append(f"topic {topic.name} was deleted and created again")
            known = None
        for partition, end in sorted(topic.ends.items()):
            _begin_one(found, PartitionKey(topic.name, partition), known, end)
    return found


def _begin_one(found: QueryStart, place: PartitionKey, known: Positions | None, end: End) -> None:
    """`known`: where the query stands in the topic, None where the topic is new to it."""
    stands = known.partitions.get(place.partition) if known else None
    position = stands or (Position(0) if known else Position(end.first))
    if position.offset < end.first:
        found.losses.append(_taken(place, position.offset, end.first))
        position = Position(end.first)
    if position.offset > end.end:
        found.losses.append(_cut(place, position.offset, end.end))
        position = Position(end.end, end.term)
    found.positions[place] = position
    if position != stands:
        found.moved.add(place)


def _taken(place: PartitionKey, begin: int, first: int) -> str:
    return f"records {begin} to {first - 1} of {place} are gone: retention took them, the first one there is {first}"


def _cut(place: PartitionKey, offset: int, end: int) -> str:
    return (
        f"{place} ends at offset {end}, and the query has read up to {offset}: what was written last was lost, "
        "as a power cut may do to topics with commit=written"
    )


def share(lags: Mapping[PartitionKey, int], most: int, turn: int) -> dict[PartitionKey, int]:
    """Divide `most` records over partitions by what each has to read, at least one each.

    All of `most` is given where there is so much. With fewer records than partitions some get none: `turn`, which
    rises with what was read, says who comes first.
    """
    waiting = {place: lag for place, lag in sorted(lags.items()) if lag > 0}
    total = sum(waiting.values())
    if total <= most:
        return waiting
    if most < len(waiting):
        order = list(waiting)
        begin = turn % len(order)
        return dict.fromkeys((order[begin:] + order[:begin])[:most], 1)
    shares = {place: max(lag * most // total, 1) for place, lag in waiting.items()}
    left = most - sum(shares.values())
    # Down for those lifted to one, up for those rounded down: the ones with the most to read barely notice.
    for place in sorted(waiting, key=waiting.__getitem__, reverse=True):
        change = max(min(left, waiting[place] - shares[place]), 1 - shares[place])
        shares[place] += change
        left -= change
    return shares


def offsets(topics: Iterable[PlannedTopic], begin: QueryStart, ends: Mapping[PartitionKey, Position]) -> SourceOffsets:
    """The end of a micro-batch, for the checkpoint."""
    found: dict[str, Positions] = {}
    moved: dict[str, Positions] = {}
    for topic in sorted(topics):
        own = {partition: PartitionKey(topic.name, partition) for partition in sorted(topic.ends)}
        found[topic.name] = Positions(topic.id, {partition: ends[place] for partition, place in own.items()})
        gone = {partition: begin.positions[place] for partition, place in own.items() if place in begin.moved}
        if gone:
            moved[topic.name] = Positions(topic.id, gone)
    return SourceOffsets(found, moved)


def spans(
    start: SourceOffsets, end: SourceOffsets, topics: Sequence[PlannedTopic]
) -> tuple[list[PlannedSpan], list[str]]:
    """The spans of the micro-batch from `start` to `end`, and the records lost from them."""
    now = {topic.name: topic for topic in topics}
    found: list[PlannedSpan] = []
    losses: list[str] = []
    for place, position in end.places():
        begin = start.begin_of(end, *place) or Position(0)
        topic = now.get(place.topic)
        if position.offset <= begin.offset:
            continue
        if topic is None or topic.id != end.topics[place.topic].id or place.partition not in topic.ends:
            losses.append(f"records {begin.offset} to {position.offset - 1} of {place} are gone: the topic was deleted")
            continue
        span = clipped(PlannedSpan(place, topic.id, begin, position.offset), topic.ends[place.partition], losses)
        if span.rows > 0:
            found.append(span)
    return found, losses


def clipped(span: PlannedSpan, end: End, losses: list[str]) -> PlannedSpan:
    """The readable part of a span; the rest is added to `losses`."""
    if span.begin.offset < end.first:
        losses.append(_taken(span.place, span.begin.offset, min(end.first, span.end)))
        span = span._replace(begin=Position(min(end.first, span.end)))
    if span.end > end.end:
        losses.append(_cut(span.place, span.end, end.end))
        span = span._replace(end=max(end.end, span.begin.offset))
    return span


def divide(spans: Sequence[PlannedSpan], least: int | None, most_rows: int | None) -> list[PlannedSpan]:
    """Cut spans so that none has more than `most_rows` and there are at least `least`, as evenly as they are long.

    Only the first piece of a span knows the term before it.
    """
    counts = [-(-span.rows // (most_rows or span.rows or 1)) for span in spans]
    _raise_to(counts, [span.rows for span in spans], least or 0)
    return [piece for span, count in zip(spans, counts, strict=True) for piece in _cut_evenly(span, count)]


def together(spans: Sequence[PlannedSpan]) -> list[list[PlannedSpan]]:
    """Spans by the task that reads them: neighbours that have few records together share one.

    A task costs Spark tens of milliseconds of Python, in which one of them reads tens of thousands of records.
    """
    tasks: list[list[PlannedSpan]] = []
    rows = FEW_ROWS
    for span in spans:
        rows += span.rows
        if rows > FEW_ROWS:
            tasks.append([])
            rows = span.rows
        tasks[-1].append(span)
    return tasks


def _raise_to(counts: list[int], rows: list[int], least: int) -> None:
    """One piece more where pieces are longest, until there are enough or all have one record."""
    longest = [(-rows[at] / counts[at], at) for at in range(len(rows)) if counts[at]]
    heapify(longest)
    for _ in range(least - sum(counts)):
        if not longest or longest[0][0] >= -1:
            return
        at = longest[0][1]
        counts[at] += 1
        heapreplace(longest, (-rows[at] / counts[at], at))


def _cut_evenly(span: PlannedSpan, count: int) -> list[PlannedSpan]:
    first = span.begin.offset
    bounds = [first + span.rows * number // count for number in range(count + 1)] if count else []
    pieces = [span._replace(begin=Position(low), end=high) for low, high in pairwise(bounds)]
    if pieces:
        pieces[0] = pieces[0]._replace(begin=span.begin)
    return pieces
