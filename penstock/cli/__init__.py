"""The command `penstock`: one module per command or group of commands."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NoReturn


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and end the process with its exit code."""
    # numpy's linear algebra starts a thread per core when it is imported. Nothing here uses it, every process of
    # penstock would pay for it, and the demo forks, which goes well only without threads.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    from .app import main as run

    run(arguments)
