"""Has files survive a power cut, those that Spark writes too: it renames what a checkpoint needs into place, unsynced.

Idea: a target remembers under which number a micro-batch was written. Had the checkpoint forgotten where that ends,
Spark would give the number out again, for other records, which the target would take for those it has. So it is
synced before anything is done under a number.
Contract: when a function returns, a power cut takes nothing back. Needs no pyspark.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path


def sync_directory(directory: Path | str) -> None:
    """Have what was created, renamed and removed in there survive a power cut."""
    _sync(directory, os.O_RDONLY | os.O_DIRECTORY)


def sync_file(path: Path | str) -> None:
    """Make the file durable, whichever process wrote it."""
    _sync(path, os.O_RDONLY)


def _sync(path: Path | str, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_micro_batch(checkpoint: Path, number: int) -> None:
    """Make durable which records micro-batch `number` has, and whose they are: the query's id."""
    ends = checkpoint / "offsets"
    sync_file(ends / str(number))
    sync_directory(ends)
    sync_identity(checkpoint)


def sync_identity(checkpoint: Path) -> None:
    """Make durable whose checkpoint it is: the query's id."""
    made = (checkpoint / "metadata").stat()
    _sync_identity(checkpoint.absolute(), made.st_ino, made.st_ctime_ns)


@lru_cache(maxsize=64)
def _sync_identity(checkpoint: Path, inode: int, made_ns: int) -> None:
    """Of what Spark writes once, which is synced once by a process: the id, and the names above it."""
    sync_file(checkpoint / "metadata")
    for directory in (checkpoint, checkpoint.parent):
        sync_directory(directory)


def local_checkpoint(location: str) -> Path | None:
    """The directory of a checkpoint that Spark is told of so; None for one that another machine or service keeps."""
    scheme, colon, path = location.partition(":")
    if not colon or "/" in scheme:
        scheme, path = "file", location
    found = Path(path)
    return found if location and scheme == "file" and (found / "offsets").is_dir() else None
