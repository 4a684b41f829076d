"""FORMAT.md says what the code does: its tables are parsed and held against dtypes, enums and constants."""

from __future__ import annotations

import re
from enum import IntEnum
from pathlib import Path

import numpy as np
import pytest
from penstock.storage import board_row, finals, header, layout, runs, snapshots
from penstock.storage.codecs import RAW_BYTES_MAX, Codec
from support import golden

TEXT = (Path(__file__).parents[2] / "storage" / "FORMAT.md").read_text()

LAYOUTS: dict[str, np.dtype] = {
    "HEADER": header.HEADER,
    "DIRECTORY": header.DIRECTORY,
    "SEGMENT_HEADER": layout.SEGMENT_HEADER,
    "MARK": layout.MARK,
    "INDEX_HEADER": layout.INDEX_HEADER,
    "INDEX_ROW": layout.INDEX_ROW,
    "SNAPSHOT": snapshots.SNAPSHOT,
    "RUN": runs.RUN,
    "FINALS": finals.FINALS,
    "PROMISE": layout.PROMISE,
    "FIRST": layout.FIRST_OFFSET,
    "BOARD_HEADER": board_row.BOARD_HEADER,
    "ROW": board_row.ROW,
    "SLOT": board_row.SLOT,
}
VALUES: dict[str, type[IntEnum]] = {
    "KIND": header.Kind,
    "COLUMN": header.ColumnId,
    "CODEC": Codec,
    "LEVEL": board_row.Level,
    "OUTCOME": finals.Outcome,
}
MAGICS = {
    "HEADER": header.MAGIC,
    "SEGMENT_HEADER": layout.SEGMENT_MAGIC,
    "MARK": layout.MARK_MAGIC,
    "INDEX_HEADER": layout.INDEX_MAGIC,
    "SNAPSHOT": snapshots.MAGIC,
    "RUN": runs.MAGIC,
    "FINALS": finals.MAGIC,
    "PROMISE": layout.PROMISE_MAGIC,
    "FIRST": layout.FIRST_MAGIC,
    "BOARD_HEADER": board_row.MAGIC,
}
VERSIONS = {
    "HEADER": header.VERSION,
    "SEGMENT_HEADER": layout.VERSION,
    "MARK": layout.VERSION,
    "INDEX_HEADER": layout.VERSION,
    "SNAPSHOT": snapshots.VERSION,
    "RUN": runs.VERSION,
    "FINALS": finals.VERSION,
    "PROMISE": layout.VERSION,
    "FIRST": layout.VERSION,
    "BOARD_HEADER": board_row.VERSION,
}


