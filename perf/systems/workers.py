"""The worker processes of a queue (worker.py), started and watched from here.

Idea: a small mapped file has a count of finished tasks per worker, so that counting needs no system call. Contract: a
worker ends with the process that started it, or with the block.
"""

from __future__ import annotations

import dataclasses
import json
import mmap
import select
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from ..lab.children import child

WORKER = "perf.systems.worker"
READY_S = 60.0
NUMBER_BYTES = 8


@dataclass(frozen=True)
class Plan:
    """The plan of a worker."""

    name: str  # of the queue's kind
    address: str
    queue: str
    batch: int
    tally: str  # the mapped file
    place: int  # in it


@contextmanager
def started(name: str, address: str, queue: str, batch: int, count: int) -> Iterator[Callable[[], int]]:
    """Start `count` connected worker processes; yields a function that counts their finished tasks."""
    with tempfile.NamedTemporaryFile(prefix="perf-tally-") as file, ExitStack() as stack:
        file.write(bytes(NUMBER_BYTES * count))
        file.flush()
        plans = [Plan(name, address, queue, batch, file.name, place) for place in range(count)]
        begun = [stack.enter_context(child(WORKER, json.dumps(dataclasses.asdict(plan)))) for plan in plans]
        for process in begun:
            assert process.stdout
            if not select.select([process.stdout], [], [], READY_S)[0] or not process.stdout.readline():
                raise RuntimeError(f"a worker of {name} did not start within {READY_S:.0f} s; its reason is above")
        numbers = stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

        def finished() -> int:
            ended = next((process for process in begun if process.poll() is not None), None)
            if ended is not None:
                raise RuntimeError(f"a worker of {name} ended early; its reason is above")
            return sum(memoryview(numbers[:]).cast("Q"))

        yield finished
