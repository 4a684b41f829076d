"""Server processes of the peers: started on a free loopback port or a Unix socket, waited for, stopped by id.

Idea: a server gets a process group of its own, so that an interrupt of the measuring process does not reach it before
its clients are done, and so that what it started itself can be stopped with it.

Contract: `running` gives the process once it answers, and when its block ends nothing of its group is left, whatever
happened inside. A server that ends before it answers, or never answers, is an error with the last lines it wrote.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

LOOPBACK = "127.0.0.1"
START_S = 90.0  # RabbitMQ and Kafka need most of it on a busy machine with two cores
STOP_S = 20.0
PATIENCE_S = 30.0
"""How long a client waits for an answer or a record before it gives up."""

INSTALL = "perf/install-peers installs it"

Address = Path | int
"""Where a server answers: a Unix socket, or a port of 127.0.0.1."""


def free_port() -> int:
    """A port of 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return probe.getsockname()[1]


@contextmanager
def short_path() -> Iterator[Path]:
    """A directory for Unix sockets, whose paths may have only about a hundred characters."""
    with tempfile.TemporaryDirectory(prefix="peer-") as path:
        yield Path(path)


@contextmanager
def running(
    command: Sequence[str], log: Path, answers: Sequence[Address] = (), environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server during the block; its output goes to `log`."""
    with log.open("ab") as said:
        process = subprocess.Popen(
            _bound_to_us(command),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            cwd=log.parent,
            start_new_session=True,
        )
        try:
            _wait_for(process, answers, log)
            yield process
        finally:
            _stop(process)


def wait_until(done: Callable[[], bool], what: str) -> None:
    """Poll until `done` holds, for events without an announcement."""
    until = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > until:
            raise TimeoutError(f"waited {PATIENCE_S:.0f} s in vain until {what}")
        time.sleep(0.02)


def absence(program: str, *packages: str) -> str:
    """Why a peer with this server program and these Python packages cannot run; "" when it can."""
    if find_program(program) is None:
        return f"{program} is not installed; {INSTALL}."
    missing = [package for package in packages if find_spec(package) is None]
    return f"the Python package {missing[0]} is not installed; the extra `bench` has it." if missing else ""


def find_program(name: str) -> str | None:
    """Find a program, in sbin too: Debian's servers live there, which is not on every user's path."""
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin")


def program(name: str) -> str:
    found = find_program(name)
    if found is None:
        raise FileNotFoundError(f"{name} is not installed; {INSTALL}")
    return found


def said(*command: str) -> str:
    """The version text of a program, from both streams."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    return result.stdout.strip()


def client_versions(*distributions: str) -> dict[str, str]:
    """Versions of installed Python packages."""
    return {name: version(name) for name in distributions}


def _bound_to_us(command: Sequence[str]) -> list[str]:
    """Have the kernel end the server with the thread that started it, should the measurement be killed."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM", "--", *command] if setpriv else [*command]


def _wait_for(process: subprocess.Popen[bytes], answers: Sequence[Address], log: Path) -> None:
    until = time.monotonic() + START_S
    for address in answers:
        while not _answers(address):
            if process.poll() is not None or time.monotonic() > until:
                state = f"ended with {process.returncode}" if process.poll() is not None else "does not answer"
                raise RuntimeError(f"{process.args!r} {state}; its last words: {_last_words(log)}")
            time.sleep(0.02)


def _answers(address: Address) -> bool:
    family = socket.AF_UNIX if isinstance(address, Path) else socket.AF_INET
    with socket.socket(family) as probe:
        target = str(address) if isinstance(address, Path) else (LOOPBACK, address)
        return probe.connect_ex(target) == 0


def _last_words(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:] if log.exists() else ""


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ask the server to stop, wait, and kill what is left of its group."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
