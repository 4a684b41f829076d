"""Resolves options to positions: where a new query begins, where a batch ends.

Contract: every partition that is read gets a position, or InvalidOffsets says which one has none and why. A time finds
the first record appended then or later, which `times` looks up. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from ..clients.descriptions import End
from .errors import InvalidOffsets
from .offsets import PartitionKey, Position, Positions, SourceOffsets
from .planning import PlannedTopic, end_of
from .source_options import EARLIEST, EARLIEST_OFFSET, LATEST, LATEST_OFFSET, ByPartition, SourceOptions

Times = Callable[[PlannedTopic, int], Mapping[int, Position]]
"""Of a topic: by partition, the first record at a time in milliseconds or later, the end where there is none."""


def starting(options: SourceOptions, default: str, topics: Sequence[PlannedTopic], times: Times) -> SourceOffsets:
    """The offsets where a new query begins. Raises InvalidOffsets."""
    ends = end_of(topics)
    at = _times_of(options.starting_timestamp, options.starting_times, ends, "startingOffsetsByTimestamp")
    if at is None:
        return by_topic(topics, _positions(options.starting_offsets or default, ends, "startingOffsets"))
    timely = _timely(topics, at, times)
    return by_topic(topics, {place: _since(place, timely[place], end, at, options) for place, end in ends.items()})


def ending(options: SourceOptions, topics: Sequence[PlannedTopic], times: Times) -> SourceOffsets:
    """The offsets where a batch ends. Raises InvalidOffsets."""
    ends = end_of(topics)
    at = _times_of(options.ending_timestamp, options.ending_times, ends, "endingOffsetsByTimestamp")
    if at is None:
        return by_topic(topics, _positions(options.ending_offsets or LATEST, ends, "endingOffsets"))
    timely = _timely(topics, at, times)
    return by_topic(topics, {place: min(timely[place], latest(end)) for place, end in ends.items()})


def _timely(
    topics: Sequence[PlannedTopic], at: Mapping[PartitionKey, int], times: Times
) -> dict[PartitionKey, Position]:
    """The first record at each place's time or later; each time is looked up once for a topic."""
    found: dict[PartitionKey, Position] = {}
    for topic in topics:
        own = {number: at[PartitionKey(topic.name, number)] for number in topic.ends}
        looked_up = {millis: times(topic, millis) for millis in set(own.values())}
        found |= {PartitionKey(topic.name, number): looked_up[millis][number] for number, millis in own.items()}
    return found


def by_topic(topics: Sequence[PlannedTopic], found: Mapping[PartitionKey, Position]) -> SourceOffsets:
    """Positions by topic and partition."""
    return SourceOffsets(
        {
            topic.name: Positions(
                topic.id, {number: found[PartitionKey(topic.name, number)] for number in sorted(topic.ends)}
            )
            for topic in topics
        }
    )


def latest(end: End) -> Position:
    """The end of a partition."""
    return Position(end.end, end.term)


def _times_of(
    everywhere: int | None, by_partition: ByPartition | None, ends: Mapping[PartitionKey, End], name: str
) -> dict[PartitionKey, int] | None:
    """The time of each place; None when no time was given. One for all of them comes before those by partition."""
    if everywhere is not None:
        return dict.fromkeys(ends, everywhere)
    return None if by_partition is None else _matched(by_partition, ends, name)


def _matched(given: ByPartition, ends: Mapping[PartitionKey, End], name: str) -> dict[PartitionKey, int]:
    """A number for each place, no more and no less. Raises InvalidOffsets."""
    found = {PartitionKey(topic, partition): number for topic, of in given.items() for partition, number in of.items()}
    if unknown := sorted(found.keys() - ends.keys()):
        read = ", ".join(map(str, sorted(ends))) or "nothing"
        raise InvalidOffsets(f"{name} names {unknown[0]}, which is not read; read are: {read}")
    if missing := sorted(ends.keys() - found.keys()):
        raise InvalidOffsets(f"{name} leaves out {missing[0]}: every partition that is read has to stand there")
    return found


def _positions(given: str | ByPartition, ends: Mapping[PartitionKey, End], name: str) -> dict[PartitionKey, Position]:
    if isinstance(given, str):
        given_offset = {EARLIEST: EARLIEST_OFFSET, LATEST: LATEST_OFFSET}[given]
        return {place: _position(place, given_offset, end, name) for place, end in ends.items()}
    return {place: _position(place, offset, ends[place], name) for place, offset in _matched(given, ends, name).items()}


def _position(place: PartitionKey, offset: int, end: End, name: str) -> Position:
    if offset == EARLIEST_OFFSET:
        return Position(end.first)
    if offset == LATEST_OFFSET:
        return latest(end)
    if offset > end.end:
        raise InvalidOffsets(f"{name} names offset {offset} of {place}, which ends at {end.end}")
    return Position(offset)


def _since(
    place: PartitionKey, found: Position, end: End, at: Mapping[PartitionKey, int], options: SourceOptions
) -> Position:
    if found.offset < end.end:
        return found
    if options.starting_strategy == LATEST:
        return latest(end)
    when = datetime.fromtimestamp(at[place] / 1000, UTC).isoformat()
    raise InvalidOffsets(
        f"nothing was appended to {place} at {when} or later; "
        "option startingOffsetsByTimestampStrategy=latest begins at its end"
    )
