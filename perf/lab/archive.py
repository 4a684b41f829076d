"""Results on disk: one JSON file per bench, each with the machine, commit, versions and command it came from.

Idea: a long measurement may be done in parts. Every run gathers in build/perf; with `--write` a completed bench
replaces its own files in the record and leaves the others. A record is a folder with results and the page made of them;
there is one for each kind of machine, and that in perf/ itself is the one that documents cite.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import msgspec

from .measured import Measured

RECORD = Path(__file__).parents[1]
RESULTS, PAGE = "results", "RESULTS.md"
"""In a record."""


def write(directory: Path, measured: Measured) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{measured.bench}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(measured), indent=1) + b"\n")
    return path


def read(path: Path) -> Measured:
    return msgspec.json.decode(path.read_bytes(), type=Measured)


def has(directory: Path, bench: str) -> bool:
    return (directory / f"{bench}.json").exists()


def read_all(directory: Path, benches: Iterable[str]) -> list[Measured]:
    """The results of those benches that have any."""
    return [read(directory / f"{bench}.json") for bench in benches if has(directory, bench)]


def publish(bench: str, source: Path, target: Path) -> None:
    """Copy the JSON of a bench from `source` to `target`; its histogram logs stay behind."""
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy(source / f"{bench}.json", target)
