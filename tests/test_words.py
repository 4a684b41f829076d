"""One word per idea, and sentences that name the actor.

A message of the wire, what a client tells of it, and the row that a table keeps of it are one idea and share its name.
Any other class has a name of its own: a second idea of a name that is taken is named for what it is.

Sources and pages say which part acts (the broker, a worker, a reader), not that some person does.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest
from support.sources import ROOT, Source, shipped, walk_files

# Where a name means what it means in transport/messages: the wire, what clients return, and the tables of the engine.
SHARED = (
    "penstock.transport.",
    "penstock.clients.descriptions",
    "penstock.clients.queues.descriptions",
    "penstock.tasks",
)
SHARED_ENDS = ("messages", ".wire")
UNNAMED_ACTOR = re.compile(r"\b(?:(?:no|some|any|every)body|who(?:m|ever))\b", re.IGNORECASE)
OWN_WORLDS = ("penstock.demo.", "penstock.cli.", "penstock.spark.examples.")  # programs, with their own vocabulary


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
        ({"storage/a.py": "class Held: ...", "clients/b.py": "class Held: ..."}, 1),
        ({"storage/a.py": "class Held: ...", "transport/messages.py": "class Held: ..."}, 0),
        ({"storage/a.py": "class Held: ...", "storage/b.py": "class Kept: ..."}, 0),
    ],
)
def test_a_tree_that_reuses_a_name_is_caught(files: dict[str, str], count: int, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert len(reused_names(shipped(tmp_path))) == count


def unnamed_actors(root: Path = ROOT) -> list[str]:
    """Lines of Python files and pages with a pronoun where the part that acts should be named."""
    return [
        f"{path.relative_to(root)}:{number}: {found[0]}"
        for path in walk_files(".py", ".md", root=root)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (found := UNNAMED_ACTOR.search(line))
    ]


def test_sources_and_pages_name_the_actor() -> None:
    assert unnamed_actors() == []


@pytest.mark.parametrize(
    ("text", "count"), [("# no" + "body reads it", 1), ("Who" + "ever asks, waits", 1), ("# a reader of a body", 0)]
)
def test_a_line_without_an_actor_is_caught(text: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(f"first\n{text}\n")
    assert len(unnamed_actors(tmp_path)) == count
