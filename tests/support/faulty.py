"""A fault in a module, in this process: what imports it from now on gets the faulty one. And which test notices it.

Contract: `break_module` is to be called before the module is imported. The file stays as it is, and no bytecode of the
fault is kept.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from typing import Any, Protocol

from support.sources import ROOT

SECONDS = 120


def break_module(file: str, old: str, new: str) -> None:
    """In `file`, a path below the project, `old` becomes `new`."""
    path, get_code = str(ROOT / file), SourceFileLoader.get_code

    def broken(loader: SourceFileLoader, name: str) -> Any:
        if loader.path != path:
            return get_code(loader, name)
        return compile((ROOT / file).read_text().replace(old, new), path, "exec")

    SourceFileLoader.get_code = broken  # pyright: ignore[reportAttributeAccessIssue]


class Mutant(Protocol):
    """In `file`, `old` becomes `new`, and a test of `tests` fails."""

    @property
    def file(self) -> str: ...
    @property
    def old(self) -> str: ...
    @property
    def new(self) -> str: ...
    @property
    def tests(self) -> str: ...


def verdict(mutant: Mutant) -> str:
    """Which of its tests fails first over a mutant, in a process of its own; `alive` where none does."""
    command = [sys.executable, "-m", "support.faulty", mutant.file, mutant.old, mutant.new, *mutant.tests.split()]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    try:
        run = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return "it never ends"
    failed = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].partition("::")[2].partition(" - ")[0] if failed else "alive"


def _run(file: str, old: str, new: str, tests: list[str]) -> int:
    """Run the tests over the fault, in this process."""
    import pytest

    break_module(file, old, new)
    lives = "not random_lives and not longer_random"
    return pytest.main(["-q", "-x", "--assert=plain", "-p", "no:cacheprovider", "-k", lives, *tests])


if __name__ == "__main__":
    sys.exit(_run(*sys.argv[1:4], tests=sys.argv[4:]))
