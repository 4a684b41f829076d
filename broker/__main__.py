"""`python -m penstock.broker`: how the supervisor starts its children, and a bare server without the CLI.

--data DIR [--listen URL]... [--insecure]    supervise a broker and a keeper; the ready event on standard output
--role broker|keeper ...                     one child; only a supervisor calls this
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from ..storage.errors import Error
from .config import ServeConfig
from .diagnostics import begin
from .log_levels import listen


def main(arguments: list[str] | None = None) -> int:
    """Run one role. Returns the exit code."""
    options = _parser().parse_args(arguments)
    if options.role == "supervisor":
        return _serve(options)
    config = ServeConfig.from_json(options.config)
    begin(options.role, config.log)
    listen()
    ends = {"link": options.link, "doorbell": options.doorbell, "bell_back": options.bell_back}
    if options.role == "keeper":
        from .keeper import process as keeper_process

        return keeper_process.main(config, parent_pid=options.parent, **ends)
    from . import broker_process

    return broker_process.main(config, control_fd=options.control, parent_pid=options.parent, **ends)


def _serve(options: argparse.Namespace) -> int:
    from .supervisor import Supervisor

    try:
        config = ServeConfig.from_json(options.config) if options.config else _config(options)
        begin("supervisor", config.log)
        return Supervisor(config).run(lambda event: print(json.dumps(event), flush=True))
    except Error as error:
        print(f"penstock: {error.message}", file=sys.stderr)
        return 1


def _config(options: argparse.Namespace) -> ServeConfig:
    return ServeConfig(data=os.path.abspath(options.data), listen=tuple(options.listen), insecure=options.insecure)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m penstock.broker")
    parser.add_argument("--data", default=".")
    parser.add_argument("--listen", action="append", default=[])
    parser.add_argument("--insecure", action="store_true")
    parser.add_argument("--role", choices=["supervisor", "broker", "keeper"], default="supervisor")
    parser.add_argument("--config", default="")
    for name in ("parent", "control", "link", "doorbell", "bell-back"):
        parser.add_argument(f"--{name}", type=int, default=-1)
    return parser


if __name__ == "__main__":
    sys.exit(main())
