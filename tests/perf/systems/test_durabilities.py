"""What an acknowledgement of each message system means on this machine: its server's system calls, counted by strace.

A power failure cannot be had in a test. But who has not called fsync or fdatasync has promised nothing against one.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.servers import descendants

from perf.systems import every

RECORDS = 100
BACKGROUND = 20  # syncs that a server makes for itself meanwhile
STRACE = shutil.which("strace")

pytestmark = pytest.mark.soak  # strace stops every thread of every server to attach
CASES = [
    pytest.param(system, durability, id=f"{system.name}, {durability}")
    for system in every()
    for durability in sorted(system.durabilities)
]


@pytest.mark.skipif(STRACE is None, reason="strace is not installed, and nothing else counts a server's syncs")
@pytest.mark.parametrize(("system", "durability"), CASES)
def test_a_system_syncs_for_each_acknowledgement_when_durable_and_not_when_written(system, durability, tmp_path):
    if reason := system.absent():
        pytest.skip(reason)
    with system.serve(tmp_path, durability) as address:
        system.create(address, "synced")
        with system.acknowledged(address, "synced") as send:
            send([b"opens files and connections"])
            with _traced(descendants(os.getpid()), tmp_path / "calls"):
                for number in range(RECORDS):
                    send([b"%0100d" % number])
    lines = (tmp_path / "calls").read_text().splitlines()
    syncs = len([line for line in lines if " resumed>" not in line])  # the second half of a call that took long
    assert syncs >= RECORDS if durability == "durable" else syncs <= BACKGROUND


@contextmanager
def _traced(pids: set[int], calls: Path) -> Iterator[None]:
    """One line in `calls` for each sync that these processes and their threads call in the block."""
    assert STRACE
    watched = [argument for pid in pids for argument in ("-p", str(pid))]
    quiet = ["-e", "signal=none", "-e", "trace=fsync,fdatasync,sync_file_range,syncfs"]
    command = [STRACE, "-f", *quiet, "-o", str(calls), *watched]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
        assert strace.stderr
        try:
            for _ in pids:
                line = strace.stderr.readline()
                if "attached" not in line:
                    pytest.skip(f"strace may not look at processes here: {line.strip()}")
            yield
        finally:
            strace.send_signal(signal.SIGINT)
            strace.communicate(timeout=30)
