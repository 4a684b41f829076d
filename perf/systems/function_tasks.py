"""Functions of `penstock.Tasks`, as programs use them: tasks, not records. `penstock worker` runs them.

Driven as Celery is (celery_tasks.py), so that the two stand beside each other: functions that do nothing, put in one by
one by four threads of one process, and a last one that reports them done. Each worker is a process that runs one task
at a time. Results are kept, as is the way of penstock.Tasks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import penstock

from ..lab.rows import Absent
from . import broker, servers
from .queue import One, Queue, Work

MARKS = "marks"
SENDERS = 4

app = penstock.Tasks()


@app.task(queue="lab")
def nothing() -> None:
    """The measured task."""


@app.task(queue="lab")
def mark(marks: str, count: int) -> None:
    """Report tasks done."""
    with open(marks, "a") as file:
        file.write(f"{count}\n")


class FunctionTasks(Queue):
    """Tasks without arguments: the values are not sent."""

    name = "penstock.Tasks"
    durabilities = frozenset({"durable"})
    chunk = 1_000
    ours = True

    def absent(self) -> str:
        return ""

    def versions(self) -> dict[str, str]:
        return servers.client_versions("penstock")

    @contextmanager
    def serve(self, directory: Path, durability: str) -> Iterator[str]:
        with broker.serve(directory) as served:
            yield f"{served.url}#{directory}"
            app.close()

    def create(self, address: str, queue: str) -> None:
        url, directory = _parts(address)
        (directory / MARKS).unlink(missing_ok=True)
        app.close()
        app.url = url

    def enqueue(self, address: str, queue: str, values: Sequence[bytes]) -> None:
        shares = [len(values) // SENDERS + (sender < len(values) % SENDERS) for sender in range(SENDERS)]
        with ThreadPoolExecutor(SENDERS) as senders:
            list(senders.map(_send, shares))
        mark.send(str(_parts(address)[1] / MARKS), len(values))

    def worker(self, address: str, queue: str, batch: int) -> AbstractContextManager[Work]:
        raise Absent("a worker of functions is a process of its own")

    def one(self, address: str, queue: str) -> AbstractContextManager[One]:
        raise Absent("a worker of functions is a process of its own")

    @contextmanager
    def workers(self, address: str, queue: str, batch: int, count: int) -> Iterator[Callable[[], int]]:
        url, directory = _parts(address)
        command = [sys.executable, "-c", broker.START, "worker", f"{__name__}:app", "--concurrency", "1", "--url", url]
        paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        here = {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}
        with ExitStack() as stack:
            for _ in range(count):
                stack.enter_context(servers.running(command, directory / "worker.log", environment=here))
            yield lambda: _finished(directory / MARKS)


def _send(count: int) -> None:
    for _ in range(count):
        nothing.send()


def _finished(marks: Path) -> int:
    return sum(map(int, marks.read_text().split())) if marks.exists() else 0


def _parts(address: str) -> tuple[str, Path]:
    url, _, directory = address.partition("#")
    return url, Path(directory)


TASK_QUEUE = FunctionTasks()
