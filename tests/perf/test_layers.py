"""Imports in the lab point one way: benches, load, what is measured, the words of all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.sources import Source, all_sources

BELOW = {
    "lab": [],
    "bare": ["lab"],
    "systems": ["lab"],
    "stores": ["lab"],
    "load": ["lab", "bare", "systems", "stores"],
    "benches": ["lab", "bare", "systems", "stores", "load"],
}


def upward_imports(sources: list[Source]) -> Iterator[str]:
    modules = {source.module for source in sources}
    for source in sources:
        if (part := _part(source.module)) in BELOW:
            for found in source.imports(modules):
                if found.name.startswith("perf") and _part(found.name) not in (part, *BELOW[part]):
                    yield f"{source.place}:{found.line}: {part} must not import {found.name}"


def _part(module: str) -> str:
    """The folder of the lab that it is in."""
    return [*module.split("."), ""][1] if module.startswith("perf.") else ""


def test_no_part_of_the_lab_imports_one_above_it():
    assert list(upward_imports(all_sources())) == []


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("perf/lab/rows.py", "from ..systems import every"),
        ("perf/systems/bare.py", "from ..load import loads"),
        ("perf/load/loads.py", "def late():\n    from .. import benches"),
        ("perf/stores/store.py", "from ..systems.system import System"),
    ],
)
def test_an_import_of_what_is_above_is_caught(place, text, tmp_path: Path):
    for name, content in ((place, text), ("perf/benches/__init__.py", ""), ("perf/systems/__init__.py", "")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert list(upward_imports(all_sources(tmp_path)))
