"""The interface of every task queue in the lab, so that one load drives all of them.

Contract:
- `durable`: an acknowledged task, put in or finished, has been fsynced. Nothing is compared across levels.
- `serve` binds loopback or a Unix socket only, keeps everything under `directory`, and stops what it started.
- `enqueue` returns when every task is acknowledged.
- A worker is a process of its own. It takes up to `batch` tasks at a time where the client can, and counts a task as
  finished only when the server has acknowledged that.
- The loop of `one` puts a task in, takes it and finishes it; it returns when that is acknowledged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from . import workers

Work = Callable[[], int]
"""Take some tasks and finish them; how many were finished since the last call. 0 when none came soon."""

One = Callable[[bytes], None]
"""The whole life of one task."""


class Queue(ABC):
    """One way to process tasks."""

    name: str
    durabilities: frozenset[str]
    chunk: int
    """Tasks of 100 bytes whose lives take about half a second with two workers."""
    ours = False
    """Whether it is penstock underneath, and no peer."""

    @abstractmethod
    def absent(self) -> str:
        """Why it cannot run on this machine, as a sentence; "" when it can."""

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """Versions of the server and the Python client."""

    @abstractmethod
    def serve(self, directory: Path, durability: str) -> AbstractContextManager[str]:
        """Run a server during the block; yields its address."""

    @abstractmethod
    def create(self, address: str, queue: str) -> None:
        """An empty queue."""

    @abstractmethod
    def enqueue(self, address: str, queue: str, values: Sequence[bytes]) -> None:
        """Put tasks in and wait until all are acknowledged."""

    @abstractmethod
    def worker(self, address: str, queue: str, batch: int) -> AbstractContextManager[Work]:
        """A connected worker, in this process."""

    @abstractmethod
    def one(self, address: str, queue: str) -> AbstractContextManager[One]:
        """A connected producer and worker in one. Raises Absent where a client cannot wait for the end of a task."""

    def workers(self, address: str, queue: str, batch: int, count: int) -> AbstractContextManager[Callable[[], int]]:
        """Run `count` worker processes during the block; yields a function that counts finished tasks."""
        return workers.started(self.name, address, queue, batch, count)
