"""penstock as a task queue: one broker and its keeper, driven through `client.worker`.

Two ways to work: *strict* waits for the commit of every ack before it asks for more; *ack and lease* finishes a batch
with the request that asks for the next one, and what it says is finished has been flushed.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..systems.broker import serve
from .queue import One, Queue, Work

GROUP = "lab"
SOON_S = 0.005
"""How long a worker waits for tasks before it looks whether what it did is committed."""


class PenstockQueue(Queue):
    """Strict."""

    name = "penstock, strict"
    durabilities = frozenset({"durable", "written"})
    chunk = 60_000

    def absent(self) -> str:
        return ""

    def versions(self) -> dict[str, str]:
        import penstock

        return {"penstock": penstock.__version__, "python": platform.python_version()}

    @contextmanager
    def serve(self, directory: Path, durability: str) -> Iterator[str]:
        with serve(directory) as broker:
            yield f"{broker.url}#{durability}"

    def create(self, address: str, queue: str) -> None:
        with _connected(address) as client:
            client.create_topic(queue, commit=address.partition("#")[2])
            client.set_queue(queue, GROUP)

    def enqueue(self, address: str, queue: str, values: Sequence[bytes]) -> None:
        with _connected(address) as client, client.producer(queue) as producer:
            producer.send_many(values)

    @contextmanager
    def worker(self, address: str, queue: str, batch: int) -> Iterator[Work]:
        with _connected(address) as client, client.worker(queue, group=GROUP) as worker:

            def work() -> int:
                tasks = worker.fetch(batch, wait=1.0)
                worker.ack(tasks)
                return len(tasks)

            yield work

    @contextmanager
    def one(self, address: str, queue: str) -> Iterator[One]:
        with (
            _connected(address) as client,
            client.producer(queue) as producer,
            client.worker(queue, group=GROUP) as worker,
        ):

            def life(value: bytes) -> None:
                producer.send(value)
                tasks = worker.fetch(1, wait=1.0)
                if [task.value for task in tasks] != [value]:
                    raise RuntimeError(f"{len(tasks)} other tasks came than the one that was put in")
                worker.ack(tasks)

            yield life


class AckAndLease(PenstockQueue):
    """One request for the end of a batch and the beginning of the next."""

    name = "penstock, ack and lease"
    chunk = 120_000

    @contextmanager
    def worker(self, address: str, queue: str, batch: int) -> Iterator[Work]:
        with _connected(address) as client, client.worker(queue, group=GROUP, prefetch=2) as worker:
            tasks, acked = [], 0

            def work() -> int:
                nonlocal tasks, acked
                before, tasks = tasks, worker.ack_and_fetch(tasks, batch, wait=SOON_S)
                acked += len(before)
                if tasks:
                    return 0
                worker.flush()
                finished, acked = acked, 0
                return finished

            yield work


@contextmanager
def _connected(address: str) -> Iterator:
    import penstock

    with penstock.connect(address.partition("#")[0]) as client:
        yield client


QUEUES = [PenstockQueue(), AckAndLease()]
