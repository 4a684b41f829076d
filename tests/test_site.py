"""The documentation site: it builds without a warning, every page is in its navigation, and what the code writes about
itself is all there. The description on PyPI has no link that leads nowhere.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from typing import Any

import click
import penstock
import pytest
from penstock import errors
from penstock.cli.app import penstock as cli
from penstock.config import FIELDS
from support.sources import FOLDERS, ROOT

BESIDE = ("decisions/", "deploy/", "examples/", "figures/", "perf/", "spark/", "typescript/")
"""Pages and files that other pages link to; the navigation need not have them."""

sys.path.insert(0, str(ROOT / ".ci/site"))
import links  # noqa: E402
import reference  # noqa: E402


@pytest.fixture(scope="module")
def built() -> str:
    """What `make docs` says, which also leaves the pages in build/."""
    made = subprocess.run([sys.executable, ROOT / ".ci/site"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    return made.stdout


def named(nav: list[dict[str, Any]]) -> Iterator[str]:
    for entry in nav:
        for page in entry.values():
            yield from named(page) if isinstance(page, list) else [page]


def navigation() -> list[str]:
    return list(named(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]))


def test_the_site_builds_without_a_warning(built):
    assert "Build finished" in built
    assert "issue" not in built.replace("No issues", "")


def test_every_page_is_in_the_navigation_once(built):
    pages = {str(path.relative_to(ROOT / "build/pages")) for path in (ROOT / "build/pages").rglob("*.md")}
    wanted = navigation()
    assert len(wanted) == len(set(wanted))
    assert set(wanted) - pages == set()
    assert {page for page in pages - set(wanted) if not page.startswith(BESIDE)} == set()


def test_the_pages_ask_no_other_site_for_anything(built):
    text = (ROOT / "build/site/index.html").read_text()
    assert [found for found in re.findall(r'(?:src|href)="(https?:[^"]+)"', text) if "zensical.org" not in found] == []


def commands(command: click.Command, path: str) -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield path
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        yield from commands(command.get_command(context, name) or command, f"{path} {name}")


def headings(text: str) -> set[str]:
    return set(re.findall(r"^#+ (.*)$", text, re.MULTILINE))


def test_the_reference_has_every_command_setting_name_and_error():
    pages = reference.pages()
    assert set(commands(cli, "penstock")) - headings(pages["reference/command-line.md"]) == set()
    assert re.findall(r"^\| `(\w+)` \|", pages["reference/settings.md"], re.MULTILINE) == list(FIELDS)
    assert re.findall(r"^\| `(\w+)` \|", pages["reference/errors.md"], re.MULTILINE) == sorted(errors.__all__)
    classes = {name for name in penstock.__all__ if name[0].isupper()}
    assert classes - headings(pages["reference/python.md"]) == set()
    assert {"Client.create_topic", "Producer.send", "TaskFunction.send"} <= headings(pages["reference/python.md"])


def test_docstrings_become_markdown():
    text = "Send it.\n\nArgs:\n    value: its bytes,\n        or none.\n    a, b: others.\n\nRaises: TimedOut."
    assert reference.docstring(text) == (
        "Send it.\n\n**Args**\n\n- `value`: its bytes, or none.\n- `a, b`: others.\n\n**Raises**: TimedOut."
    )


def test_links_follow_their_pages(tmp_path):
    for name in ("docs/one.md", "docs/decisions/001-a.md", "storage/FORMAT.md", "deploy/unit"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("# A\n")
    found: list[str] = []
    text = (
        "[a](../storage/FORMAT.md#a) [b](decisions/001-a.md) [c](../deploy/unit) [d](../deploy) [e](#f) [g](http://h)\n"
    )
    code = "```\n[a](b)\n```\n"
    moved = links.moved(text + code, "docs/one.md", tmp_path, found.append)
    assert moved == "[a](inside/format.md#a) [b](decisions/001-a.md) [c](deploy/unit) d [e](#f) [g](http://h)\n" + code
    assert found == ["storage/FORMAT.md", "docs/decisions/001-a.md", "deploy/unit"]
    with pytest.raises(links.DeadLink, match=r"docs/one\.md: gone\.md"):
        links.moved("[a](gone.md)", "docs/one.md", tmp_path, found.append)


def test_the_description_on_pypi_has_no_link_into_the_repository(tmp_path):
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "kombu_penstock.py", "pyspark_penstock.py"):
        shutil.copy(ROOT / name, tmp_path)
    for folder in FOLDERS:
        (tmp_path / folder).symlink_to(ROOT / folder)
    code = "from setuptools.build_meta import prepare_metadata_for_build_wheel as make; make('made')"
    (tmp_path / "made").mkdir()
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, env={**os.environ})
    (metadata,) = (tmp_path / "made").glob("*.dist-info/METADATA")
    text = metadata.read_text()
    assert "Description-Content-Type: text/markdown" in text
    assert "# penstock" in text
    assert re.findall(r"\]\((?!https?:)[^)]*\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL)) == []
