"""ORDER.md says what the code does: its tables are parsed and held against dtypes and structs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from penstock.broker.member.pace import TICK_S
from penstock.broker.replica import acked, entries, order_checkpoints
from penstock.broker.replica.checkpoint import Checkpoint

TEXT = (Path(__file__).parents[3] / "broker" / "replica" / "ORDER.md").read_text()
LAYOUTS = {"ENTRY": entries.ENTRY, "FLUSH": entries.FLUSH, "ROW": entries.ROW, "ACKED": acked.ACKED}


def section(title: str) -> str:
    found = re.search(rf"^#+ {title}[^\n]*\n(.*?)(?=^#|\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found, f"ORDER.md has no section {title!r}"
    return found[1]


def rows(title: str) -> list[list[str]]:
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_fields_of_a_layout_are_those_of_its_table(name):
    dtype = LAYOUTS[name]
    kinds = {"u": "u", "i": "i", "V": "bytes"}
    in_code = [
        [str(place[1]), str(place[0].itemsize), field, kinds[place[0].kind]]
        for field, place in (dtype.fields or {}).items()
    ]
    assert [row[:4] for row in rows(f"Table {name}")] == in_code
    assert re.search(rf"^### Table {name}, {dtype.itemsize} bytes$", TEXT, re.MULTILINE)


def test_the_types_of_entries_are_those_of_the_table():
    assert [(int(value), name) for value, name, _ in rows("Table TYPE")] == [
        (int(t), t.name) for t in entries.EntryType
    ]


def test_the_fields_of_a_checkpoint_are_those_of_the_page():
    assert [row[0] for row in rows("3. The checkpoint")] == list(Checkpoint.__struct_fields__)


def test_the_page_states_the_limits_of_inlined_batches():
    assert f"up to {entries.INLINE_BYTES >> 10} KiB" in TEXT
    assert f"{entries.INLINE_TOGETHER >> 10} KiB together" in TEXT


def test_the_page_states_how_long_files_wait_for_a_checkpoint_and_where_the_acknowledged_entry_stands():
    seconds, most = order_checkpoints.WAIT_TICKS * TICK_S, order_checkpoints.WAITING_BYTES >> 20
    assert f"after {seconds:.0f} s, or once they may have {most} MiB" in TEXT
    assert f"at {acked.POSITION}. It is" in TEXT
    assert f"Behind it, at {acked.COMMITTED}, stands" in TEXT
