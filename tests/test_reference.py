"""The tables of docs/reference.md, and of other pages, are those of the code: no name missing, no value another."""

from __future__ import annotations

import inspect
import re
from typing import Any, get_args, get_type_hints

import penstock
import penstock.aio
import pytest
from msgspec import structs
from penstock.broker import ServeConfig
from penstock.broker.engine.tables import settings as topics
from penstock.broker.engine.tables.queues import settings as queues
from penstock.broker.engine.tables.queues import status
from penstock.cli import exits
from penstock.clients.queues.descriptions import FINAL, STATES
from penstock.storage.units import seconds, size_bytes
from support.processes import Serving
from support.sources import ROOT

DOCS = ROOT / "docs"
WORDS = {"none": None, "true": True, "false": False, "empty": ""}


def table(heading: str, page: str = "reference.md") -> list[list[str]]:
    """The cells of the first table below a heading, without its own head."""
    (below,) = re.findall(rf"^## {heading}$(.*?)(?=^## |\Z)", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    rows = [line for line in below.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def code(cell: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`\n]+)`", cell)


def number(name: str, text: str) -> float:
    """A value as people write it, in the unit of the setting."""
    if name.endswith("_s") and name != "key_rate_per_s":
        return seconds(text)
    return size_bytes(text) if name.endswith("_bytes") else float(text)


def default(name: str, cell: str) -> Any:
    if code(cell):
        return code(cell)[0]
    return WORDS[cell] if cell in WORDS else number(name, cell)


def allowed(name: str, cell: str) -> Any:
    """Names to choose from, or the range."""
    lowest, separator, highest = cell.partition(" to ")
    return (number(name, lowest), number(name, highest)) if separator else code(cell)


@pytest.mark.parametrize(
    ("heading", "kind", "ranges"),
    [
        ("Settings of topics", topics.TopicSettings, topics.RANGES),
        ("Settings of queues", queues.QueueSettings, queues.RANGES),
    ],
)
def test_settings(heading, kind, ranges):
    hints, rows = get_type_hints(kind), {code(row[0])[0]: row for row in table(heading)}
    assert list(rows) == list(kind.__struct_fields__)
    for field in structs.fields(kind):
        name, (_, written, may_be, _) = field.name, rows[field.name]
        assert default(name, written) == field.default, name
        if name in ranges:
            assert allowed(name, may_be) == ranges[name], name
        elif hints[name] is bool:
            assert sorted(code(may_be)) == ["false", "true"], name
        elif str not in (hints[name], *get_args(hints[name])):
            assert tuple(code(may_be)) == get_args(hints[name]), name


def test_states_of_a_task():
    names = {value for name, value in vars(status).items() if name.isupper() and isinstance(value, str)}
    rows = {code(row[0])[0]: row[1] for row in table("States of a task")}
    assert set(rows) == {STATES.get(name, name) for name in names}
    assert {name for name, final in rows.items() if final == "yes"} == FINAL


def test_states_in_the_help_of_a_job():
    assert [
        row[0] for row in table("States of a task") if code(row[0])[0] not in (penstock.JobStatus.__doc__ or "")
    ] == []


def test_exit_codes():
    rows = {int(row[0]): code(row[2]) for row in table("Exit codes")}
    assert set(rows) == {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
    assert {number: names for number, names in rows.items() if names} == {
        number: sorted(names) for number, names in exits.ERRORS.items()
    }


def test_counters(penstock_client):
    named = {name for row in table("Counters") for name in code(row[0])}
    assert named - {"partitions.unavailable.TOPIC/N"} == set(penstock_client.stats())


def test_counters_of_a_broker_process(tmp_path, penstock_client):
    config = ServeConfig(data=str(tmp_path / "data"), listen=("tcp://127.0.0.1:0",), board_rows=64)
    with Serving(config) as serving, penstock.connect(serving.url) as client:
        named = {name for row in table("Counters of a broker process") for name in code(row[0])}
        assert named == set(client.stats()) - set(penstock_client.stats())


def test_options_of_a_task_function():
    named = [code(row[0])[0] for row in table("Options of a function", "tasks.md")]
    assert sorted(named) == sorted(set(inspect.signature(penstock.Tasks.task).parameters) - {"self", "function"})


@pytest.mark.parametrize(
    ("page", "names"), [("asyncio.md", penstock.aio.__all__), ("tasks.md", penstock.JobStatus.__struct_fields__)]
)
def test_a_page_names_all_there_is(page, names):
    assert set(names) - set(code((DOCS / page).read_text())) == set()
