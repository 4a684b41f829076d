"""Every block of code in README.md and docs/ is run by some test, or is listed here with the reason why not."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import test_docs
import test_walks
from support.sources import ROOT

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

CLUSTER = "three nodes at fixed ports; tests/broker/member/test_real_clusters.py starts such, and moves their lead"
MACHINE = "changes the machine, or needs a runtime of containers: docs/deploying.md says what was tried"
NPM = "a part of a program; clients/typescript/test/ has whole ones, tests/gateway/test_typescript.py runs them"
NOT_RUN = {
    ("celery.md", "py", 0): "two settings of an application; tests/adapters/celery/ has whole ones",
    ("cluster.md", "sh", 0): CLUSTER,
    ("cluster.md", "sh", 1): CLUSTER,
    ("cluster.md", "sh", 2): "the main job on three nodes takes minutes; tests/face/demo/test_nodes.py has its nodes",
    ("deploying.md", "sh", 0): MACHINE,
    (
        "dramatiq.md",
        "py",
        0,
    ): "the socket of an installed broker; tests/adapters/test_dramatiq.py has workers",
    ("deploying.md", "sh", 1): MACHINE,
    ("service.md", "sh", 0): "listens on all interfaces with keys in /etc; tests/broker/test_curve.py serves with keys",
    ("tasks.md", "py", 0): "stands on a database of its reader; tests/clients/tasks/test_middleware.py has whole ones",
    ("typescript.md", "ts", 0): NPM,
    ("typescript.md", "ts", 1): NPM,
    ("typescript.md", "ts", 2): NPM,
}
TYPED = {*((("README.md", "sh", number)) for number in (0, 1, 3)), ("README.md", "python", 1)}
"""By test_docs.py."""
CHECKED = {("seeing.md", "yaml", 0), ("seeing.md", "yaml", 1)}
"""Below."""


def snippets() -> Iterator[tuple[str, str, int, str]]:
    """Page, language, number among those of its language, and text."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        seen: dict[str, int] = {}
        for language, text in FENCE.findall(page.read_text()):
            number = seen.setdefault(language, 0)
            seen[language] += 1
            yield page.name, language, number, text


def by_commands() -> set[tuple[str, str, int]]:
    """Those that test_commands.py types."""
    source = (ROOT / "tests" / "test_commands.py").read_text()
    calls = re.findall(r'commands\("([\w.]+)", ([\d, ]+)\)', source)
    return {(page, "sh", int(number)) for page, numbers in calls for number in numbers.split(",")}


def is_run(page: str, language: str, number: int, text: str) -> bool:
    place = (page, language, number)
    if place in TYPED | CHECKED | by_commands():
        return True
    if language == "python":
        return page in (test_walks.SAID if test_docs.FILE.match(text) else test_docs.SAID)
    return language == "sh" and page in {*test_walks.SAID, "access.md", "configuration.md"}


def test_every_snippet_is_run_or_says_why_not():
    left = {tuple(place) for *place, text in snippets() if not is_run(*place, text)}
    assert left == set(NOT_RUN)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool comes with Prometheus, which is not installed")
def test_the_settings_of_prometheus_are_ones(tmp_path: Path):
    (tmp_path / "prometheus.token").touch()
    for text in [text for page, language, number, text in snippets() if (page, language, number) in CHECKED]:
        (tmp_path / "prometheus.yml").write_text(text)
        command = ["promtool", "check", "config", str(tmp_path / "prometheus.yml")]
        found = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert found.returncode == 0, found.stderr
