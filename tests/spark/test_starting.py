"""Positions from options: ends, offsets, times, and partitions that are left out."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from penstock.clients.descriptions import End
from penstock.spark.errors import InvalidOffsets
from penstock.spark.offsets import Position, SourceOffsets
from penstock.spark.planning import PlannedTopic
from penstock.spark.source_options import SourceOptions
from penstock.spark.starting import ending, starting

TOPICS = [PlannedTopic("a", "x", {0: End(5, 20, 3), 1: End(0, 0, 0)}), PlannedTopic("b", "y", {0: End(1, 9, 2)})]
APPENDED_MS = {("a", 0): range(0, 2000, 100), ("a", 1): range(0), ("b", 0): range(1000, 1900, 100)}
"""By partition, when each record was appended."""


def times(topic: PlannedTopic, millis: int) -> Mapping[int, Position]:
    """As a broker finds them."""
    found = {}
    for number, end in topic.ends.items():
        appended = APPENDED_MS[topic.name, number]
        offset = next((offset for offset in range(end.first, end.end) if appended[offset] >= millis), end.end)
        found[number] = Position(offset, 2)
    return found


def offsets(found: SourceOffsets) -> dict[str, int]:
    return {str(place): position.offset for place, position in found.places()}


def begin(default: str = "earliest", **options: object) -> dict[str, int]:
    return offsets(starting(SourceOptions(**options), default, TOPICS, times))  # pyright: ignore[reportArgumentType]


def end(**options: object) -> dict[str, int]:
    return offsets(ending(SourceOptions(**options), TOPICS, times))  # pyright: ignore[reportArgumentType]


def test_ends_have_words():
    assert begin() == begin(starting_offsets="earliest") == {"a-0": 5, "a-1": 0, "b-0": 1}
    assert begin("latest") == begin(starting_offsets="latest") == end() == {"a-0": 20, "a-1": 0, "b-0": 9}


def test_the_end_is_a_position_with_its_term():
    found = starting(SourceOptions(starting_offsets="latest"), "earliest", TOPICS, times)
    assert found.topics["a"].partitions == {0: Position(20, 3), 1: Position(0, 0)}
    assert found.topics["a"].id == "x"


def test_offsets_and_ends_stand_side_by_side():
    given = {"a": {0: 7, 1: -2}, "b": {0: -1}}
    assert begin(starting_offsets=given) == {"a-0": 7, "a-1": 0, "b-0": 9}
    assert end(ending_offsets=given) == {"a-0": 7, "a-1": 0, "b-0": 9}


def test_every_partition_has_to_stand_there():
    with pytest.raises(InvalidOffsets, match="startingOffsets leaves out a-1"):
        begin(starting_offsets={"a": {0: 7}, "b": {0: 1}})
    with pytest.raises(InvalidOffsets, match="startingOffsetsByTimestamp leaves out b-0"):
        begin(starting_times={"a": {0: 7, 1: 7}})


def test_no_other_partition_may_stand_there():
    with pytest.raises(InvalidOffsets, match="endingOffsets names a-2, which is not read; read are: a-0, a-1, b-0"):
        end(ending_offsets={"a": {0: 7, 1: 0, 2: 1}, "b": {0: 1}})


def test_an_offset_behind_the_end_is_refused():
    with pytest.raises(InvalidOffsets, match="startingOffsets names offset 21 of a-0, which ends at 20"):
        begin(starting_offsets={"a": {0: 21, 1: -1}, "b": {0: -1}})
    assert begin(starting_offsets={"a": {0: 20, 1: -1}, "b": {0: -1}})["a-0"] == 20


def test_an_offset_that_retention_took_is_left_to_the_plan():
    assert begin(starting_offsets={"a": {0: 2, 1: -1}, "b": {0: -1}})["a-0"] == 2


def test_a_time_goes_before_everything():
    given = {"a": {0: 7, 1: -2}, "b": {0: -1}}
    at = {"a": {0: 1100, 1: 1100}, "b": {0: 1100}}
    found = begin(starting_timestamp=1500, starting_times=at, starting_offsets=given, starting_strategy="latest")
    assert found == {"a-0": 15, "a-1": 0, "b-0": 5}
    found = begin(starting_times=at, starting_offsets=given, starting_strategy="latest")
    assert found == {"a-0": 11, "a-1": 0, "b-0": 1}


def test_times_may_differ_by_partition():
    at = {"a": {0: 1950, 1: 0}, "b": {0: 1400}}
    assert begin(starting_times=at, starting_strategy="latest") == {"a-0": 20, "a-1": 0, "b-0": 4}
    assert end(ending_times=at) == {"a-0": 20, "a-1": 0, "b-0": 4}


def test_a_time_after_the_last_record_is_an_error_unless_the_end_will_do():
    with pytest.raises(InvalidOffsets, match=r"nothing was appended to a-0 at 1970-01-01T00:01:40.*Strategy=latest"):
        begin(starting_timestamp=100_000)
    assert begin(starting_timestamp=100_000, starting_strategy="latest") == {"a-0": 20, "a-1": 0, "b-0": 9}


def test_a_batch_ends_before_the_first_record_of_its_time_or_at_the_end():
    assert end(ending_timestamp=1500) == {"a-0": 15, "a-1": 0, "b-0": 5}
    assert end(ending_timestamp=100_000) == {"a-0": 20, "a-1": 0, "b-0": 9}


def test_records_that_came_since_the_ends_were_asked_are_not_reached():
    late = [topic._replace(ends={number: End(0, 0, 0) for number in topic.ends}) for topic in TOPICS]
    found = ending(
        SourceOptions(ending_timestamp=1500), late, lambda topic, millis: {n: Position(17) for n in topic.ends}
    )
    assert set(offsets(found).values()) == {0}
