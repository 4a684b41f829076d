"""The documents are true: examples run, links lead somewhere, commands and options exist.

Code blocks marked `python` in README.md and docs/, and `sh` in README.md, are executed as they stand; indented ones are
pictures.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path

import click
import pytest
from penstock.cli.app import penstock as cli
from support.sources import ROOT, walk_files

PAGES = list(walk_files(".md"))
README = ROOT / "README.md"
FILE = re.compile(r"# (\w+\.py)\n")
SAID = {
    "direct.md": "unix://",
    "channel.md": "b'UA 1545' 1",
    "batches.md": "0 True True",
    "arrow.md": "1 record was copied",
    "sql.md": "0  b'UA 1545'",
    "asyncio.md": "b'UA 1545'",
    "README.md": "UA 1545",
    "seeing.md": "b'2 teas'",
    "spool.md": "0 [b'UA 1545', b'AA 1141']",
    "moving.md": "",
    "dataframes.md": "[('ann', 7), ('bob', 5)]",
    "queues.md": "mails-0-2 no address dead-lettered since",
    "encryption.md": "b'3' b'Ann'",
    "log.md": "0 3 [b'UA 1545', b'AA 1141', b'B6 725']",
    "ranges.md": "{0: (0, 0), 1: (1000, 1)}",
    "values.md": "12\n1 b'?'\n[]",
    "streams.md": "[0, 1] {0: 2, 1: 0} 1",
    "tasks.md": "-0-0 pending",
    "testing.md": "4 passed",
    "transactions.md": "[b'12 EUR', b'3 EUR', b'4 EUR']",
}
"""By the example of each page that needs no broker, among other things."""


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def environment(directory: str) -> dict[str, str]:
    """Ours, with the `penstock` beside this Python first on the path, and sockets where no other broker has its own."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "XDG_RUNTIME_DIR": f"{os.path.abspath(directory)}/run"}


def run(command: list[str], directory: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run in a session of its own, and end whatever is left of it."""
    with subprocess.Popen(
        command,
        cwd=directory,
        env=environment(directory),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said = process.communicate(timeout=timeout)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, said)


@pytest.fixture
def short_directory() -> Iterator[str]:
    """A directory whose path leaves room for a socket's name."""
    with tempfile.TemporaryDirectory(prefix="penstock-docs-") as directory:
        yield directory


def tasks() -> str:
    """The module with the task functions."""
    (found,) = [example for example in blocks(README, "python") if "penstock.Tasks()" in example]
    return found


def examples() -> list[tuple[str, str]]:
    """Those that run alone, with the names of their pages. Others are files, which begin with their names."""
    pages = [README, *sorted((ROOT / "docs").glob("*.md"))]
    return [(page.name, each) for page in pages for each in blocks(page, "python") if not FILE.match(each)]


def test_each_page_with_an_example_says_what_it_prints():
    assert {name for name, _ in examples()} == set(SAID)


@pytest.mark.parametrize(("page", "example"), examples())
def test_the_python_examples_run_as_printed(page, example, short_directory):
    if page == "dataframes.md":
        pytest.importorskip("polars", reason="the page is about it, and penstock does not need it")
    if "\ndef test_" in example:
        (Path(short_directory) / "test_example.py").write_text(example)
        command = ["-m", "pytest", "-q", "test_example.py"]
    else:
        command = ["-c", example]
    done = run([sys.executable, *command], short_directory)
    assert done.returncode == 0, done.stdout
    assert SAID[page] in done.stdout


@contextmanager
def serving(directory: str) -> Iterator[None]:
    """The first block of the README serves; inside, the others can be typed."""
    with subprocess.Popen(
        ["bash", "-c", f"exec {blocks(README, 'sh')[0]}"],
        cwd=directory,
        env=environment(directory),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as broker:
        try:
            assert broker.stdout is not None
            assert b"listening" in broker.stdout.readline()
            yield
        finally:
            broker.terminate()
        assert broker.wait(30) == 0


def test_the_quick_start_runs_as_printed(short_directory):
    with serving(short_directory):
        done = run(["bash", "-euc", blocks(README, "sh")[1]], short_directory)
    assert done.returncode == 0, done.stdout
    assert "1545" in done.stdout
    assert "1141" in done.stdout
    assert "report" in done.stdout


def test_the_worker_runs_as_printed(short_directory):
    (Path(short_directory) / "notices.py").write_text(tasks())
    with serving(short_directory):
        done = run(["bash", "-euc", blocks(README, "sh")[3]], short_directory)
    assert done.returncode == 0, done.stdout
    assert "notices-0-0 UA 1545 leaves 12 minutes late" in done.stdout
    assert "completed with a result" in done.stdout
    assert "delayed by its producer until" in done.stdout
    assert "drained: 1 done" in done.stdout


def headings(page: Path) -> set[str]:
    found = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def dead_links(page: Path) -> Iterator[str]:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\[[^\]]+\]\(([^)\s]+)\)", text):
        name, _, anchor = target.partition("#")
        if name.startswith(("http:", "https:")):
            continue
        place = (page.parent / name).resolve() if name else page
        if not place.exists():
            yield f"{page.name}: {target} does not exist"
        elif anchor and anchor not in headings(place):
            yield f"{page.name}: {target} has no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    assert list(dead_links(page)) == []


