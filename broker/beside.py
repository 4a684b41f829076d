"""How a process beside the broker is run by its supervisor: a gateway, an exporter.

--config=JSON --log=JSON --parent=PID --ready=FD [--page=FD]      only a supervisor calls this

Contract: says a line of JSON on the descriptor: the ready event, or {"event": "failed", "code": ..., "message": ...}
when it cannot serve, or cannot go on. Ends with its parent. Must not know what the process does.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from typing import Any

import msgspec

from ..storage.errors import Error
from .diagnostics import DiagnosticOptions, begin
from .log_levels import listen
from .system import die_with_parent

Say = Callable[[dict[str, Any]], None]


def serve_beside(module: str, run: Callable[[str, Say, int], None]) -> int:
    """Run the process `module` of this command line: `run` gets its settings, what says that it serves, and the page
    of memory that it shares with others beside the broker; -1 for none.

    Returns the exit code.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    parser.add_argument("--config", required=True)
    parser.add_argument("--log", required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--ready", type=int, required=True)
    parser.add_argument("--page", type=int, default=-1)
    options = parser.parse_args()

    def say(event: dict[str, Any]) -> None:
        os.write(options.ready, json.dumps(event).encode() + b"\n")

    if not die_with_parent(options.parent):
        return 1
    begin(module.rpartition(".")[2], msgspec.json.decode(options.log, type=DiagnosticOptions))
    listen()
    try:
        run(options.config, say, options.page)
    except Error as error:
        say({"event": "failed", "code": error.code, "message": error.message})
        return 1
    return 0
