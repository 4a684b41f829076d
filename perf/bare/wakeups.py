"""The cost of waking another process: by a semaphore, by a futex, and by an eventfd there and back."""

from __future__ import annotations

import mmap
import os
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import posix_ipc
from penstock.storage.futex import WORD_BYTES, Futex

from .other_process import peer, wait_until

PACE_S = 0.001
SLOT_PLACE = 64


def semaphore_ages_ns(rounds: int = 500) -> np.ndarray:
    """Times from before `post` in one process to after `wait` in another, asleep in between; one each PACE_S."""
    name = f"/penstock-perf-{uuid.uuid4().hex}"
    with _semaphore(name) as semaphore, tempfile.TemporaryFile() as file:
        file.truncate(mmap.PAGESIZE)
        shared = [file.fileno()]
        with (
            mmap.mmap(file.fileno(), mmap.PAGESIZE) as memory,
            memoryview(memory).cast("q") as stamp,
            peer("semaphore", name, str(file.fileno()), str(rounds), descriptors=shared) as waiter,
        ):
            for _ in range(rounds):
                wait_until(time.perf_counter() + PACE_S)
                stamp[0] = time.perf_counter_ns()
                semaphore.release()
            return waiter.ages_ns()


def futex_ages_ns(rounds: int = 500) -> np.ndarray:
    """As `semaphore_ages_ns`, over a word of memory that both have mapped."""
    with tempfile.TemporaryFile() as file:
        file.truncate(mmap.PAGESIZE)
        shared = [file.fileno()]
        with (
            mmap.mmap(file.fileno(), mmap.PAGESIZE) as memory,
            memoryview(memory).cast("q") as stamp,
            peer("futex", str(file.fileno()), str(rounds), descriptors=shared) as waiter,
        ):
            slot = slot_behind(memory)
            for _ in range(rounds):
                wait_until(time.perf_counter() + PACE_S)
                while stamp[1] != stamp[0]:
                    time.sleep(PACE_S)  # each stamp is seen, as each post is counted
                stamp[0] = time.perf_counter_ns()
                slot.wake()
            ages = waiter.ages_ns()
            del slot
        return ages


def eventfd_ns(rounds: int = 5000) -> np.ndarray:
    """Round trips: one process is woken and wakes the other back, one right after the other."""
    took = []
    with (
        _eventfd() as there,
        _eventfd() as back,
        peer("eventfd", str(there), str(back), str(rounds), descriptors=[there, back]),
    ):
        for _ in range(rounds):
            begun = time.perf_counter_ns()
            os.eventfd_write(there, 1)
            os.eventfd_read(back)
            took.append(time.perf_counter_ns() - begun)
    return np.array(took, dtype=np.int64)


def slot_behind(memory: mmap.mmap) -> Futex:
    """A slot behind the stamp, on a cache line of its own. Drop it before the memory is closed."""
    return Futex(memoryview(memory)[SLOT_PLACE : SLOT_PLACE + WORD_BYTES])


@contextmanager
def _semaphore(name: str) -> Iterator[posix_ipc.Semaphore]:
    semaphore = posix_ipc.Semaphore(name, posix_ipc.O_CREX)
    try:
        yield semaphore
    finally:
        semaphore.unlink()
        semaphore.close()


@contextmanager
def _eventfd() -> Iterator[int]:
    descriptor = os.eventfd(0)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
