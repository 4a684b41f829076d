"""One word per idea: the name of a class says which one is meant, wherever it is read.

A message of the wire, what a client tells of it, and the row that a table keeps of it are one idea and share its name.
Any other class has a name of its own: a second idea of a name that is taken is named for what it is.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest
from support.sources import Source, shipped

# Where a name means what it means in transport/messages: the wire, what clients return, and the tables of the engine.
SHARED = ("penstock.transport.", "penstock.clients.descriptions", "penstock.clients.queues.descriptions")
SHARED_ENDS = ("messages", ".wire")
OWN_WORLDS = ("penstock.demo", "penstock.cli", "penstock.spark.examples")  # programs, with their own vocabulary


def shares(module: str) -> bool:
    return module.startswith(SHARED) or module.endswith(SHARED_ENDS) or module.startswith(OWN_WORLDS)


def reused_names(sources: Iterable[Source]) -> list[str]:
    """Class names that stand for more than one idea, with the modules that define them."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for source in sources:
        if not shares(source.module):
            for node in source.tree.body:
                if isinstance(node, ast.ClassDef):
                    found[node.name].append(source.module)
    return [f"{name}: {', '.join(modules)}" for name, modules in sorted(found.items()) if len(modules) > 1]


def test_a_class_name_stands_for_one_idea() -> None:
    assert reused_names(shipped()) == []


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({"storage/a.py": "class Held: ...", "broker/b.py": "class Held: ..."}, 1),
        ({"storage/a.py": "class Held: ...", "transport/messages.py": "class Held: ..."}, 0),
        ({"storage/a.py": "class Held: ...", "storage/b.py": "class Kept: ..."}, 0),
    ],
)
def test_a_tree_that_reuses_a_name_is_caught(files: dict[str, str], count: int, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert len(reused_names(shipped(tmp_path))) == count
