"""A broker of our own for the time of a measurement, and the cost of its processes.

Started through the command line like any other, in a fresh directory on the disk under test; stopped at the end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LOCAL = "unix"
"""The scheme that clients on the broker's machine take."""
START = "from penstock.cli import main; main()"


@dataclass(frozen=True)
class Served:
    """A running broker."""

    url: str
    data: Path
    pids: dict[str, int]

    def cpu_s(self) -> float:
        """Processor time of broker and keeper so far."""
        return sum(map(cpu_s, self.pids.values()))

    def memory_mib(self) -> float:
        """Memory of the broker that is its own; mapped files, which the kernel takes back at will, do not count."""
        status = Path(f"/proc/{self.pids['broker']}/status").read_text()
        return sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon")) / 1024

    def disk_bytes(self) -> int:
        """Blocks taken by the data directory."""
        files = (Path(folder, name) for folder, _, names in os.walk(self.data) for name in names)
        return sum(file.stat().st_blocks * 512 for file in files)


@contextmanager
def serve(directory: Path, scheme: str = LOCAL, settings: Mapping[str, str] | None = None) -> Iterator[Served]:
    """`penstock serve` until the block ends, listening on a Unix socket in the way that `scheme` names."""
    with tempfile.TemporaryDirectory(prefix="penstock-perf-") as sockets:
        url = f"{scheme}://{sockets}/s"
        command = [sys.executable, "-c", START, "serve", "--json", "--data", str(directory / "data"), "--listen", url]
        command += [part for name, value in (settings or {}).items() for part in ("--set", f"{name}={value}")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            try:
                line = process.stdout.readline()
                if not line:
                    raise RuntimeError("the broker ended before it was ready; its reason is above")
                yield Served(url, directory / "data", json.loads(line)["pids"])
            finally:
                process.terminate()
                process.wait(60)


def cpu_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
