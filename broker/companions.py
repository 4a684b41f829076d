"""Starts a process beside the broker, a gateway or an exporter, and hears whether it serves.

Idea: to the broker's processes such a companion is a module with settings as text. It gets the broker's address, and
says, in lines of JSON on a pipe, where it listens or why it cannot (beside.py). Started again, it gets the addresses
that it was bound to.

All of them may share a page of memory, the gateway to count in and the exporter to read.

Contract: as Child, whose process it is. The lists in its ready event are the addresses where it listens, and are
settings of the same names. Must not know: what a companion does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from .children import Child
from .control import StartFailed
from .diagnostics import DiagnosticOptions

MODULES = {"gateway": "penstock.gateway", "exporter": "penstock.exporter"}
"""By role."""

_LINE_BYTES = 1 << 16


class Companion:
    """One running companion. `bound` is where it listens, empty until it serves; `failed` why it cannot."""

    def __init__(
        self, role: str, settings: str, url: str, bound: Mapping[str, list[str]], log: DiagnosticOptions, page: int
    ) -> None:
        """`bound`: where those before it listened, of any role; `page`: the descriptor of the page, -1 for none.

        Raises OSError where the system can start none now.
        """
        self.url = url
        self.bound: dict[str, list[str]] = {}
        self.failed: StartFailed | None = None
        known: dict[str, Any] = msgspec.json.decode(settings)
        given = {**known, "url": url, **{name: places for name, places in bound.items() if name in known}}
        written = {"config": given, "log": log, "parent": os.getpid()}
        command = [MODULES[role], *(f"--{name}={msgspec.json.encode(each).decode()}" for name, each in written.items())]
        self.said_fd, theirs = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        shared = {} if page < 0 else {"page": os.dup(page)}
        try:
            self.process = Child(role, command, {"ready": theirs, **shared})
        except OSError:
            self._close_pipe()
            raise
        self.process.log_level = log.level

    def hear(self) -> None:
        """Take what it says; the pipe is closed when there is nothing to come."""
        said = os.read(self.said_fd, _LINE_BYTES)
        if not said:
            self._close_pipe()
            return
        for line in said.splitlines():
            event: dict[str, Any] = msgspec.json.decode(line)
            if event["event"] == "ready":
                self.bound = {name: found for name, found in event.items() if isinstance(found, list)}
            else:
                self.failed = StartFailed(event["code"], event["message"])

    def end(self) -> None:
        """End it now, and close the descriptors."""
        self.process.kill()
        self.close()

    def close(self) -> None:
        """Close the descriptors."""
        self._close_pipe()
        self.process.close()

    def _close_pipe(self) -> None:
        if self.said_fd >= 0:
            os.close(self.said_fd)
            self.said_fd = -1
