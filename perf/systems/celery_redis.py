"""Celery on Redis: tasks, not records. `python -m perf.systems.celery_redis <socket>` is its worker.

Idea: what a task costs when it does nothing. Tasks are put into the queue while no worker runs, between two that say
when they run; then one worker process empties it. So neither side waits for the other, and the worker's start does
not count.

How it is driven: by Celery's own advice for many small tasks. The worker takes a hundred ahead, keeps no results,
has no gossip, mingling, heartbeat, events or remote control, and runs tasks in its own process (the pool `solo`): one
process is asked for, and a pool of one would add a hop between two. The submitting side keeps one connection.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import servers
from .redis_streams import SYSTEMS as REDIS

MARKS = "lab-marks"
QUEUE = "celery"  # the list that Celery keeps tasks in unless told otherwise
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


@dataclass(frozen=True)
class TaskRates:
    """Tasks per second of one process each."""

    submitted: float
    finished: float


def absent() -> str:
    return REDIS[0].absent() or servers.absence("redis-server", "celery")


def versions() -> dict[str, str]:
    return REDIS[0].versions() | servers.client_versions("celery")


def rates(directory: Path, durability: str, count: int) -> TaskRates:
    """Submit and run `count` tasks that do nothing. Durability is that of the queue in Redis."""
    with REDIS[0].serve(directory, durability) as socket:
        submitted_s = _submit(_application(socket), count)
        with worker(socket, directory):
            finished_s = _between_marks(socket)
    return TaskRates(count / submitted_s, count / finished_s)


@contextmanager
def worker(socket: str, directory: Path) -> Iterator[None]:
    """A worker process until the block ends; it may not be ready yet."""
    command = [sys.executable, "-m", __spec__.name, socket]
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    here = {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    with servers.running(command, directory / "celery.log", environment=here):
        yield


def submit(socket: str, count: int) -> None:
    """Put in `count` tasks that do nothing, and one behind them that says so."""
    application = _application(socket)
    nothing, mark = application.tasks["lab.nothing"], application.tasks["lab.mark"]
    with application.producer_pool.acquire() as producer:
        for _ in range(count):
            nothing.apply_async(producer=producer)
        mark.apply_async((count,), producer=producer)
    application.close()


def finished(socket: str) -> int:
    """How many tasks went before those that said so."""
    return sum(map(int, _redis(socket).lrange(MARKS, 0, -1)))


def forget(socket: str) -> None:
    """Begin anew: no tasks, none finished."""
    _redis(socket).delete(MARKS, QUEUE)


def _application(socket: str) -> Application:
    from celery import Celery

    application = Celery("lab", broker=f"redis+socket://{socket}", set_as_current=False)
    application.conf.update(SETTINGS)

    @application.task(name="lab.nothing", shared=False)
    def nothing() -> None:
        """What is measured."""

    @application.task(name="lab.mark", shared=False)
    def mark(count: int = 0) -> None:
        _redis(socket).lpush(MARKS, count)

    return application


def _submit(application: Application, count: int) -> float:
    nothing, mark = application.tasks["lab.nothing"], application.tasks["lab.mark"]
    with application.producer_pool.acquire() as producer:
        mark.apply_async(producer=producer)
        start = time.perf_counter()
        for _ in range(count):
            nothing.apply_async(producer=producer)
        spent = time.perf_counter() - start
        mark.apply_async(producer=producer)
    application.close()
    return spent


def _between_marks(socket: str) -> float:
    """Seconds between the two tasks around the others."""
    seen = []
    for _ in range(2):
        if _redis(socket).blpop([MARKS], timeout=servers.START_S) is None:
            raise TimeoutError(f"the Celery worker did not come to a mark in {servers.START_S:.0f} s")
        seen.append(time.perf_counter())
    return seen[1] - seen[0]


def _redis(socket: str) -> Any:
    import redis

    return redis.Redis(unix_socket_path=socket, protocol=2, socket_timeout=None)


if __name__ == "__main__":
    _application(sys.argv[1]).worker_main(WORKER)
