"""The command line in this process, and a broker in its own."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from penstock.cli.app import run
from support.processes import spawn


class Result(NamedTuple):
    """What a command left behind."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def lines(self) -> list[Any]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


Cli = Callable[..., Result]


class Terminal(io.TextIOWrapper):
    """Standard input of a person."""

    def isatty(self) -> bool:
        return True


class Served(NamedTuple):
    """`penstock serve` as a program runs it."""

    process: subprocess.Popen[bytes]
    ready: dict[str, Any]

    @property
    def unix(self) -> str:
        return next(url for url in self.ready["listen"] if url.startswith("unix"))

    @property
    def tcp(self) -> str:
        return next(url for url in self.ready["listen"] if url.startswith("tcp"))

    def stop(self) -> int:
        """SIGTERM (once), and the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(30)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()
        return self.process.returncode


def serve(data: Path, sockets: str, *more: str) -> Served:
    """Start a broker and wait until it serves."""
    listen = ["--listen", f"unix://{sockets}/broker.sock", "--listen", "tcp://127.0.0.1:0"]
    command = [sys.executable, "-m", "penstock", "serve", "--json", "--data", str(data), *listen, *more]
    process = spawn(command, signal.SIGTERM, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1].decode()
    return Served(process, json.loads(line))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One broker for all tests; each uses topics of its own."""
    with tempfile.TemporaryDirectory() as sockets:  # pytest's own paths are too long for a socket
        served = serve(tmp_path_factory.mktemp("data"), sockets)
        try:
            yield served
        finally:
            served.stop()


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings but those of the test, and a home of its own."""
    for name in ("PENSTOCK_URL", "PENSTOCK_CONFIG", "PENSTOCK_DATA", "PENSTOCK_LISTEN"):
        monkeypatch.delenv(name, raising=False)
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))


@pytest.fixture
def cli(clean: None, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run one command as `penstock ...` would, without progress bars. `typed` is from a terminal, `stdin` is not."""

    def call(*arguments: str, stdin: bytes = b"", typed: bytes | None = None) -> Result:
        out, err = (io.TextIOWrapper(io.BytesIO(), errors="backslashreplace") for _ in range(2))
        given = io.TextIOWrapper(io.BytesIO(stdin)) if typed is None else Terminal(io.BytesIO(typed))
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", given)
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            code = run(list(arguments))
            out.flush()
            err.flush()
        return Result(code, out.buffer.getvalue(), err.buffer.getvalue().decode())  # type: ignore[attr-defined]

    return call


@pytest.fixture
def on(cli: Cli, broker: Served, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The same, talking to the broker of the tests."""
    monkeypatch.setenv("PENSTOCK_URL", broker.unix)
    return cli


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A unique name."""
    return request.node.name[:150].replace("[", "-").replace("]", "").replace("/", "-").replace(" ", "-")


@pytest.fixture
def queue(on: Cli, topic: str) -> str:
    """A topic with a queue that tries twice, at once."""
    on("topic", "create", topic)
    on("queue", "set", topic, "max_attempts=2", "backoff_s=0", "lease_s=1m")
    return topic
