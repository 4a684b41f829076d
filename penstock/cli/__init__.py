"""The command `penstock`: one module per command or group of commands."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

STOPS_AND_RELOADS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
"""`penstock serve` handles these, from when all that it needs is loaded: those that come earlier, or while the process
ends, wait until then."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and end the process with its exit code."""
    # numpy's linear algebra starts a thread per core when it is imported. Nothing here uses it, every process of
    # penstock would pay for it, and the demo forks, which goes well only without threads.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if (sys.argv[1:] if arguments is None else arguments)[:1] == ["serve"]:
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPS_AND_RELOADS)

    from .app import main as run

    run(arguments)
