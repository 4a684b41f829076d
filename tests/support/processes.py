"""Real processes for tests: a served data directory, and programs under load that may be killed.

Contract: everything started is ended by `close`, and when the tests themselves are ended or killed. Waiting is for an
event or a journal, never for a time.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from penstock.broker import ServeConfig
from penstock.broker.system import die_with_parent
from penstock.storage import shared_block
from support.checker import Sent

TESTS = Path(__file__).resolve().parent.parent


def spawn(command: Sequence[str], at_our_end: signal.Signals, **options: Any) -> subprocess.Popen[Any]:
    """Start a process that the kernel sends a signal when this one ends, also when it is killed.

    To the kernel, the parent is the thread that started the process: start none in a thread that ends earlier.
    """
    parent = os.getpid()

    def end_with_us() -> None:
        if not die_with_parent(parent, at_our_end):
            os._exit(1)

    return subprocess.Popen(command, preexec_fn=end_with_us, **options)


class Serving:
    """A supervisor with its broker and keeper over one data directory."""

    def __init__(self, config: ServeConfig, *, wait: bool = True, under: Sequence[str] = ()) -> None:
        """`under`: a command that becomes the supervisor, which it is given as arguments."""
        command = [*under, sys.executable, "-m", "penstock.broker", f"--config={config.to_json()}"]
        self.process = spawn(command, signal.SIGTERM, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.ready: dict[str, Any] = {}
        self.roles: list[tuple[str, int]] = []  # role and term of a member of a cluster, as they changed
        self._data = Path(config.data)
        self._text = b""
        self._errors = b""
        if wait:
            try:
                self.wait_ready()
            except BaseException:
                self.close()
                raise

    @property
    def url(self) -> str:
        return self.ready["listen"][0]

    def pid(self, role: str) -> int:
        return self.ready["pids"][role]

    def wait_ready(self, timeout_s: float = 60.0, *, other_than: dict[str, Any] | None = None) -> dict[str, Any]:
        """The newest ready event, once there is one (another than the given one)."""
        deadline = time.monotonic() + timeout_s
        while not self.ready or self.ready == other_than:
            left = deadline - time.monotonic()
            assert left > 0, f"not ready within {timeout_s} s: {self.errors()}"
            assert self.watch(left) or self.process.poll() is None, f"ended before it served: {self.errors()}"
        return self.ready

    def watch(self, timeout_s: float) -> bool:
        """Wait so long, and take note of ready events. False when the process closed its output."""
        assert self.process.stdout is not None
        fd = self.process.stdout.fileno()
        deadline = time.monotonic() + timeout_s
        while select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
            text = os.read(fd, 65536)
            if not text:
                return False
            *lines, self._text = (self._text + text).split(b"\n")
            for line in lines:
                self._take(json.loads(line))
            if lines:
                return True
        return True

    def _take(self, event: dict[str, Any]) -> None:
        if event["event"] == "role":
            self.roles.append((event["role"], event["term"]))
        else:
            self.ready = event

    def kill_broker(self) -> None:
        """Kill the broker, and wait until another one serves."""
        before = self.ready
        os.kill(self.pid("broker"), signal.SIGKILL)
        self.wait_ready(other_than=before)

    def errors(self) -> str:
        """What was said on standard error so far."""
        assert self.process.stderr is not None
        os.set_blocking(self.process.stderr.fileno(), False)
        self._errors += self.process.stderr.read() or b""
        return self._errors.decode()

    def end(self, timeout_s: float = 30.0) -> int:
        """SIGTERM, and the exit code."""
        self.process.terminate()
        return self.process.wait(timeout_s)

    def close(self) -> None:
        """End it whatever its state; its children end with it."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(15.0)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        self._forget_board()

    def _forget_board(self) -> None:
        """A killed broker leaves its board for the next one in its directory; after a test there is none."""
        name = self._data / "board"
        if name.exists():
            shared_block.remove(name.read_text())

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Program:
    """One program of `support.load`, which may be killed and started again under another label.

    Of another module it is what that module does; its role is then only a name.
    """

    def __init__(self, role: str, folder: Path, label: str, *arguments: str, module: str = "load") -> None:
        self.role, self.label = role, label
        self.journal = folder / f"{role}-{label}.journal"
        self.journal.touch()
        self._log = (folder / f"{role}-{label}.log").open("ab")
        words = list(arguments)
        words[words.index("JOURNAL")] = str(self.journal)
        words = [role, *words] if module == "load" else words
        command = [sys.executable, "-m", f"support.{module}", *words]
        self.process = spawn(command, signal.SIGKILL, cwd=TESTS, stderr=self._log, stdout=self._log)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def finish(self, timeout_s: float = 30.0) -> int:
        """SIGTERM, and wait until it has what it waits for."""
        self.process.terminate()
        return self.process.wait(timeout_s)

    def close(self) -> None:
        if self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.kill()
        self._log.close()

    def complaints(self) -> str:
        """What it wrote to standard error."""
        return Path(self._log.name).read_text()


def sent_by(program: Program) -> Sent:
    """A producer's journal."""
    journal = Sent()
    for line in program.journal.read_text().splitlines():
        what, *numbers = line.split()
        if what == "sent":
            journal.sent = int(numbers[0])
        else:
            first, count = map(int, numbers)
            journal.acknowledged.update(range(first, first + count))
    return journal


def read_by(program: Program) -> list[tuple[int, int, bytes]]:
    """A consumer's journal: partition, offset, value."""
    found: list[tuple[int, int, bytes]] = []
    for line in program.journal.read_text().splitlines():
        partition, offset, value = line.split(" ", 2)
        found.append((int(partition), int(offset), value.encode()))
    return found


def until(condition: Callable[[], bool], serving: Serving, timeout_s: float = 30.0) -> bool:
    """Whether a condition over journals comes true in time; ready events are noted meanwhile."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        serving.watch(0.05)
    return True
