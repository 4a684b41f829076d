"""Pages that a reader follows from top to bottom: their files are saved, their commands typed, in their order.

A block of `python` whose first line names a file is saved as it; a block of `sh` that begins with `penstock serve` runs
until the end, and the others are typed one after the other. It gets a free port in place of the page's.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.sources import ROOT
from test_docs import FILE, environment, run, short_directory  # noqa: F401

BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PORT = "8080"
NOT_TYPED = ("python3 -m venv", "pip install")
"""How blocks begin that set up what the tests have."""

SAID = {
    "tutorial.md": (
        "mocha is record", "4 read, 3 to go", "3 read, 0 to go", "one espresso", "we are out of decaf", "cortado",
        "TaskFailed",
    ),
    "frameworks.md": ("1 passed",),
}  # fmt: skip
"""By the commands of each page, among other things."""


NEEDS = {"frameworks.md": ("fastapi", "django")}
"""Libraries that a page is about, and penstock does not need."""


def walked(page: str) -> tuple[dict[str, str], list[str], list[str]]:
    """The files of a page, what serves, and what is typed."""
    files: dict[str, str] = {}
    serves, typed = [], []
    for language, text in BLOCK.findall((ROOT / "docs" / page).read_text()):
        if language == "python":
            name = FILE.match(text)
            assert name, f"{page} has an example that is no file"
            files[name[1]] = text
        elif text.startswith("penstock serve"):
            serves.append(text)
        elif not text.startswith(NOT_TYPED):
            typed.append(text)
    return files, serves, typed


@contextmanager
def serving(commands: list[str], directory: str) -> Iterator[str]:
    """With the broker of a page, if it has one: the port of its HTTP door."""
    if not commands:
        yield PORT
        return
    (command,) = commands
    with subprocess.Popen(
        ["bash", "-c", f"exec {command.replace(PORT, '0')}"],
        cwd=directory,
        env=environment(directory),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as broker:
        try:
            assert broker.stdout is not None
            doors = (line for line in broker.stdout if line.startswith("HTTP"))
            yield next(doors).strip().rpartition(":")[2]
        finally:
            broker.terminate()
        assert broker.wait(60) == 0


@pytest.mark.parametrize("page", SAID)
def test_a_page_can_be_followed_from_top_to_bottom(page: str, short_directory: str):  # noqa: F811
    for library in NEEDS.get(page, ()):
        pytest.importorskip(library, reason=f"{page} is about {library}")
    files, serves, typed = walked(page)
    for name, text in files.items():
        (Path(short_directory) / name).write_text(text)
    with serving(serves, short_directory) as port:
        commands = "\n".join(typed).replace(PORT, port)
        done = run(["bash", "-euo", "pipefail", "-c", commands], short_directory, timeout=120)
    assert done.returncode == 0, done.stdout
    assert [said for said in SAID[page] if said not in done.stdout] == [], done.stdout
    assert page != "frameworks.md" or done.stdout.count("1 passed") == 2


def test_the_commands_about_users_and_grants_run(short_directory: str):  # noqa: F811
    """Those of access.md in their order, with keys that were made; tests/broker/test_curve.py has brokers with keys."""
    shown, public = iter(("PUBLIC_B", "PUBLIC_A", "PUBLIC_C")), dict[str, str]()
    blocks = [text for language, text in BLOCK.findall((ROOT / "docs" / "access.md").read_text()) if language == "sh"]
    lines = [line.partition("  #")[0].strip() for text in blocks for line in text.splitlines()]
    for line in lines:
        if line.startswith("penstock serve") or "--url" in line:
            continue
        for name, key in public.items():
            line = line.replace(name, key)
        done = run(["bash", "-euc", line], short_directory)
        assert done.returncode == 0, f"{line}: {done.stdout}"
        if line.startswith("penstock key generate"):
            public[next(shown)] = done.stdout.split()[-1]
    assert len(public) == 3


def test_the_commands_about_configuration_run(short_directory: str):  # noqa: F811
    _, serves, typed = walked("configuration.md")
    done = run(["bash", "-euo", "pipefail", "-c", "\n".join(typed)], short_directory)
    assert (serves, done.returncode) == ([], 0), done.stdout
    assert "data" in done.stdout
