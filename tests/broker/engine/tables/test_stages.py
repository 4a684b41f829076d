"""The table of stages: what is next, what was staged before, what is missing; and where it stands."""

from __future__ import annotations

import pytest
from penstock.broker.engine.tables.stages import NO_SEQ, Stage, Staged, StageTable
from penstock.broker.errors import SequenceGap, UnknownProducer


def put(table: StageTable, stage: int, first: int, records: int, seq: int, time_us: int = 1) -> None:
    table.staged(stage, first, Staged(records, 100), time_us)
    table.placed(stage, seq)


def test_a_stage_begins_at_its_first_record_and_goes_on_without_gaps():
    table = StageTable()
    assert table.judge(5, 0, 3)
    with pytest.raises(UnknownProducer, match="stage 0x5 is unknown here and goes on at record 1"):
        table.judge(5, 1, 3)
    put(table, 5, 0, 3, 1)
    assert table.judge(5, 3, 1)
    for first, count in ((4, 1), (2, 2), (0, 4)):
        with pytest.raises(SequenceGap, match=f"has 3 records, and {count} came that begin at number {first}"):
            table.judge(5, first, count)
    assert not table.judge(5, 0, 3)
    assert not table.judge(5, 1, 2), "some of it was staged before"


def test_neighbouring_batches_are_one_run():
    table = StageTable()
    for seq, first in ((4, 0), (5, 2), (6, 4), (9, 6)):
        put(table, 5, first, 2, seq, time_us=seq)
    assert table.get(5) == Stage(5, 8, 8, 0, [(4, 3), (9, 1)], 400, 9)


def test_published_batches_leave_the_runs_and_the_last_one_the_table():
    table = StageTable()
    for seq, first in ((4, 0), (5, 2), (9, 4)):
        put(table, 5, first, 2, seq)
    table.published(5, 0, 2)
    assert table.get(5) == Stage(5, 6, 6, 2, [(5, 1), (9, 1)], 300, 1)
    table.published(5, 2, 2)
    assert table.get(5) == Stage(5, 6, 6, 4, [(9, 1)], 300, 1)
    table.published(5, 4, 2)
    assert (5 in table, len(table), table.get(5)) == (False, 0, None)


def test_what_damage_took_is_missing_from_the_records_and_not_from_the_sequence():
    table = StageTable()
    put(table, 5, 0, 2, 1)
    put(table, 5, 7, 2, 3)
    found = table.get(5)
    assert found is not None
    assert (found.next_sequence, found.records, found.runs) == (9, 4, [(1, 1), (3, 1)])


def test_dropping_forgets_and_asks_for_nothing_to_be_there():
    table = StageTable()
    put(table, 5, 0, 2, 1)
    put(table, 6, 0, 2, 2)
    table.dropped([5, 99])
    assert [stage.stage for stage in table] == [6]


def test_the_first_batch_that_is_needed_is_the_lowest_of_all_stages():
    table = StageTable()
    assert table.first_seq == NO_SEQ
    put(table, 5, 0, 2, 3)
    put(table, 6, 0, 2, 4)
    put(table, 5, 2, 2, 8)
    assert (table.first_seq, table.bytes) == (3, 300)
    table.published(5, 0, 2)
    assert table.first_seq == 4
    table.dropped([6])
    assert table.first_seq == 8


def test_what_is_ahead_knows_everything_but_where_batches_stand_and_stands_alone():
    table = StageTable()
    put(table, 5, 0, 2, 3)
    ahead = table.unplaced()
    assert ahead.get(5) == Stage(5, 2, 2, 0, [], 100, 1)
    ahead.staged(5, 2, Staged(1, 50), 9)
    ahead.published(5, 0, 2)
    assert ahead.get(5) == Stage(5, 3, 3, 2, [], 150, 9)
    assert table.get(5) == Stage(5, 2, 2, 0, [(3, 1)], 100, 1)


def test_a_snapshot_has_them_in_a_fixed_order():
    one, other = StageTable(), StageTable()
    for stage in (9, 2, 5):
        put(one, stage, 0, 2, stage)
    for stage in (5, 9, 2):
        put(other, stage, 0, 2, stage)
    assert one.dump() == other.dump()
    assert StageTable.load(one.dump()).by_id == one.by_id
