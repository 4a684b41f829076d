"""What this machine can do without penstock: the second column of every figure.

Each function returns one sample in the unit of the rows it stands beside. What needs a second process starts
`peer.py` in one; ZeroMQ is used bare, with the client's own encoder where the row says so.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import zmq
from penstock.storage.batch import encode

WINDOW = 8  # batches in flight, for penstock and for bare ZeroMQ alike
RECORDS = 2400  # 100-byte records in a batch of about 256 KiB


# -- processor, memory and disk -------------------------------------------------------------------


def empty_loop_ns() -> float:
    """One turn of an empty Python loop."""
    turns = 2_000_000
    begun = time.perf_counter()
    for _ in range(turns):
        pass
    return (time.perf_counter() - begun) / turns * 1e9


def memcpy_ns_per_record(record_bytes: int = 100) -> float:
    """Copying a record's bytes, 64 MiB at a time, outside the caches."""
    source = np.ones(64 << 20, np.uint8)
    target = np.zeros_like(source)
    target[:] = source  # its pages are there now
    begun = time.perf_counter()
    target[:] = source
    return (time.perf_counter() - begun) / (source.nbytes / record_bytes) * 1e9


def pwrite_ns_per_record(directory: Path, batch_bytes: int = 256 << 10, record_bytes: int = 100) -> float:
    """Writing a record's bytes into an allocated file, in batches, without a sync."""
    batch, rounds = b"x" * batch_bytes, 256
    with _allocated(directory, rounds * batch_bytes) as file:
        begun = time.perf_counter()
        for turn in range(rounds):
            os.pwrite(file, batch, turn * batch_bytes)
        elapsed = time.perf_counter() - begun
    return elapsed / (rounds * batch_bytes / record_bytes) * 1e9


def fdatasync_us(directory: Path, pause_s: float = 0.0, rounds: int = 300, size: int = 512) -> float:
    """Median of pwrite + fdatasync of a small batch, one each `pause_s` after the one before."""
    took = []
    with _allocated(directory, rounds * size) as file:
        for turn in range(rounds):
            wait_until(time.perf_counter() + pause_s)
            begun = time.perf_counter()
            os.pwrite(file, b"x" * size, turn * size)
            os.fdatasync(file)
            took.append(time.perf_counter() - begun)
    return statistics.median(took) * 1e6


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


def wait_until(moment: float) -> None:
    """Sleep to a point of `perf_counter`; returns at once when it is past."""
    if (left := moment - time.perf_counter()) > 0:
        time.sleep(left)


# -- bare ZeroMQ ----------------------------------------------------------------------------------


@contextmanager
def peer(role: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`peer.py` in its own process: says one line when ready, ends when its input closes."""
    command = [sys.executable, "-m", "perf.bare.peer", role, *arguments]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdin
        if not process.stdout.readline():
            raise RuntimeError(f"the peer {role!r} ended before it was ready")
        try:
            yield process
        finally:
            process.stdin.close()
            process.wait(30)


@contextmanager
def endpoint() -> Iterator[str]:
    """A fresh ipc address; short, because such paths are limited to about 100 characters."""
    with tempfile.TemporaryDirectory(prefix="penstock-perf-") as directory:
        yield f"ipc://{directory}/s"


def dealer_router_records_per_s(values: Sequence[bytes], batch: int = RECORDS) -> float:
    """The same batches, encoded by the same encoder, to a ROUTER that answers each and does nothing else."""
    with endpoint() as address, peer("router", address), zmq.Context() as context:
        socket = context.socket(zmq.DEALER)
        socket.linger = 0
        socket.connect(address)
        socket.send_multipart([b"warm", b""])
        socket.recv_multipart()
        begun = time.perf_counter()
        flying = 0
        for first in range(0, len(values), batch):
            if flying == WINDOW:
                socket.recv_multipart()
                flying -= 1
            socket.send_multipart([b"produce", encode(values[first : first + batch])])
            flying += 1
        for _ in range(flying):
            socket.recv_multipart()
        elapsed = time.perf_counter() - begun
        socket.close()
    return len(values) / elapsed


def push_pull_records_per_s(records: int) -> float:
    """Ready batches out of a PUSH in another process; received here, and not looked at."""
    batches = records // RECORDS
    with endpoint() as address, peer("push", address, str(batches), str(RECORDS)), zmq.Context() as context:
        socket = context.socket(zmq.PULL)
        socket.connect(address)
        begun = time.perf_counter()
        for _ in range(batches):
            socket.recv_multipart()
        elapsed = time.perf_counter() - begun
        socket.close()
    return batches * RECORDS / elapsed


def one_way_us(rounds: int = 500, pace_s: float = 0.001) -> float:
    """From before `send` in one process to after `recv` in another, one message of 100 bytes each `pace_s`."""
    with endpoint() as address, peer("one_way", address, str(rounds)) as receiver, zmq.Context() as context:
        socket = context.socket(zmq.PUSH)
        socket.connect(address)
        for _ in range(rounds):
            wait_until(time.perf_counter() + pace_s)
            socket.send(time.perf_counter_ns().to_bytes(8, "little") + bytes(92))
        assert receiver.stdout
        median_us = float(receiver.stdout.readline())
        socket.close()
    return median_us
