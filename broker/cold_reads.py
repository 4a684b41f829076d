"""The thread that waits for the disk so that the broker's loop never does.

Idea: the loop reads only from the page cache. Where a read would wait, this thread reads the same place through its
own files, only to get it cached, and then rings.

Contract: the thread touches no open log, no socket and no board. One job per token at a time; the loop reads the place
again, and meets any error there. Where the loop misses again because the thread could not read, it gets the error of
the thread, so it never asks for one place for ever.
"""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from collections.abc import Hashable
from typing import NamedTuple

from ..storage.errors import StorageError
from ..storage.files import Files
from ..storage.reader import LogReader
from .diagnostics import say

AHEAD_BYTES = 2 << 20
"""Read in for each miss, so that a reader far behind misses once per so many bytes."""

FAILED_MAX = 1024
"""Failures remembered: those of requests that were dropped meanwhile are asked for by no one."""


class ColdRead(NamedTuple):
    """A place in a log that was not in memory."""

    token: Hashable
    path: str
    seq: int
    limit_seq: int
    size: int
    whole: bool = False  # with what is staged

    @property
    def place(self) -> tuple[str, int]:
        """The log and the batch that reading begins at."""
        return self.path, self.seq


class FailedRead(NamedTuple):
    """A place that could not be read in, and why."""

    place: tuple[str, int]
    error: OSError | StorageError


class Warmer:
    """The thread, started at the first miss. `fd` is readable when jobs are done.

    *Invariant*: `_failed` has at most FAILED_MAX tokens, each with its last job, and none of `_waiting`.
    """

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._jobs: queue.SimpleQueue[ColdRead | None] = queue.SimpleQueue()
        self._finished: deque[tuple[Hashable, FailedRead | None]] = deque()
        self._waiting: set[Hashable] = set()
        self._failed: dict[Hashable, FailedRead] = {}  # until the loop reads the place again
        self._thread: threading.Thread | None = None

    def warm(self, job: ColdRead) -> None:
        """Bring a place into memory; asked again under the same token before that is done, do nothing.

        Raises what kept the thread from reading that place for that token the last time: OSError, StorageError.
        """
        if job.token in self._waiting:
            return
        failed = self._failed.pop(job.token, None)
        if failed is not None and failed.place == job.place:
            raise failed.error
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="penstock-warmer", daemon=True)
            self._thread.start()
        self._waiting.add(job.token)
        self._jobs.put(job)

    def done(self) -> list[Hashable]:
        """Tokens whose places have been read since the last call."""
        os.eventfd_read(self.fd)
        found: list[Hashable] = []
        while self._finished:
            token, failed = self._finished.popleft()
            self._waiting.discard(token)
            if failed is not None:
                self._failed[token] = failed
            found.append(token)
        while len(self._failed) > FAILED_MAX:
            del self._failed[next(iter(self._failed))]
        return found

    def close(self) -> None:
        """End the thread after the job it is at."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None
        os.close(self.fd)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            failed = None
            try:
                _read_in(job)
            except (OSError, StorageError) as error:
                say(f"reading ahead in {job.path}: {error}")
                failed = FailedRead(job.place, error)
            self._finished.append((job.token, failed))
            os.eventfd_write(self.fd, 1)


def _read_in(job: ColdRead) -> None:
    reader = LogReader(job.path, Files(), limit=lambda: job.limit_seq)
    try:
        cursor = reader.cursor_after(job.seq - 1, whole=job.whole)
        left = max(job.size, AHEAD_BYTES)
        while left > 0 and (chunk := cursor.next(min(left, 1 << 20), job.limit_seq)) is not None:
            left -= len(chunk.buffer)
    finally:
        reader.close()
