"""Plans: where a query goes on, what is gone, how records are shared and divided."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.clients.descriptions import End
from penstock.spark.offsets import NEW, PartitionKey, Position, Positions, SourceOffsets
from penstock.spark.planning import (
    FEW_ROWS,
    PlannedSpan,
    PlannedTopic,
    beginning,
    clipped,
    divide,
    offsets,
    places,
    share,
    spans,
    together,
)

A0, A1, B0 = PartitionKey("a", 0), PartitionKey("a", 1), PartitionKey("b", 0)


def topic(name: str, *ends: tuple[int, int], id: str = "x", term: int = 3) -> PlannedTopic:
    return PlannedTopic(name, id, {number: End(first, end, term) for number, (first, end) in enumerate(ends)})


def at(*positions: tuple[int, int], name: str = "a", id: str = "x") -> SourceOffsets:
    return SourceOffsets({name: Positions(id, {number: Position(*found) for number, found in enumerate(positions)})})


# -- where a query goes on ----------------------------------------------------------------------------------


def test_a_query_goes_on_where_it_stands():
    found = beginning(at((5, 1), (7, 2)), [topic("a", (0, 9), (7, 7))])
    assert found.positions == {A0: Position(5, 1), A1: Position(7, 2)}
    assert found.moved == set()
    assert found.losses == []


def test_a_new_partition_begins_at_its_first_record():
    found = beginning(at((5, 1)), [topic("a", (0, 9), (0, 4))])
    assert found.positions[A1] == Position(0)
    assert found.moved == {A1}
    assert found.losses == []


def test_records_that_retention_took_from_a_new_partition_are_missed():
    found = beginning(at((5, 1)), [topic("a", (0, 9), (2, 4))])
    assert found.positions[A1] == Position(2)
    assert found.losses == ["records 0 to 1 of a-1 are gone: retention took them, the first one there is 2"]


def test_a_new_topic_begins_at_its_first_record_and_nothing_is_missed():
    found = beginning(at((5, 1)), [topic("a", (0, 9)), topic("b", (2, 4), id="y")])
    assert found.positions[B0] == Position(2)
    assert found.moved == {B0}
    assert found.losses == []


def test_records_that_retention_took_are_missed_and_passed_by():
    found = beginning(at((5, 1)), [topic("a", (8, 9))])
    assert found.positions == {A0: Position(8)}
    assert found.moved == {A0}
    assert found.losses == ["records 5 to 7 of a-0 are gone: retention took them, the first one there is 8"]


def test_a_partition_that_ends_before_the_query_stands_has_lost_its_tail():
    found = beginning(at((12, 3)), [topic("a", (0, 9), term=4)])
    assert found.positions == {A0: Position(9, 4)}
    assert found.moved == {A0}
    assert found.losses[0].startswith("a-0 ends at offset 9, and the query has read up to 12")


def test_a_topic_that_was_made_again_begins_at_its_first_record():
    found = beginning(at((5, 1)), [topic("a", (1, 9), id="new")])
    assert found.positions == {A0: Position(1)}
    assert found.moved == {A0}
    assert found.losses == ["topic a was deleted and created again"]


def test_a_topic_that_is_gone_is_missed():
    found = beginning(at((5, 1)), [topic("b", (0, 1))])
    assert found.losses == ["topic a is gone: it was deleted"]
    assert A0 not in found.positions


def test_losses_come_in_order():
    start = SourceOffsets({name: Positions("x", {0: Position(5)}) for name in "cab"})
    found = beginning(start, [topic("b", (6, 9)), topic("a", (7, 9))])
    assert [loss.split(" are")[0] for loss in found.losses] == [
        "topic c is gone: it was deleted",
        "records 5 to 6 of a-0",
        "records 5 to 5 of b-0",
    ]


# -- what stands in the checkpoint, and what is read -----------------------------------------------------------


def test_the_end_says_where_partitions_begin_that_do_not_go_on():
    topics = [topic("b", (2, 4), id="y"), topic("a", (0, 9), (0, 4))]
    begin = beginning(at((5, 1)), topics)
    ends = {A0: Position(9, 3), A1: Position(4, 3), B0: Position(4, 3)}
    found = offsets(topics, begin, ends)
    assert list(found.topics) == ["a", "b"]
    assert found.topics["a"].partitions == {0: Position(9, 3), 1: Position(4, 3)}
    assert found.begins == {"a": Positions("x", {1: Position(0)}), "b": Positions("y", {0: Position(2)})}


def test_a_repeated_micro_batch_reads_what_it_read_whatever_happened_since():
    topics = [topic("a", (0, 9), (0, 4))]
    begin = beginning(NEW, topics)._replace(moved={A0, A1})
    end = offsets(topics, begin, {A0: Position(6, 3), A1: Position(4, 3)})
    first, none = spans(NEW, end, topics)
    later, none_either = spans(NEW, end, [topic("a", (0, 900), (0, 400), (0, 7))])
    assert [(span.place, span.begin.offset, span.end) for span in first] == [(A0, 0, 6), (A1, 0, 4)]
    assert later == first
    assert none == none_either == []


def test_partitions_without_anything_new_are_left_out():
    found, losses = spans(at((5, 1), (7, 2)), at((5, 1), (9, 2)), [topic("a", (0, 20), (0, 20))])
    assert found == [PlannedSpan(A1, "x", Position(7, 2), 9)]
    assert losses == []


@pytest.mark.parametrize("now", [[], [topic("a", (0, 9), id="other")], [PlannedTopic("a", "x", {})]])
def test_records_of_a_deleted_topic_are_missed(now):
    found, losses = spans(at((5, 1)), at((9, 1)), now)
    assert found == []
    assert losses == ["records 5 to 8 of a-0 are gone: the topic was deleted"]


def test_what_retention_took_or_a_power_cut_is_missed_and_the_rest_is_read():
    found, losses = spans(at((5, 1), (0, 1)), at((9, 1), (9, 1)), [topic("a", (7, 9), (0, 6))])
    assert found == [PlannedSpan(A0, "x", Position(7), 9), PlannedSpan(A1, "x", Position(0, 1), 6)]
    assert losses[0] == "records 5 to 6 of a-0 are gone: retention took them, the first one there is 7"
    assert losses[1].startswith("a-1 ends at offset 6, and the query has read up to 9")


def test_a_span_of_which_nothing_is_left_is_empty():
    losses: list[str] = []
    assert clipped(PlannedSpan(A0, "x", Position(5), 9), End(20, 30, 1), losses).rows == 0
    assert clipped(PlannedSpan(A0, "x", Position(5), 9), End(0, 3, 1), losses).rows == 0
    assert len(losses) == 2


def test_places_come_in_order():
    assert places([topic("b", (0, 1)), topic("a", (0, 1), (0, 1))]) == [A0, A1, B0]


# -- sharing --------------------------------------------------------------------------------------------------


LAGS = st.dictionaries(
    st.builds(PartitionKey, st.sampled_from("abc"), st.integers(0, 3)), st.integers(0, 10_000), min_size=1
)


@given(LAGS, st.integers(1, 20_000), st.integers(0, 1 << 40))
def test_all_of_a_limit_is_given_and_no_more(lags, most, turn):
    found = share(lags, most, turn)
    assert sum(found.values()) == min(most, sum(lags.values()))
    assert all(0 < count <= lags[place] for place, count in found.items())
    waiting = [place for place, lag in lags.items() if lag]
    if most >= len(waiting):
        assert set(found) == set(waiting)


def test_shares_are_as_lags_are():
    assert share({A0: 100, A1: 300, B0: 0}, 40, 0) == {A0: 10, A1: 30}
    assert share({A0: 1, A1: 9_999}, 100, 0) == {A0: 1, A1: 99}


def test_partitions_take_turns_when_there_are_more_than_records():
    lags = {A0: 5, A1: 5, B0: 5}
    taken = [place for turn in range(6) for place in share(lags, 1, turn)]
    assert sorted(taken) == [A0, A0, A1, A1, B0, B0]


# -- dividing -------------------------------------------------------------------------------------------------


SPANS = st.lists(
    st.builds(
        lambda number, begin, rows: PlannedSpan(PartitionKey("a", number), "x", Position(begin, 7), begin + rows),
        st.integers(0, 9),
        st.integers(0, 1 << 40),
        st.integers(1, 5_000),
    ),
    max_size=5,
)


@given(SPANS, st.none() | st.integers(1, 100), st.none() | st.integers(100, 2_000))
def test_pieces_are_the_spans_and_keep_to_the_limits(whole, least, most_rows):
    pieces = divide(whole, least, most_rows)
    assert all(piece.rows > 0 for piece in pieces)
    assert all(piece.rows <= most_rows for piece in pieces if most_rows)
    rows = sum(span.rows for span in whole)
    assert len(pieces) >= min(least or 0, rows)
    assert [offset for piece in pieces for offset in (piece.begin.offset, piece.end)] == sorted_bounds(whole, pieces)


def sorted_bounds(whole: list[PlannedSpan], pieces: list[PlannedSpan]) -> list[int]:
    """Each piece goes on where the last one of its span ended."""
    found: list[int] = []
    left = iter(pieces)
    for span in whole:
        offset = span.begin.offset
        while offset < span.end:
            piece = next(left)
            assert piece.place == span.place
            found += [offset, piece.end]
            offset = piece.end
        assert offset == span.end
    return found


def test_without_options_a_partition_is_one_task():
    whole = [PlannedSpan(A0, "x", Position(5, 2), 100_000), PlannedSpan(A1, "x", Position(0, 1), 1)]
    assert divide(whole, None, None) == whole
    assert divide([], 8, None) == []


def test_longer_spans_get_more_pieces_as_even_as_can_be():
    pieces = divide([PlannedSpan(A0, "x", Position(0, 2), 900), PlannedSpan(A1, "x", Position(0, 1), 100)], 10, None)
    assert [piece.rows for piece in pieces] == [100] * 10


def test_only_the_first_piece_knows_the_term_before_it():
    first, second = divide([PlannedSpan(A0, "x", Position(4, 2), 10)], 2, None)
    assert first == PlannedSpan(A0, "x", Position(4, 2), 7)
    assert second == PlannedSpan(A0, "x", Position(7), 10)


def few(*rows: int) -> list[PlannedSpan]:
    return [PlannedSpan(PartitionKey("a", number), "x", Position(0), count) for number, count in enumerate(rows)]


@pytest.mark.parametrize(
    ("rows", "tasks"),
    [
        ([], []),
        ([5], [1]),
        ([5, 5, 5], [3]),
        ([FEW_ROWS, 1], [1, 1]),
        ([1, FEW_ROWS - 1, 1], [2, 1]),
        ([1, 1_000_000, 1, 1], [1, 1, 2]),
    ],
)
def test_neighbours_with_few_records_share_a_task_and_nothing_is_lost(rows: list[int], tasks: list[int]):
    wanted = few(*rows)
    found = together(wanted)
    assert [len(spans) for spans in found] == tasks
    assert [span for spans in found for span in spans] == wanted
