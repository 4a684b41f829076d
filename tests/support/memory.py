"""The directory of one run of tests in memory, where a sync costs nothing.

Idea: most tests need files and not a disk, and a sync of a disk that is shared takes long.

Contract: what a run leaves there is removed by the next one, also after a kill: a run holds the lock of its directory
until its process ends. With `--basetemp` given to pytest, the files are there, and those of failed tests stay.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

MEMORY = Path("/dev/shm")
PREFIX = "penstock-tests-"

NEEDED = 4 << 30
"""Free bytes without which a run is on the disk: it needs at most a quarter of them, and the machine has other uses."""


def directory_of_run(memory: Path = MEMORY, needed: int = NEEDED) -> Path | None:
    """A directory for this process alone, in memory; None where there is too little."""
    _remove_left_behind(memory)
    with suppress(OSError):
        if shutil.disk_usage(memory).free >= needed:
            made = Path(tempfile.mkdtemp(prefix=PREFIX, dir=memory))
            if _lock(made) is not None:  # held to the end of the process, as its descriptor is never closed
                return made
    return None


def _remove_left_behind(memory: Path) -> None:
    """Remove the directories of runs that have ended."""
    for left in memory.glob(f"{PREFIX}*"):
        held = _lock(left)
        if held is not None:
            shutil.rmtree(left, ignore_errors=True)
            os.close(held)


def _lock(directory: Path) -> int | None:
    """The descriptor that holds the lock of a directory; None where it is not to be had."""
    try:
        held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        return None
    return held
