"""`python -m penstock.gateway`: how the supervisor of a broker starts a gateway.

--config=JSON --parent=PID --ready=FD      only a supervisor calls this

Contract: says a line of JSON on the descriptor: the ready event, or {"event": "failed", "code": ..., "message": ...}
when it cannot serve, or cannot go on. Ends with its parent.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from ..broker.system import die_with_parent
from ..storage.errors import Error
from .config import GatewayConfig
from .process import run


def main() -> int:
    """Run the gateway. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m penstock.gateway")
    parser.add_argument("--config", required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--ready", type=int, required=True)
    options = parser.parse_args()

    def say(event: dict[str, Any]) -> None:
        os.write(options.ready, json.dumps(event).encode() + b"\n")

    if not die_with_parent(options.parent):
        return 1
    try:
        run(GatewayConfig.from_json(options.config), say)
    except Error as error:
        say({"event": "failed", "code": error.code, "message": error.message})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
