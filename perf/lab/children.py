"""A process of the lab's own: a module of this tree, run beside the one that measures, with a pipe each way.

Contract: nothing of it is left when the block ends. What has to be put away in good order is the child's to finish
before that; it learns from the end of its standard input that its parent is gone.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]


@contextmanager
def child(module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`python -m module arguments` until the block ends."""
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
