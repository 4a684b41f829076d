"""Celery on Redis: tasks, not records. `python -m perf.systems.celery_redis <socket>` is its worker.

Idea: what a task costs when it does nothing. A task put in behind the others says how many went before it, which is how
the end is told. Each worker takes a hundred ahead, so up to as many may still be in the hands of another worker then;
that is in Celery's favour.

How it is driven: by Celery's own advice for many small tasks. The worker takes a hundred ahead, keeps no results,
has no gossip, mingling, heartbeat, events or remote control, and runs tasks in its own process (the pool `solo`). The
submitting side keeps one connection.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ..lab.rows import Absent
from . import servers
from .queue import One, Queue, Work
from .redis_streams import SYSTEMS as REDIS

MARKS = "lab-marks"
QUEUE = "celery"  # the Redis list that Celery keeps tasks in unless told otherwise
WORKER = ["worker", "--pool=solo", "--loglevel=warning", "--without-gossip", "--without-mingle", "--without-heartbeat"]
SETTINGS = {
    "broker_connection_retry_on_startup": True,
    "task_ignore_result": True,
    "task_serializer": "json",
    "worker_prefetch_multiplier": 100,
    "worker_disable_rate_limits": True,
    "worker_enable_remote_control": False,
    "worker_hijack_root_logger": False,
}

Application = Any  # celery.Celery; celery is there only with the extra `bench`


@contextmanager
def worker(socket: str, directory: Path) -> Iterator[None]:
    """A worker process until the block ends; it may not be ready yet."""
    command = [sys.executable, "-m", __spec__.name, socket]
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    here = {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    with servers.running(command, directory / "celery.log", environment=here):
        yield


def submit(socket: str, count: int) -> None:
    """Enqueue `count` tasks that do nothing and one that reports them done."""
    application = _application(socket)
    nothing, mark = application.tasks["lab.nothing"], application.tasks["lab.mark"]
    with application.producer_pool.acquire() as producer:
        for _ in range(count):
            nothing.apply_async(producer=producer)
        mark.apply_async((count,), producer=producer)
    application.close()


def finished(socket: str) -> int:
    """The number of tasks reported done."""
    return sum(map(int, _redis(socket).lrange(MARKS, 0, -1)))


def forget(socket: str) -> None:
    """Start over: no tasks, none finished."""
    _redis(socket).delete(MARKS, QUEUE)


def _application(socket: str) -> Application:
    from celery import Celery

    application = Celery("lab", broker=f"redis+socket://{socket}", set_as_current=False)
    application.conf.update(SETTINGS)

    @application.task(name="lab.nothing", shared=False)
    def nothing() -> None:
        """The measured task."""

    @application.task(name="lab.mark", shared=False)
    def mark(count: int) -> None:
        _redis(socket).lpush(MARKS, count)

    return application


def _redis(socket: str) -> Any:
    import redis

    return redis.Redis(unix_socket_path=socket, protocol=2, socket_timeout=None)


class Celery(Queue):
    """Tasks without arguments: the values are not sent."""

    name = "Celery on Redis"
    durabilities = REDIS[0].durabilities
    chunk = 500

    def absent(self) -> str:
        return REDIS[0].absent() or servers.absence("redis-server", "celery")

    def versions(self) -> dict[str, str]:
        return REDIS[0].versions() | servers.client_versions("celery")

    @contextmanager
    def serve(self, directory: Path, durability: str) -> Iterator[str]:
        with REDIS[0].serve(directory, durability) as socket:
            yield f"{socket}#{directory}"

    def create(self, address: str, queue: str) -> None:
        forget(_socket(address))

    def enqueue(self, address: str, queue: str, values: Sequence[bytes]) -> None:
        submit(_socket(address), len(values))

    def worker(self, address: str, queue: str, batch: int) -> AbstractContextManager[Work]:
        raise Absent("a Celery worker is a process of Celery's")

    def one(self, address: str, queue: str) -> AbstractContextManager[One]:
        raise Absent("the end of a task can be waited for through a store of results only, which is another server")

    @contextmanager
    def workers(self, address: str, queue: str, batch: int, count: int) -> Iterator[Callable[[], int]]:
        socket, _, directory = address.partition("#")
        with ExitStack() as stack:
            for _ in range(count):
                stack.enter_context(worker(socket, Path(directory)))
            yield lambda: finished(socket)


def _socket(address: str) -> str:
    return address.partition("#")[0]


TASK_QUEUE = Celery()

if __name__ == "__main__":
    _application(sys.argv[1]).worker_main(WORKER)
