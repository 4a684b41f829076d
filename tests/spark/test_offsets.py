"""Offsets: what stands in a checkpoint, and where a micro-batch begins."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.spark.errors import InvalidOffsets
from penstock.spark.offsets import NEW, PartitionKey, Position, Positions, SourceOffsets, decode, encode

POSITIONS = st.dictionaries(
    st.integers(0, 1023), st.builds(Position, st.integers(0, 1 << 60), st.integers(-1, 1 << 40)), max_size=4
)
TOPICS = st.dictionaries(st.text(max_size=8), st.builds(Positions, st.just("00" * 16), POSITIONS), max_size=3)


def stored(offsets: SourceOffsets) -> str:
    """As Spark writes them down."""
    return json.dumps(encode(offsets))


@given(TOPICS, TOPICS)
def test_offsets_survive_a_checkpoint(topics, begins):
    offsets = SourceOffsets(topics, begins)
    assert decode(json.loads(stored(offsets))) == offsets
    assert stored(decode(json.loads(stored(offsets)))) == stored(offsets)


def test_the_text_is_a_promise_to_checkpoints():
    positions = Positions("ab" * 16, {10: Position(5, 2), 9: Position(7)})
    offsets = SourceOffsets({"b": positions, "a": Positions("cd" * 16, {0: Position(0, 0)})}, {"b": positions})
    assert stored(offsets) == (
        '{"v": 1, "topics": {"a": {"id": "' + "cd" * 16 + '", "p": {"0": [0, 0]}}, '
        '"b": {"id": "' + "ab" * 16 + '", "p": {"9": [7, -1], "10": [5, 2]}}}, '
        '"from": {"b": {"id": "' + "ab" * 16 + '", "p": {"9": [7, -1], "10": [5, 2]}}}}'
    )


def test_equal_offsets_have_equal_texts():
    one = SourceOffsets({"a": Positions("x", {0: Position(1), 1: Position(2)}), "b": Positions("y", {})})
    other = SourceOffsets({"b": Positions("y", {}), "a": Positions("x", {1: Position(2), 0: Position(1)})})
    assert stored(one) == stored(other)


def test_a_new_query_stands_nowhere():
    assert stored(NEW) == '{"v": 1}'
    assert decode({"v": 1}) == NEW
    assert decode({"v": 1}).new
    assert not decode({"v": 1, "topics": {}}).new


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"flights": {"0": 17}}', "not penstock's"),  # Kafka's
        ('{"v": 1, "topics": {"flights": {"0": 17}}}', "not penstock's"),
        ('{"v": 1, "topics": {"flights": {"id": "a", "p": {"x": [1, 2]}}}}', "not penstock's"),
        ('{"v": 1, "topics": {"flights": {"id": "a", "p": {"0": [1]}}}}', "not penstock's"),
        ("[]", "not penstock's"),
        ('{"v": 2, "topics": {}}', "version 2, this penstock reads 1: upgrade it"),
    ],
)
def test_what_is_not_ours_is_refused(text, says):
    with pytest.raises(InvalidOffsets, match=says):
        decode(json.loads(text))


def test_a_micro_batch_begins_where_the_one_before_ended_unless_its_own_end_says_otherwise():
    start = SourceOffsets({"a": Positions("x", {0: Position(5, 1), 1: Position(6, 1)})})
    end = SourceOffsets(
        {"a": Positions("x", {0: Position(9, 1), 1: Position(9, 1), 2: Position(3, 1)})},
        {"a": Positions("x", {1: Position(8), 2: Position(0)})},
    )
    assert start.begin_of(end, "a", 0) == Position(5, 1)
    assert start.begin_of(end, "a", 1) == Position(8)
    assert start.begin_of(end, "a", 2) == Position(0)
    assert NEW.begin_of(end, "a", 0) is None


def test_a_topic_that_was_made_again_does_not_go_on_where_its_namesake_ended():
    start = SourceOffsets({"a": Positions("x", {0: Position(5, 1)})})
    end = SourceOffsets({"a": Positions("y", {0: Position(9, 1)})}, {"a": Positions("y", {0: Position(2)})})
    assert start.begin_of(end, "a", 0) == Position(2)
    assert start.begin_of(SourceOffsets({"a": Positions("y", {0: Position(9)})}), "a", 0) is None


def test_places_come_in_order():
    offsets = SourceOffsets(
        {"b": Positions("y", {0: Position(1)}), "a": Positions("x", {10: Position(2), 9: Position(3)})}
    )
    assert [(str(place), position.offset) for place, position in offsets.places()] == [
        ("a-9", 3),
        ("a-10", 2),
        ("b-0", 1),
    ]
    assert next(offsets.places())[0] == PartitionKey("a", 9)
