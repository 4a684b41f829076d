"""A batch is part of an archive once, whatever happened before it was: death at every step, in every format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from penstock.spark.pipelines.archive import Batches
from penstock.spark.pipelines.identity import PipelineIdentity
from penstock.spark.pipelines.tables import FORMATS, TableFormat, open_table
from support.archives import Died, Frame, dying_after, records, values_in

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
    for number, table in [(0, first), (0, first), (1, second), (1, second), (0, first)]:
        batches(form, tmp_path).take(Frame(table), number)  # type: ignore[arg-type]
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
