"""The limits of processor, memory and disk of this machine without penstock: the second column of every figure.

Each function returns one sample in the unit of the rows it stands beside.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from .other_process import wait_until

COPIED_BYTES = 64 << 20
BATCH_BYTES = 256 << 10

# -- processor and memory -------------------------------------------------------------------------


def empty_loop_ns() -> float:
    """One turn of an empty Python loop."""
    turns = 2_000_000
    begun = time.perf_counter()
    for _ in range(turns):
        pass
    return (time.perf_counter() - begun) / turns * 1e9


def memcpy_ns_per_record(record_bytes: int = 100) -> float:
    """Copying a record's bytes, 64 MiB at a time, outside the caches."""
    source = np.ones(COPIED_BYTES, np.uint8)
    return _copying_ns(source, np.zeros_like(source)) / (source.nbytes / record_bytes)


def memcpy_mapped_ns_per_record(directory: Path, record_bytes: int = 100) -> float:
    """Copying a record's bytes into a mapped file whose pages are present and not being synced."""
    source = np.ones(COPIED_BYTES, np.uint8)
    with _allocated(directory, source.nbytes) as file, mmap.mmap(file, source.nbytes) as mapped:
        took = _copying_ns(source, np.frombuffer(mapped, np.uint8))
    return took / (source.nbytes / record_bytes)


def _copying_ns(source: np.ndarray, target: np.ndarray) -> float:
    target[:] = source  # its pages are there now
    begun = time.perf_counter()
    target[:] = source
    return (time.perf_counter() - begun) * 1e9


# -- disk -----------------------------------------------------------------------------------------


def write_ns_per_record(directory: Path, batch_bytes: int = BATCH_BYTES, record_bytes: int = 100) -> float:
    """Writing a record's bytes with `write`, in batches, without a sync."""
    return _writing_ns(directory, lambda file, batch, at: os.write(file, batch), batch_bytes, record_bytes)


def pwrite_ns_per_record(directory: Path, batch_bytes: int = BATCH_BYTES, record_bytes: int = 100) -> float:
    """Writing a record's bytes with `pwrite`, in batches, without a sync."""
    return _writing_ns(directory, os.pwrite, batch_bytes, record_bytes)


def _writing_ns(directory: Path, write: Callable[[int, bytes, int], int], batch_bytes: int, record_bytes: int) -> float:
    """Nanoseconds per record of filling an allocated file."""
    batch, rounds = b"x" * batch_bytes, 256
    with _allocated(directory, rounds * batch_bytes) as file:
        begun = time.perf_counter()
        for turn in range(rounds):
            write(file, batch, turn * batch_bytes)
        elapsed = time.perf_counter() - begun
    return elapsed / (rounds * batch_bytes / record_bytes) * 1e9


def fdatasync_us(directory: Path, pause_s: float = 0.0, rounds: int = 300) -> float:
    """The median of `fdatasync_ns`."""
    return float(np.median(fdatasync_ns(directory, pause_s, rounds))) / 1e3


def fdatasync_ns(directory: Path, pause_s: float = 0.0, rounds: int = 300, size: int = 512) -> np.ndarray:
    """pwrite + fdatasync of a small batch, one each `pause_s` after the one before."""
    took = []
    with _allocated(directory, rounds * size) as file:
        for turn in range(rounds):
            wait_until(time.perf_counter() + pause_s)
            begun = time.perf_counter_ns()
            os.pwrite(file, b"x" * size, turn * size)
            os.fdatasync(file)
            took.append(time.perf_counter_ns() - begun)
    return np.array(took, dtype=np.int64)


@contextmanager
def _allocated(directory: Path, size: int) -> Iterator[int]:
    handle, name = tempfile.mkstemp(dir=directory)
    try:
        os.posix_fallocate(handle, 0, size)
        os.fsync(handle)
        yield handle
    finally:
        os.close(handle)
        os.unlink(name)
