"""Small files written durably and atomically, and a lock that ends with its process.

Contract: when `write` returns, a power cut leaves the new content; before, the old or the new one. Directories are
local or on a file system that all machines mount.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from ...clients.errors import InvalidArgument
from ..errors import TargetInUse
from ..syncing import sync_directory

T = TypeVar("T")

LOCK = "lock"


def write(path: Path, value: Any) -> None:
    """Replace the file at `path` by `value` as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".new")
    with open(fresh, "wb") as file:
        file.write(msgspec.json.encode(value) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)
    sync_directory(path.parent)


def read(path: Path, kind: type[T]) -> T | None:
    """Read a file; None if it is missing. Raises TargetInUse if it is something else."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise TargetInUse(f"{path} is not a file of this pipeline ({error}): name another directory") from None


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Work in `directory` alone. Raises TargetInUse while another process does, InvalidArgument if it cannot be."""
    with _lock_file(directory) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TargetInUse(f"another process works in {directory}: stop it, or name another directory") from None
        yield


def _lock_file(directory: Path) -> BinaryIO:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return open(directory / LOCK, "ab")
    except OSError as error:
        raise InvalidArgument(
            f"directory {directory} cannot be written ({error.strerror}): name another, or mend it"
        ) from None
