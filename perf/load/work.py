"""Tasks through their whole life: put in by one process, taken and finished by others, counted when it is durable.

Contract: a figure is of tasks that are finished, from the first one put in to the last one finished; worker processes
are connected, and have finished a batch, before that. Every sample has a queue of its own. Bounded in time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count

from ..lab.harness import Lab
from ..lab.rows import Absent, Beside, Sample
from ..systems import every_queue
from ..systems.queue import Queue
from .peers import values

WORKERS = 2
BATCH = 100
PATIENCE_S = 120.0
LOOK_S = 0.0005
"""Between two looks at what is finished."""

_queues = count()

Measure = Callable[[Queue, str], float]


def lives_per_s(queue: Queue, address: str, tasks: int) -> float:
    """Tasks a second, from the first one put in to the last one finished, by WORKERS processes in batches of BATCH."""
    name = fresh(queue, address)
    warm, measured = values(BATCH), values(tasks)
    with queue.workers(address, name, BATCH, WORKERS) as finished:
        queue.enqueue(address, name, warm)
        wait(finished, len(warm))
        begun = time.perf_counter()
        queue.enqueue(address, name, measured)
        wait(finished, len(warm) + tasks)
        return tasks / (time.perf_counter() - begun)


def one_by_one_per_s(queue: Queue, address: str, tasks: int) -> float:
    """Tasks a second where each is put in when the one before it is finished, by one client."""
    with queue.one(address, fresh(queue, address)) as life:
        for value in values(10):
            life(value)
        begun = time.perf_counter()
        for value in values(tasks):
            life(value)
        return tasks / (time.perf_counter() - begun)


def beside(lab: Lab, durability: str, measure: Measure) -> Mapping[str, Beside[Sample]]:
    """The peers of a figure, each with a server of its own for its samples."""

    @contextmanager
    def enter(queue: Queue) -> Iterator[Sample]:
        with served(lab, queue, durability) as address:
            yield lambda: measure(queue, address)

    peers = [queue for queue in every_queue() if not queue.ours]
    return {queue.name: lambda queue=queue: enter(queue) for queue in peers}


@contextmanager
def served(lab: Lab, queue: Queue, durability: str) -> Iterator[str]:
    """A server in a fresh directory. Raises Absent when there can be none at this level."""
    if durability not in queue.durabilities:
        raise Absent(f"it acknowledges only what is {', '.join(sorted(queue.durabilities))}")
    if reason := queue.absent():
        raise Absent(reason)
    with lab.place() as place, queue.serve(place, durability) as address:
        yield address


def fresh(queue: Queue, address: str) -> str:
    """A fresh queue."""
    name = f"queue-{next(_queues)}"
    queue.create(address, name)
    return name


def wait(finished: Callable[[], int], wanted: int) -> None:
    """Wait until so many are finished. Raises TimeoutError."""
    until = time.monotonic() + PATIENCE_S
    while (done := finished()) < wanted:
        if time.monotonic() > until:
            raise TimeoutError(f"{done} of {wanted} tasks were finished in {PATIENCE_S:.0f} s")
        time.sleep(LOOK_S)