def test_a_dead_link_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One\n[a](missing.md) [b](#one) [c](#two) [d](https://example.org)\n")
    assert [line.split()[1] for line in dead_links(page)] == ["missing.md", "#two"]


COMMAND = re.compile(r"(?:^|[`|&] ?)penstock ([a-z][^`\n|&]*)", re.MULTILINE)


def commands(text: str) -> Iterator[list[str]]:
    """What a document tells its reader to type, as words, without what a shell takes for itself."""
    for found in COMMAND.findall(text):
        typed = shlex.split(re.sub(r"\$\([^)]*\)", "x", found), comments=True)
        typed = list(takewhile(lambda word: not word.startswith((">", "<")), typed))
        yield [word for word in typed if word != "..." and not word.startswith("$")]


def wrong(words: list[str]) -> str | None:
    """What is wrong with one command line of a document. In a sentence it may lack arguments."""
    command, rest = cli, words
    try:
        while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
            name, rest = ("run", rest) if ":" in rest[0] else (rest[0], rest[1:])  # worker shop:app
            if (found := command.get_command(click.Context(command), name)) is None:
                return f"penstock {' '.join(words)}: no command {name}"
            command = found
        command.make_context("penstock", list(rest))
    except (click.exceptions.Exit, click.exceptions.NoArgsIsHelpError, click.MissingParameter, click.BadOptionUsage):
        return None
    except click.UsageError as error:
        return None if "does not exist" in error.message else f"penstock {' '.join(words)}: {error.message}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_in_the_documents_exist(page):
    assert [problem for words in commands(page.read_text()) if (problem := wrong(words))] == []


@pytest.mark.parametrize(
    "line",
    [
        "frobnicate",
        "topic frobnicate",
        "serve --frobnicate",
        "topic create x --frobnicate",
        "topic create x y",
        "queue set mails sending rate=1/s",
        "topic create x --partitions many",
    ],
)
def test_a_command_that_does_not_exist_is_noticed(line):
    assert wrong(line.split())


def test_make_targets_in_the_documents_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    typed = re.compile(r"(?:`|^    )make ([a-z-]+)", re.MULTILINE)
    named = {name for page in PAGES for name in typed.findall(page.read_text())}
    assert named - targets == set()
    assert {"test", "demo", "bench"} <= named


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md"])
def test_the_first_pages_stay_one_page(page):
    """What grows goes to docs/; a decision is a file of docs/decisions."""
    assert len((ROOT / page).read_text().splitlines()) <= 150


FOLDERS = re.compile(r"(?:\.ci|storage|transport|broker|clients|gateway|spark|penstock|perf|tests|docs|examples)/")


def missing_paths(text: str) -> list[str]:
    """Paths in backticks that are not there; a bare `name.py` stands in the folder of the path before it."""
    missing = []
    for line in text.splitlines():
        folder = ""
        for name in re.findall(r"`([\w./*-]+(?:\.py|\.md|/))`", line):
            if FOLDERS.match(name):
                folder = name if name.endswith("/") else name.rpartition("/")[0] + "/"
            path = name if FOLDERS.match(name) or not folder else folder + name
            if folder and not any(ROOT.glob(path)):
                missing.append(path)
    return missing


def test_the_map_names_files_that_exist():
    assert missing_paths((ROOT / "ARCHITECTURE.md").read_text()) == []


def test_a_file_that_does_not_exist_is_noticed():
    assert missing_paths("| x | `storage/log.py`, `reader.py`, `nope.py`; `broker/gone.py` |") == [
        "storage/nope.py",
        "broker/gone.py",
    ]


FIGURE = re.compile(r"\d[\d.,]* (?:M|k|us)\b")


def figures(text: str) -> set[str]:
    """Figures in tables, as they are written there."""
    return {found for line in text.splitlines() if line.startswith("|") for found in FIGURE.findall(line)}


@pytest.mark.parametrize(("name", "least"), [("comparison.md", 20), ("direct.md", 4)])
def test_tables_of_figures_have_those_of_the_results_alone(name, least):
    results = (ROOT / "perf/RESULTS.md").read_text()
    bare = {f"{number} us" for number in re.findall(r"\| (\d[\d.,]*) (?=\|)", results)}  # tables of times have no units
    page = figures((ROOT / "docs" / name).read_text())
    assert len(page) > least
    assert page - figures(results) - bare == set()
