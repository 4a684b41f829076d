"""Celery on Redis as a task queue: tasks that do nothing, worker processes of its own (../systems/celery_redis.py).

What is finished is told by a task put in behind the others: it says how many went before it. Each worker takes a
hundred ahead, so up to as many may still be in the hands of the other one then; that is in Celery's favour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from ..lab.rows import Absent
from ..systems import celery_redis
from ..systems.redis_streams import SYSTEMS as REDIS
from .queue import One, Queue, Work


class Celery(Queue):
    """Tasks without arguments: the values are not sent."""

    name = "Celery on Redis"
    durabilities = REDIS[0].durabilities
    chunk = 500

    def absent(self) -> str:
        return celery_redis.absent()

    def versions(self) -> dict[str, str]:
        return celery_redis.versions()

    @contextmanager
    def serve(self, directory: Path, durability: str) -> Iterator[str]:
        with REDIS[0].serve(directory, durability) as socket:
            yield f"{socket}#{directory}"

    def create(self, address: str, queue: str) -> None:
        celery_redis.forget(_socket(address))

    def enqueue(self, address: str, queue: str, values: Sequence[bytes]) -> None:
        celery_redis.submit(_socket(address), len(values))

    def worker(self, address: str, queue: str, batch: int) -> AbstractContextManager[Work]:
        raise Absent("a Celery worker is a process of Celery's")

    def one(self, address: str, queue: str) -> AbstractContextManager[One]:
        raise Absent("the end of a task can be waited for through a store of results only, which is another server")

    @contextmanager
    def workers(self, address: str, queue: str, batch: int, count: int) -> Iterator[Callable[[], int]]:
        socket, _, directory = address.partition("#")
        with ExitStack() as stack:
            for _ in range(count):
                stack.enter_context(celery_redis.worker(socket, Path(directory)))
            yield lambda: celery_redis.finished(socket)


def _socket(address: str) -> str:
    return address.partition("#")[0]


QUEUES = [Celery()]
