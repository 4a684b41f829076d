"""Celery on Redis and on penstock: tasks, not records. `python -m perf.systems.celery_tasks URL DIRECTORY` is a worker.

Idea: what a task costs when it does nothing. A task put in behind the others says how many went before it, which is how
the end is told. Each worker takes a hundred ahead, so up to as many may still be in the hands of another worker then;
that is in Celery's favour.

How it is driven: by Celery's own advice for many small tasks. The worker takes a hundred ahead, keeps no results,
has no gossip, mingling, heartbeat, events or remote control, and runs tasks in its own process (the pool `solo`). The
submitting side is one process with four threads, as of a web server, each with a connection that it keeps. All of that
is the same over both.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..lab.rows import Absent
from . import broker, servers
from .queue import One, Queue, Work
from .redis_streams import SYSTEMS as REDIS

MARKS = "celery-marks"
SENDERS = 4
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
def worker(url: str, directory: Path) -> Iterator[None]:
    """A worker process until the block ends; it may not be ready yet."""
    command = [sys.executable, "-m", __spec__.name, url, str(directory)]
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    here = {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    with servers.running(command, directory / "celery.log", environment=here):
        yield


def submit(url: str, directory: Path, count: int) -> None:
    """Enqueue `count` tasks that do nothing and, when they are in, one that reports them done."""
    application = _application(url, directory)
    shares = [count // SENDERS + (sender < count % SENDERS) for sender in range(SENDERS)]
    with ThreadPoolExecutor(SENDERS) as senders:
        list(senders.map(partial(_send, application), shares))
    application.tasks["lab.mark"].apply_async((count,))
    application.close()


def _send(application: Application, count: int) -> None:
    nothing = application.tasks["lab.nothing"]
    with application.producer_pool.acquire(block=True) as producer:
        for _ in range(count):
            nothing.apply_async(producer=producer)


def finished(directory: Path) -> int:
    """The number of tasks reported done."""
    marks = directory / MARKS
    return sum(map(int, marks.read_text().split())) if marks.exists() else 0


def forget(url: str, directory: Path) -> None:
    """Start over: no tasks, none finished."""
    (directory / MARKS).unlink(missing_ok=True)
    application = _application(url, directory)
    application.control.purge()
    application.close()


def _application(url: str, directory: Path) -> Application:
    from celery import Celery

    application = Celery("lab", broker=url, set_as_current=False)
    application.conf.update(SETTINGS)

    @application.task(name="lab.nothing", shared=False)
    def nothing() -> None:
        """The measured task."""

    @application.task(name="lab.mark", shared=False)
    def mark(count: int) -> None:
        with (directory / MARKS).open("a") as marks:
            marks.write(f"{count}\n")

    return application


class CeleryTasks(Queue):
    """Tasks without arguments: the values are not sent."""

    chunk = 500

    def create(self, address: str, queue: str) -> None:
        forget(*_parts(address))

    def enqueue(self, address: str, queue: str, values: Sequence[bytes]) -> None:
        submit(*_parts(address), len(values))

    def worker(self, address: str, queue: str, batch: int) -> AbstractContextManager[Work]:
        raise Absent("a Celery worker is a process of Celery's")

    def one(self, address: str, queue: str) -> AbstractContextManager[One]:
        raise Absent("the end of a task can be waited for through a store of results only")

    @contextmanager
    def workers(self, address: str, queue: str, batch: int, count: int) -> Iterator[Callable[[], int]]:
        url, directory = _parts(address)
        with ExitStack() as stack:
            for _ in range(count):
                stack.enter_context(worker(url, directory))
            yield lambda: finished(directory)


class OnRedis(CeleryTasks):
    """Durability is Redis' (redis_streams.py)."""

    name = "Celery on Redis"
    durabilities = REDIS[0].durabilities

    def absent(self) -> str:
        return REDIS[0].absent() or servers.absence("redis-server", "celery")

    def versions(self) -> dict[str, str]:
        return REDIS[0].versions() | servers.client_versions("celery")

    @contextmanager
    def serve(self, directory: Path, durability: str) -> Iterator[str]:
        with REDIS[0].serve(directory, durability) as socket:
            yield f"redis+socket://{socket}#{directory}"


class OnPenstock(CeleryTasks):
    """By the transport of adapters/celery."""

    name = "Celery on penstock"
    durabilities = frozenset({"durable"})
    ours = True

    def absent(self) -> str:
        return "" if find_spec("celery") else "the Python package celery is not installed; the extra `bench` has it."

    def versions(self) -> dict[str, str]:
        return servers.client_versions("penstock", "celery")

    @contextmanager
    def serve(self, directory: Path, durability: str) -> Iterator[str]:
        with broker.serve(directory) as served:
            yield f"penstock+{served.url}#{directory}"


def _parts(address: str) -> tuple[str, Path]:
    url, _, directory = address.partition("#")
    return url, Path(directory)


TASK_QUEUES = [OnRedis(), OnPenstock()]

if __name__ == "__main__":
    _application(sys.argv[1], Path(sys.argv[2])).worker_main(WORKER)
