"""Retention decides on numbers alone: what may go, what holds it back, and what never goes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.storage.retention import RetentionDecision, Rules, SegmentExtent, decide, removable

HOUR = 3_600_000_000


def segments(count: int = 4, records: int = 10, size: int = 1000) -> list[SegmentExtent]:
    """Segments of `records` records and `size` bytes each; segment i ends at i + 1 hours."""
    return [
        SegmentExtent(
            base_seq=1 + 5 * i,
            last_seq=5 * i + 5,
            base_offset=records * i,
            end_offset=records * (i + 1),
            record_bytes=size,
            last_time_us=(i + 1) * HOUR,
        )
        for i in range(count)
    ]


def test_without_rules_everything_stays() -> None:
    assert decide(segments(), Rules(), first_offset=0, now_us=10**18, cursors=[40]) == RetentionDecision(0)


def test_segments_older_than_the_age_go() -> None:
    decision = decide(segments(), Rules(age_us=HOUR), first_offset=0, now_us=3 * HOUR + 1)
    assert decision == RetentionDecision(20, "age")


def test_a_segment_exactly_as_old_as_the_age_stays() -> None:
    assert decide(segments(), Rules(age_us=HOUR), first_offset=0, now_us=2 * HOUR) == RetentionDecision(0)


def test_the_active_segment_never_goes_by_any_rule() -> None:
    rules = Rules(age_us=1, bytes=0, finished=40)
    assert decide(segments(), rules, first_offset=0, now_us=10**18, cursors=[40]).first_offset == 30
    assert decide(segments(1), rules, first_offset=0, now_us=10**18, cursors=[10]) == RetentionDecision(0)
    assert decide([], rules, first_offset=7, now_us=10**18) == RetentionDecision(7)


@pytest.mark.parametrize(("limit", "first"), [(4001, 0), (4000, 0), (3001, 0), (3000, 10), (1000, 30), (0, 30)])
def test_the_oldest_go_while_the_bytes_asked_for_stay(limit: int, first: int) -> None:
    assert decide(segments(), Rules(bytes=limit), first_offset=0, now_us=0).first_offset == first


@pytest.mark.parametrize(("limit", "first"), [(41, 0), (40, 0), (31, 0), (30, 10), (11, 20), (10, 30), (1, 30)])
def test_the_oldest_go_while_the_records_asked_for_stay(limit: int, first: int) -> None:
    rule = "records" if first else ""
    assert decide(segments(), Rules(records=limit), first_offset=0, now_us=0) == RetentionDecision(first, rule)


def test_what_was_finished_and_read_goes() -> None:
    at = {"first_offset": 0, "now_us": 0}
    assert decide(segments(), Rules(finished=29), **at) == RetentionDecision(20, "finished")
    assert decide(segments(), Rules(finished=29), cursors=[19, 40], **at) == RetentionDecision(10, "finished")
    assert decide(segments(), Rules(finished=29), pins=[12], **at) == RetentionDecision(10, "finished", "work")
    assert decide(segments(), Rules(finished=9), **at) == RetentionDecision(0)


def test_age_passes_unread_records_unless_they_are_kept() -> None:
    old = {"first_offset": 0, "now_us": 10**18, "cursors": [15]}
    assert decide(segments(), Rules(age_us=1), **old) == RetentionDecision(30, "age")
    assert decide(segments(), Rules(age_us=1, keep_unread=True), **old) == RetentionDecision(10, "age", "unread")


def test_unfinished_queue_work_pins_whatever_the_rules_say() -> None:
    rules = Rules(age_us=1, bytes=0)
    assert decide(segments(), rules, first_offset=0, now_us=10**18, pins=[29, 12]) == RetentionDecision(
        10, "age", "work"
    )
    assert decide(segments(), rules, first_offset=0, now_us=10**18, pins=[3]) == RetentionDecision(0, "", "work")


def test_the_first_offset_never_moves_back() -> None:
    assert decide(segments(), Rules(bytes=3000), first_offset=20, now_us=0) == RetentionDecision(20)


def test_a_clock_that_ran_backwards_removes_nothing() -> None:
    assert decide(segments(), Rules(age_us=HOUR), first_offset=0, now_us=-HOUR) == RetentionDecision(0)


def test_only_whole_segments_before_the_first_offset_and_under_the_snapshot_are_removed() -> None:
    found = segments()
    assert removable(found, 20, covered_seq=10) == found[:2]
    assert removable(found, 19, covered_seq=10) == found[:1]
    assert removable(found, 20, covered_seq=9) == found[:1]
    assert removable(found, 20, covered_seq=0) == []
    assert removable(found, 10**9, covered_seq=10**9) == found[:3]


def test_a_segment_of_state_alone_goes_with_its_neighbours() -> None:
    state = SegmentExtent(base_seq=6, last_seq=9, base_offset=10, end_offset=10, record_bytes=0, last_time_us=2 * HOUR)
    after = SegmentExtent(
        base_seq=10, last_seq=12, base_offset=10, end_offset=20, record_bytes=9, last_time_us=3 * HOUR
    )
    assert removable([segments()[0], state, after], 10, covered_seq=9) == [segments()[0], state]


@given(
    sizes=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 1000), st.integers(0, 100)), min_size=1, max_size=8),
    age=st.none() | st.integers(0, 300),
    limit=st.none() | st.integers(0, 5000),
    records=st.none() | st.integers(1, 150),
    finished=st.none() | st.integers(0, 150),
    keep_unread=st.booleans(),
    cursors=st.lists(st.integers(0, 150), max_size=3),
    pins=st.lists(st.integers(0, 150), max_size=3),
    now=st.integers(-100, 1000),
)
def test_no_rule_ever_passes_a_pin_a_kept_cursor_or_the_active_segment(
    sizes: list[tuple[int, int, int]],
    age: int | None,
    limit: int | None,
    records: int | None,
    finished: int | None,
    keep_unread: bool,
    cursors: list[int],
    pins: list[int],
    now: int,
) -> None:
    found: list[SegmentExtent] = []
    offset = seq = time = 0
    for records, size, passed in sizes:
        time += passed
        found.append(SegmentExtent(seq + 1, seq + 5, offset, offset + records, size, time))
        offset, seq = offset + records, seq + 5
    rules = Rules(age_us=age, bytes=limit, records=records, finished=finished, keep_unread=keep_unread)
    given = {"age": age, "bytes": limit, "records": records, "finished": finished}
    alone = [name for name, value in given.items() if value is not None]
    first = decide(found, rules, first_offset=0, now_us=now, cursors=cursors, pins=pins).first_offset
    assert first in {segment.base_offset for segment in found}
    gone = removable(found, first, covered_seq=10**6)
    kept = found[len(gone) :]
    assert kept
    assert all(segment.end_offset <= pin for segment in gone for pin in pins)
    if keep_unread or set(alone) <= {"finished"}:
        assert all(segment.end_offset <= cursor for segment in gone for cursor in cursors)
    if alone == ["finished"]:
        assert all(segment.end_offset <= finished for segment in gone)
    if alone == ["age"]:
        assert all(segment.last_time_us < now - age or not segment.end_offset for segment in gone)
    if alone == ["bytes"] and first:
        assert sum(segment.record_bytes for segment in kept) >= limit
    if alone == ["records"] and first:
        assert kept[-1].end_offset - first >= records
