"""Opening a large log: after a clean close, and after kill -9 in the middle of writing.

Another process writes the log once; the killed one is killed again before every sample. Each opening makes a new
generation, so the samples are independent.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import penstock

from ..lab.harness import Lab
from ..lab.rows import Row

FULL_BYTES = 10 << 30
ROOM_BYTES = 25 << 30  # free space asked for before 10 GiB are written

# Appends unsynced records without end; kills itself from within, so no moment is a good one.
VICTIM = """
import os, signal, sys, threading, penstock
log = penstock.Log(sys.argv[1], commit="written", segment_bytes="256MB")
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
batch = [b"x" * 100] * 2400
while True:
    log.append(batch)
"""


def rows(lab: Lab) -> Iterator[Row]:
    size = int(FULL_BYTES * lab.scale)
    roomy = shutil.disk_usage(lab.directory).free > ROOM_BYTES
    size = size if roomy else min(size, shutil.disk_usage(lab.directory).free // 4)
    note = "" if size == FULL_BYTES else f"{size / 2**30:.2g} GiB, not 10: {'--scale' if roomy else 'disk too full'}"
    with lab.place() as place:
        log = place / "log"
        _fill(log, size)
        name = f"open: a log of {size / 2**30:.3g} GiB"
        yield _row(f"{name}, cleanly closed", lambda: _open_ms(log), 200.0, log, note)
        yield _row(f"{name}, after kill -9 while writing", lambda: _killed_ms(log), 1000.0, log, note)


def _row(name: str, measure, goal: float, log: Path, note: str) -> Row:
    return Row(
        name,
        "ms",
        measure,
        more_is_better=False,
        goal=goal,
        limits={"reading the first page of every file": lambda: _first_pages_ms(log)},
        note=note,
    )


def _fill(path: Path, size: int) -> None:
    batch = [b"x" * 1000] * 1000
    with penstock.Log(path, commit="written", segment_bytes="256MB") as log:
        while log.end_offset * 1000 < size:
            log.append(batch)


def _open_ms(path: Path) -> float:
    begun = time.perf_counter()
    with penstock.Log(path, commit="written", segment_bytes="256MB"):  # as its writers did
        return (time.perf_counter() - begun) * 1e3


def _killed_ms(path: Path) -> float:
    ended = subprocess.run([sys.executable, "-c", VICTIM, str(path)])
    if ended.returncode != -signal.SIGKILL:
        raise RuntimeError(f"the writer ended with {ended.returncode} before it could be killed")
    return _open_ms(path)


def _first_pages_ms(path: Path) -> float:
    begun = time.perf_counter()
    for entry in os.scandir(path):
        if entry.is_file():
            file = os.open(entry.path, os.O_RDONLY)
            os.pread(file, 4096, 0)
            os.close(file)
    return (time.perf_counter() - begun) * 1e3
