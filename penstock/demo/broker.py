"""The broker of the demo, with a gateway: `penstock serve` as a program would start it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from .errors import DemoError

DRAIN_S = 30.0


class Broker:
    """A broker in processes of its own, listening on a Unix socket and on free tcp ports of this machine."""

    def __init__(self, data: Path) -> None:
        # Not below `data`: a socket's path may have at most 107 bytes.
        self._sockets = tempfile.TemporaryDirectory(prefix="penstock-")
        listen = [f"unix://{self._sockets.name}/broker.sock", "tcp://127.0.0.1:0"]
        command = [sys.executable, "-m", "penstock", "serve", "--json", "--data", str(data)]
        command += ["--parent", str(os.getpid())]
        for url in listen:
            command += ["--listen", url]
        for door in ("--resp", "--http"):
            command += [door, "tcp://127.0.0.1:0"]
        self._said = Path(self._sockets.name, "said")
        with self._said.open("wb") as errors:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
        self.unix = self.tcp = self.resp = self.http = ""
        self._pid = 0

    def wait(self) -> None:
        """Wait until it serves. Raises DemoError with the broker's message."""
        assert self._process.stdout is not None, "it was asked for"
        line = self._process.stdout.readline()
        if not line:
            raise DemoError(f"the broker ended with exit code {self._process.wait()}: {self._last_words()}")
        ready = msgspec.json.decode(line)
        self.unix, self.tcp = ready["listen"]
        [self.resp], [self.http] = ready["resp"], ready["http"]
        self._pid = ready["pids"]["broker"]

    def kill(self) -> None:
        """SIGKILL the process that does the work, and wait until the supervisor has started another."""
        killed = self._pid
        os.kill(killed, signal.SIGKILL)
        while self._pid == killed:
            self.wait()

    def drain(self) -> None:
        """Stop it cleanly. Raises DemoError if it does not end so."""
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(DRAIN_S)
        if code:
            raise DemoError(f"the broker ended with exit code {code}: {self._last_words()}")

    def _last_words(self) -> str:
        said = self._said.read_text(errors="replace").splitlines()
        return msgspec.json.decode(said[-1])["message"] if said and said[-1].startswith("{") else "".join(said[-1:])

    def close(self) -> None:
        """Stop the processes, however the demo ended."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(DRAIN_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._sockets.cleanup()