def section(title: str) -> str:
    """The text under a `### ` heading, up to the next heading of any level."""
    found = re.search(rf"^### {title}[^\n]*\n(.*?)(?=^#|\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found, f"FORMAT.md has no section {title!r}"
    return found[1]


def table(title: str) -> list[dict[str, str]]:
    """The rows of the first table under a heading, by column name."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    names, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return [dict(zip(names, row, strict=True)) for row in rows]


def kind_of(dtype: np.dtype) -> str:
    return {"u": "u", "i": "i", "V": "bytes"}[dtype.kind]


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_fields_of_a_layout_are_those_of_its_table(name: str) -> None:
    dtype = LAYOUTS[name]
    assert dtype.fields is not None
    in_code = [(field, place[1], place[0].itemsize, kind_of(place[0])) for field, place in dtype.fields.items()]
    on_page = [(row["field"], int(row["offset"]), int(row["size"]), row["type"]) for row in table(f"Table {name}")]
    assert on_page == in_code
    misplaced = [field for field, offset, size, type_ in in_code if type_ != "bytes" and offset % size]
    assert not misplaced, "every number is aligned"


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_heading_of_a_table_states_its_size(name: str) -> None:
    assert re.search(rf"^### Table {name}, {LAYOUTS[name].itemsize} bytes$", TEXT, re.MULTILINE)


@pytest.mark.parametrize("name", MAGICS)
def test_the_magic_of_a_layout_is_the_one_in_its_table(name: str) -> None:
    (meaning,) = (row["meaning"] for row in table(f"Table {name}") if row["field"] == "magic")
    found = re.fullmatch(r'0x([0-9A-F]+), "(\w+)".*', meaning)
    assert found, meaning
    assert int(found[1], 16) == MAGICS[name]
    assert MAGICS[name].to_bytes(len(found[2]), "little").decode() == found[2]


def test_every_magic_is_another() -> None:
    assert len(set(MAGICS.values())) == len(MAGICS)


@pytest.mark.parametrize("name", VERSIONS)
def test_the_version_of_a_layout_is_the_one_in_its_table(name: str) -> None:
    (meaning,) = (row["meaning"] for row in table(f"Table {name}") if row["field"] == "version")
    assert int(meaning) == VERSIONS[name]


@pytest.mark.parametrize("name", VALUES)
def test_the_values_of_an_enum_are_those_of_its_table(name: str) -> None:
    on_page = {row["name"]: int(row["value"]) for row in table(f"Values {name}")}
    assert on_page == {member.name: member.value for member in VALUES[name]}


def test_the_shapes_of_the_columns_are_those_of_the_code() -> None:
    rows = {header.ColumnId(int(row["value"])): row for row in table("Values COLUMN")}
    assert {id_ for id_, row in rows.items() if row["shape"] == "variable"} == header.VARIABLE
    assert {id_ for id_, row in rows.items() if row["codec allowed"] == "yes"} == header.COMPRESSIBLE
    fixed = {id_: int(row["bytes per value"]) for id_, row in rows.items() if row["shape"] == "fixed"}
    assert fixed == header.ITEM_BYTES


def test_the_tables_name_every_writer_of_the_board_and_no_line_has_two_at_a_time() -> None:
    lines: dict[int, set[str]] = {}
    for row in table("Table ROW"):
        lines.setdefault(int(row["offset"]) // 64, set()).add(row["writer"].replace("who saw it", "keeper"))
    assert lines == {0: {"broker"}, 1: {"keeper"}, 2: {"replica", "broker"}, 3: {"appender"}}


def test_positions_and_limits_in_the_text_are_those_of_the_code() -> None:
    for position, what in [(0, "header"), *((p, f"mark {n}") for n, p in enumerate(layout.MARK_POSITIONS))]:
        assert re.search(rf"^    {position} +{what}, one sector", TEXT, re.MULTILINE)
    assert re.search(rf"^    {layout.DATA_START} +batches", TEXT, re.MULTILINE)
    assert f"{RAW_BYTES_MAX >> 20} MiB" in TEXT
    assert f"at most {header.COLUMNS_MAX}" in TEXT
    assert f"generation * 2^{layout.SEQ_BITS} + seq" in TEXT
    assert layout.SECTOR_BYTES == layout.SEGMENT_HEADER.itemsize == layout.MARK.itemsize == 512


def test_the_file_names_in_the_text_are_those_of_the_code() -> None:
    name = layout.SegmentName(1, 1)
    assert re.fullmatch(r"\d{20}-\d{8}\.segment", name.segment_file)
    assert re.fullmatch(r"\d{20}-\d{8}\.index", name.index_file)
    assert "<base seq, 20 digits>-<generation, 8 digits>.segment" in TEXT
    assert "<base seq, 20 digits>-<generation, 8 digits>.index" in TEXT
    assert re.fullmatch(r"snapshot-\d{20}", snapshots.file_name(1))
    assert "snapshot-<seq, 20 digits>" in TEXT
    assert re.fullmatch(r"run-\d{20}", runs.file_name(1))
    assert "run-<number, 20 digits>" in TEXT
    for constant in (layout.POISON, layout.LOCK, layout.PROMISES, layout.BOARD, layout.NODE, layout.SPARE_PREFIX):
        assert constant in TEXT


def test_the_worked_example_is_what_the_code_makes() -> None:
    shown = "\n".join(line.strip() for line in section("Bytes EXAMPLE").splitlines() if line.startswith("    "))
    made = golden.example()
    assert golden.undump(shown) == made
    assert f"first sequence 20. {len(made)} bytes" in TEXT


def test_a_page_that_drifts_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser sees what is on the page: one wrong digit is one difference."""
    drifted = TEXT.replace("| 88 | 8 | producer_id |", "| 88 | 4 | producer_id |")
    assert drifted != TEXT
    monkeypatch.setitem(globals(), "TEXT", drifted)
    with pytest.raises(AssertionError):
        test_the_fields_of_a_layout_are_those_of_its_table("HEADER")
