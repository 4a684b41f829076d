"""A batch is part of an archive once, whatever happened before it was: death at every step, in every format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from penstock.spark.errors import StaleCheckpoint
from penstock.spark.pipelines.archive import Batches
from penstock.spark.pipelines.identity import PipelineIdentity
from penstock.spark.pipelines.tables import FORMATS, TableFormat, open_table
from penstock.storage.header import EVENT_TIMES
from support.archives import START_US, Died, Frame, dying_after, records, values_in

STRIDE: dict[TableFormat, int] = {"parquet": 1, "delta": 2, "iceberg": 6}
"""Steps between two deaths: their own steps are few, and each life of a table costs."""

WHOSE = PipelineIdentity("archive", {"flights": "aa"}, "t", "0123456789abcdef")


def batches(form: TableFormat, target: Path) -> Batches:
    """What a process that begins has."""
    return Batches(target, open_table(form, target, WHOSE), "zstd")


def held(form: TableFormat, target: Path) -> list[bytes]:
    return values_in(open_table(form, target, WHOSE).files())


def values(*tables: Any) -> list[bytes]:
    return sorted(value for table in tables for value in table["value"].to_pylist())


@pytest.fixture(params=FORMATS)
def form(request) -> TableFormat:
    return request.param


def test_a_batch_that_comes_again_is_there_once(form, tmp_path):
    first, second = records(0, 90), records(90, 40)
    for number, table in [(0, first), (0, first), (1, second), (1, second)]:
        batches(form, tmp_path).take(Frame(table), number)  # type: ignore[arg-type]
    assert held(form, tmp_path) == values(first, second)


def test_a_batch_from_before_the_last_is_refused(form, tmp_path):
    """Spark repeats none but the last: an older checkpoint gives its number to records that are not in the archive."""
    first, second = records(0, 90), records(90, 40)
    for number, table in enumerate((first, second)):
        batches(form, tmp_path).take(Frame(table), number)  # type: ignore[arg-type]
    with pytest.raises(StaleCheckpoint, match=f"batch 0 comes after batch 1 went into {tmp_path}: the checkpoint is"):
        batches(form, tmp_path).take(Frame(first), 0)  # type: ignore[arg-type]
    assert held(form, tmp_path) == values(first, second)


def test_a_batch_that_comes_again_cut_otherwise_is_there_once(form, tmp_path):
    table = records(0, 90)
    batches(form, tmp_path).take(Frame(table, 7), 0)  # type: ignore[arg-type]
    batches(form, tmp_path).take(Frame(table, 1000), 0)  # type: ignore[arg-type]
    assert held(form, tmp_path) == values(table)


def test_an_empty_batch_is_no_file(form, tmp_path):
    empty = records(0, 0)
    batches(form, tmp_path).take(Frame(empty), 0)  # type: ignore[arg-type]
    assert held(form, tmp_path) == []


def test_death_at_every_step_neither_loses_nor_repeats(form, tmp_path):
    before, table, later = records(0, 30), records(30, 70), records(100, 30)
    steps, died = 0, True
    while died:
        target = tmp_path / str(steps)
        batches(form, target).take(Frame(before), 0)  # type: ignore[arg-type]
        taking = batches(form, target)
        try:
            with dying_after(steps):
                taking.take(Frame(table), 1)  # type: ignore[arg-type]
            died = False
        except Died:
            there = held(form, target)
            assert len(there) == len(set(there))  # a reader in between sees no record twice
        batches(form, target).take(Frame(table), 1)  # type: ignore[arg-type]
        batches(form, target).take(Frame(later), 2)  # type: ignore[arg-type]
        assert held(form, target) == values(before, table, later)
        assert [path.name for path in target.rglob("*.parquet") if "staging" in path.parts] == []
        steps += STRIDE[form]
    assert steps > 10


def test_what_was_decided_is_not_written_again(form, tmp_path):
    table = records(0, 30)
    batches(form, tmp_path).take(Frame(table), 0)  # type: ignore[arg-type]
    files = {path: path.stat().st_ino for path in open_table(form, tmp_path, WHOSE).files()}
    batches(form, tmp_path).take(Frame(records(500, 30)), 0)  # type: ignore[arg-type]
    assert {path: path.stat().st_ino for path in open_table(form, tmp_path, WHOSE).files()} == files


def test_the_first_and_the_last_time_that_a_record_may_have_are_archived(form, tmp_path):
    tables = [records(1, 1, step_us=time_us - START_US) for time_us in EVENT_TIMES]
    for number, table in enumerate(tables):
        batches(form, tmp_path).take(Frame(table), number)  # type: ignore[arg-type]
    assert held(form, tmp_path) == values(*tables)
    days = {path.parent.parent.name for path in open_table(form, tmp_path, WHOSE).files()}
    assert days == {"date=0001-01-01", "date=9999-12-31"}


def test_a_delta_table_has_its_first_and_last_day_where_readers_look(tmp_path):
    deltalake = pytest.importorskip("deltalake", reason="needs the extra penstock[delta]")
    for number, time_us in enumerate(EVENT_TIMES):
        table = records(1, 1, step_us=time_us - START_US)
        batches("delta", tmp_path).take(Frame(table), number)  # type: ignore[arg-type]
    found = deltalake.DeltaTable(str(tmp_path)).get_add_actions(flatten=True)
    names = ("partition.date", "min.timestamp", "max.timestamp")
    rows = {tuple(map(str, row)) for row in zip(*(pa.table(found)[name].to_pylist() for name in names), strict=True)}
    first, last = "0001-01-01 00:00:00", "9999-12-31 23:59:59"
    assert {row[0] for row in rows} == {first[:10], last[:10]}
    assert {row[1][:19] for row in rows} == {row[2][:19] for row in rows} == {first, last}
