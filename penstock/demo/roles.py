"""How the conductor of the demo talks to its processes: JSON lines over their standard input and output.

    conductor -> role   Go, once the broker serves; Stop, when a consumer has seen all there is
    role -> conductor   Ready, Progress now and then, and at the end Done or Failed

Idea: a role is a program of its own, as a user's would be; it starts while the broker starts, and waits for Go.
Contract: a role whose conductor is gone sees the end of its input, which is a Stop.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from typing import BinaryIO, Literal

import msgspec
from msgspec import Struct

from ..storage.errors import Error
from .errors import DemoError, RoleFailed

PROGRESS_S = 0.05


class Go(Struct, tag=True, frozen=True):
    """Begin. Producers are told which share is theirs, consumers how to read and where to report."""

    url: str
    topic: str
    flights: int
    number: int = 0
    of: int = 1
    group: str = ""
    delivery: Literal["auto", "push", "control", "mapped"] = "auto"
    report: str = ""


class Stop(Struct, tag=True, frozen=True):
    """There is nothing more to come."""


class Ready(Struct, tag=True, frozen=True):
    """The role has started and waits for Go."""


class Progress(Struct, tag=True, frozen=True):
    """Records done so far."""

    records: int


class Done(Struct, tag=True, frozen=True):
    """All done, in `seconds` from the first record to the last."""

    records: int
    seconds: float


class Failed(Struct, tag=True, frozen=True):
    """The role ends because of an error."""

    code: str
    message: str


Event = Ready | Progress | Done | Failed
_ORDERS = msgspec.json.Decoder(Go | Stop)
_EVENTS = msgspec.json.Decoder(Event)


# -- in the role -----------------------------------------------------------------------------------


class Conductor:
    """The other side, as a role sees it."""

    def __init__(self) -> None:
        self._input = os.fdopen(os.dup(0), "rb", buffering=0)
        self._output: BinaryIO = os.fdopen(os.dup(1), "wb", buffering=0)
        self._told = 0.0
        self.stopped = False

    def say(self, event: Event) -> None:
        self._output.write(msgspec.json.encode(event) + b"\n")

    def progress(self, records: int) -> None:
        """Say how far we are, unless that was just said."""
        now = time.monotonic()
        if now - self._told >= PROGRESS_S:
            self._told = now
            self.say(Progress(records))

    def wait_for_go(self) -> Go | None:
        """The order to begin; None when there will be none."""
        self.say(Ready())
        order = self._read()
        return order if isinstance(order, Go) else None

    def should_stop(self) -> bool:
        """Whether Stop has come. Never waits."""
        if not self.stopped and select.select([self._input], [], [], 0)[0]:
            self.stopped = isinstance(self._read(), Stop)
        return self.stopped

    def _read(self) -> Go | Stop:
        line = self._input.readline()
        return _ORDERS.decode(line) if line else Stop()


def play(part: Callable[[Conductor], None]) -> int:
    """Run a role's part; its exit code. An expected error becomes Failed."""
    conductor = Conductor()
    try:
        part(conductor)
    except Error as error:
        conductor.say(Failed(error.code, error.message))
        return 1
    except (BrokenPipeError, KeyboardInterrupt):
        return 1  # the conductor is gone, or told by the same ^C
    return 0


# -- in the conductor ------------------------------------------------------------------------------


class Role:
    """One process of the demo, as the conductor sees it."""

    def __init__(self, name: str, module: str) -> None:
        command = [sys.executable, "-m", f"{__package__}.{module}"]
        self.name = name
        self.records = 0
        self.seconds = 0.0
        self.ready = False
        self.done = False
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self._rest = b""
        assert self._process.stdout is not None, "it was asked for"
        os.set_blocking(self._process.stdout.fileno(), False)

    def fileno(self) -> int:
        """For select: readable when the role says something."""
        assert self._process.stdout is not None, "it was asked for"
        return self._process.stdout.fileno()

    def tell(self, order: Go | Stop) -> None:
        assert self._process.stdin is not None, "it was asked for"
        try:
            self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        except BrokenPipeError as error:
            raise RoleFailed(f"{self.name} ended before it was done") from error

    def hear(self) -> None:
        """Take what the role has said. Raises the role's error."""
        assert self._process.stdout is not None, "it was asked for"
        said = self._process.stdout.read(1 << 16)
        if said == b"" and not self.done:
            raise RoleFailed(f"{self.name} ended with exit code {self._process.wait()} before it was done")
        *lines, self._rest = (self._rest + (said or b"")).split(b"\n")
        for line in lines:
            self._take(_EVENTS.decode(line))

    def _take(self, event: Event) -> None:
        match event:
            case Ready():
                self.ready = True
            case Progress(records):
                self.records = records
            case Done(records, seconds):
                self.records, self.seconds, self.done = records, seconds, True
            case Failed(code, message):
                raise Error.by_code.get(code, DemoError)(f"{self.name}: {message}")

    def end(self) -> None:
        """Leave no process behind."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None, "it was asked for"
            pipe.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
