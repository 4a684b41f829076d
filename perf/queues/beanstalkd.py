"""beanstalkd as a task queue: greenstalk over a Unix socket, a log that is fsynced for every job.

There is no reserve or delete of many jobs, and greenstalk waits for every answer: a round trip to put, one to reserve,
one to delete.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from ..systems import beanstalkd
from .queue import One, Queue, Work


class Beanstalkd(Queue):
    """One tube."""

    name = "beanstalkd"
    durabilities = beanstalkd.SYSTEM.durabilities
    chunk = 600

    def absent(self) -> str:
        return beanstalkd.SYSTEM.absent()

    def versions(self) -> dict[str, str]:
        return beanstalkd.SYSTEM.versions()

    def serve(self, directory: Path, durability: str) -> AbstractContextManager[str]:
        return beanstalkd.SYSTEM.serve(directory, durability)

    def create(self, address: str, queue: str) -> None:
        beanstalkd.SYSTEM.create(address, queue)

    def enqueue(self, address: str, queue: str, values: Sequence[bytes]) -> None:
        beanstalkd.SYSTEM.produce(address, queue, values)

    @contextmanager
    def worker(self, address: str, queue: str, batch: int) -> Iterator[Work]:
        import greenstalk

        with beanstalkd.connect(address, queue) as client:

            def work() -> int:
                try:
                    client.delete(client.reserve(timeout=1))
                except greenstalk.TimedOutError:
                    return 0
                return 1

            yield work

    @contextmanager
    def one(self, address: str, queue: str) -> Iterator[One]:
        with beanstalkd.connect(address, queue) as client:

            def life(value: bytes) -> None:
                client.put(value)
                client.delete(client.reserve(timeout=1))

            yield life


QUEUES = [Beanstalkd()]
