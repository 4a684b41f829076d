"""Pyright in strict mode has nothing to say about the programs that the documents show."""

from __future__ import annotations

import re

from support.sources import ROOT
from support.typed import diagnostics

PAGES = ("README", "docs/queues", "docs/streams", "docs/transactions", "docs/values")
UNKNOWN = ("reportUnknown", "reportMissingTypeStubs")
UNTYPED = re.compile(r"^import (?:duckdb|pyarrow|pyspark)\b", re.MULTILINE)
"""Libraries without types, of which programs cannot know any."""


def programs() -> dict[str, str]:
    """The blocks of pages that are Python, and the examples."""
    found = {path.name: path.read_text() for path in (ROOT / "examples").glob("*.py")}
    for page in PAGES:
        blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / f"{page}.md").read_text(), re.MULTILINE | re.DOTALL)
        found |= {f"{page.replace('/', '_')}_{number}.py": text for number, text in enumerate(blocks)}
    return found


def test_programs_of_the_documents_are_strict(tmp_path):
    shown = programs()
    assert len(shown) > 8
    wrong = [
        f"{name}:{each['range']['start']['line'] + 1}: {each['message']}"
        for each in diagnostics(tmp_path, shown, "strict")
        if (name := each["file"].rpartition("/")[2])
        and not (UNTYPED.search(shown[name]) and each.get("rule", "").startswith(UNKNOWN))
    ]
    assert wrong == []


def test_a_program_that_is_not_strict_is_found(tmp_path):
    (found,) = diagnostics(tmp_path, {"wrong.py": "def untyped(value): ...\n"}, "strict")[:1]
    assert found["severity"] == "error"
