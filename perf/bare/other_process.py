"""The other process of a bare measurement: starts a role of peer.py and ends it.

Contract: a peer prints one line when it is ready, performs its role, and ends when its standard input closes. One that
does not end, or whose measurement failed while it waits for more, is killed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
ENDS_S = 30.0


@dataclass(frozen=True)
class Peer:
    """A running peer."""

    process: subprocess.Popen[str]
    said: str
    """What it said when it was ready: where it listens, if it does."""

    def ages_ns(self) -> np.ndarray:
        """The ages that it has counted, in nanoseconds. Waits for them."""
        assert self.process.stdout
        if not (line := self.process.stdout.readline()):
            raise RuntimeError("the peer ended before it had counted all; its reason is above")
        return np.array(json.loads(line), dtype=np.int64)


@contextmanager
def peer(role: str, *arguments: str, descriptors: Sequence[int] = ()) -> Iterator[Peer]:
    """A role of peer.py in a process of its own, which inherits `descriptors`."""
    command = [sys.executable, "-m", "perf.bare.peer", role, *arguments]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=descriptors
    ) as process:
        assert process.stdout
        assert process.stdin
        try:
            if not (said := process.stdout.readline()):
                raise RuntimeError(f"the peer {role!r} ended before it was ready; its reason is above")
            yield Peer(process, said.strip())
            process.stdin.close()
            process.wait(ENDS_S)
        finally:
            process.kill()  # nothing to one that has ended


@contextmanager
def socket_path() -> Iterator[str]:
    """A path for a Unix socket; short, because such paths are limited to about 100 characters."""
    with tempfile.TemporaryDirectory(prefix="penstock-perf-") as directory:
        yield f"{directory}/s"


def wait_until(moment: float) -> None:
    """Sleep to a point of `perf_counter`; returns at once when it is past."""
    if (left := moment - time.perf_counter()) > 0:
        time.sleep(left)
