"""Files whose pages are not in memory: dropped, and seen to be gone.

Contract: `drop` writes back what is dirty first, because the kernel keeps such pages, and raises when more than a
twentieth of the bytes is still there afterwards: a figure of cold reads that came out of memory would be a lie.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

STAYS_MAX = 0.05
_libc = ctypes.CDLL(None, use_errno=True)


class StillCached(Exception):
    """The kernel kept the pages, because a process has them mapped."""


def files_of(directory: Path) -> list[Path]:
    """All non-empty files below a directory."""
    return sorted(path for path in directory.rglob("*") if path.is_file() and path.stat().st_size)


def drop(files: Sequence[Path]) -> None:
    """Drop files from the page cache, so that the next read comes from the disk."""
    for path in files:
        file = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)
    stays = sum(resident_bytes(path) for path in files)
    size = sum(path.stat().st_size for path in files)
    if stays > STAYS_MAX * size:
        raise StillCached(f"{stays:,} of {size:,} bytes stayed in memory")


def resident_bytes(path: Path) -> int:
    """How much of a file is in the page cache."""
    size = path.stat().st_size
    pages = -(-size // mmap.PAGESIZE)
    there = (ctypes.c_ubyte * pages)()
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, mmap.MAP_PRIVATE) as mapped:
        view = np.frombuffer(mapped, np.uint8)
        try:
            address = ctypes.c_void_p(view.ctypes.data)
            if _libc.mincore(address, ctypes.c_size_t(size), there) != 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code))
        finally:
            del view
    return int((np.frombuffer(bytes(there), np.uint8) & 1).sum()) * mmap.PAGESIZE


def read_mb_per_s(files: Sequence[Path], piece: int = 1 << 20) -> float:
    """Rate of reading files from the disk, one after the other; drops them from the cache first."""
    drop(files)
    begun, size = time.perf_counter(), 0
    for path in files:
        with path.open("rb", buffering=0) as file:
            while data := file.read(piece):
                size += len(data)
    return size / 1e6 / (time.perf_counter() - begun)
