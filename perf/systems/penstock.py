"""penstock as a system of the lab: one broker and its keeper, driven through the Python client.

Contract: the address carries the commit level of topics, which is a topic's own setting: `unix:///path#written`. One
system for each way in which records reach a consumer; producing is the same in all of them.

As a task queue there are two ways to work: *strict* waits for the commit of every ack before it asks for more; *ack and
lease* finishes a batch with the request that asks for the next one, and what it says is finished has been flushed.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from .broker import LOCAL, serve
from .queue import One, Queue, Work
from .system import Receiver, Sender

if TYPE_CHECKING:
    import penstock

Delivery = Literal["push", "control", "mapped"]
SCHEMES = ("ipc", "unix")
DELIVERIES: tuple[Delivery, ...] = ("push", "mapped")
"""Over unix://, push and control are the same."""
AT_ONCE = 10_000
GROUP = "lab"
DIRECT_LEAST = 0.9
"""Of the records of a run that says so; the broker appends between, and may take the log back for it."""
COMMIT_EVERY = 100
"""Records, of a member that commits as it goes."""
LEASES_AHEAD = 8
"""Of a worker that acks with its next request: each waits for the disk, and 800 tasks ahead cover that. Celery's
has 100 ahead, the consumer of a quorum queue 2,000."""
SOON_S = 0.005
"""How long a worker waits for tasks before it looks whether what it did is committed."""


class Penstock:
    """One scheme and one delivery of penstock."""

    durabilities = frozenset({"durable", "written"})
    chunk = 1_200_000

    def __init__(self, scheme: str, delivery: Delivery, **settings: str) -> None:
        """`settings` are those of the topics that it creates."""
        self.name = f"penstock ({scheme}, {delivery})"
        self.scheme = scheme
        self.settings = {"segment_bytes": "256MB", **settings}
        self.delivery: Delivery = delivery
        self.way = delivery if scheme == LOCAL else f"{delivery} over {scheme}://"

    def absent(self) -> str:
        return ""

    def versions(self) -> dict[str, str]:
        import penstock

        return {"penstock": penstock.__version__, "python": platform.python_version()}

    @contextmanager
    def serve(self, directory: Path, durability: str) -> Iterator[str]:
        if durability not in self.durabilities:
            raise ValueError(f"{self.name} is {', '.join(self.durabilities)}, never {durability}")
        with serve(directory, self.scheme) as broker:
            yield f"{broker.url}#{durability}"

    def create(self, address: str, stream: str) -> None:
        with connected(address) as client:
            client.create_topic(stream, commit=address.partition("#")[2], **self.settings)

    def produce(self, address: str, stream: str, values: Sequence[bytes]) -> None:
        with connected(address) as client, self._producer(client, stream) as producer:
            producer.send_many(values)

    def consume(self, address: str, stream: str, count: int) -> Sequence[bytes]:
        values: list[bytes] = []
        with connected(address) as client, self._consumer(client, stream, "earliest") as consumer:
            for records in consumer.batches():
                values += [record.value for record in records]
                if len(values) >= count:
                    break
        return values

    @contextmanager
    def sender(self, address: str, stream: str) -> Iterator[Sender]:
        """A sender: the first due message goes at once, and the client batches others meanwhile."""
        with connected(address) as client, self._producer(client, stream) as producer:
            send_nowait = producer.send_nowait

            def send(values: Sequence[bytes]) -> None:
                for value in values:
                    send_nowait(value)

            yield send

    @contextmanager
    def acknowledged(self, address: str, stream: str) -> Iterator[Sender]:
        with connected(address) as client, self._producer(client, stream) as producer:

            def send(values: Sequence[bytes]) -> None:
                if len(values) == 1:
                    producer.send(values[0])
                else:
                    producer.send_many(values)

            yield send

    @contextmanager
    def receiver(self, address: str, stream: str) -> Iterator[Receiver]:
        with connected(address) as client, self._consumer(client, stream, "latest") as consumer:

            def receive() -> list[bytes]:
                return [record.value for record in consumer.fetch(AT_ONCE, wait=1.0)]

            consumer.fetch(1, wait=0.0)  # what has to be set up before the first record is
            yield receive

    def _producer(self, client: penstock.Client, stream: str) -> AbstractContextManager[penstock.Producer]:
        return client.producer(stream)

    def _consumer(
        self, client: penstock.Client, stream: str, start: Literal["earliest", "latest"]
    ) -> penstock.Consumer:
        return client.consumer(stream, start=start, delivery=self.delivery)


class Direct(Penstock):
    """Its producers append by themselves to what is not synced, beside mapped readers. A run without is no figure."""

    durabilities = frozenset({"written"})

    def __init__(self) -> None:
        super().__init__(LOCAL, "mapped")
        self.name = "penstock (unix, mapped, direct)"
        self.way = "mapped, direct"

    @contextmanager
    def _producer(self, client: penstock.Client, stream: str) -> Iterator[penstock.Producer]:
        before = client.stats()["lending.records"]
        with client.producer(stream, direct=True) as producer:
            yield producer
            producer.flush()
            share = (client.stats()["lending.records"] - before) / sum(client.offsets(stream, "latest").values())
            if share < DIRECT_LEAST:
                raise RuntimeError(f"{share:.0%} of the records were appended directly: {producer.direct.reasons}")


class DirectCommitting(Direct):
    """As Direct, beside a member of a group that commits as it goes: the broker borrows the log for each commit."""

    def __init__(self) -> None:
        super().__init__()
        self.name = "penstock (unix, mapped, direct, committing)"
        self.way = f"mapped, direct, a commit every {COMMIT_EVERY} records"

    @contextmanager
    def receiver(self, address: str, stream: str) -> Iterator[Receiver]:
        with (
            connected(address) as client,
            client.consumer(stream, group=GROUP, start="latest", delivery=self.delivery) as consumer,
        ):
            since = 0

            def receive() -> list[bytes]:
                nonlocal since
                if since >= COMMIT_EVERY:
                    consumer.commit()
                    since = 0
                records = consumer.fetch(AT_ONCE, wait=1.0)
                since += len(records)
                return [record.value for record in records]

            consumer.fetch(1, wait=0.0)
            yield receive


class TwoProducers(Penstock):
    """Two connections of one process send in turn, so that all records go through the broker, beside mapped readers."""

    def __init__(self) -> None:
        super().__init__(LOCAL, "mapped")
        self.name = "penstock (unix, mapped, two producers)"
        self.way = "mapped, two producers"

    @contextmanager
    def sender(self, address: str, stream: str) -> Iterator[Sender]:
        with super().sender(address, stream) as one, super().sender(address, stream) as other:
            senders = cycle((one, other))

            def send(values: Sequence[bytes]) -> None:
                for value in values:
                    next(senders)([value])

            yield send


@contextmanager
def connected(address: str) -> Iterator[penstock.Client]:
    """A client of the broker at the address of a system."""
    import penstock

    with penstock.connect(address.partition("#")[0]) as client:
        yield client


class Strict(Penstock, Queue):
    """The task side: a topic with one queue group."""

    ours = True

    def __init__(self, name: str, chunk: int) -> None:
        super().__init__(LOCAL, "push")
        self.settings = {}
        self.name = name
        self.chunk = chunk

    def create(self, address: str, stream: str) -> None:
        super().create(address, stream)
        with connected(address) as client:
            client.set_queue(stream, GROUP)

    def enqueue(self, address: str, queue: str, values: Sequence[bytes]) -> None:
        self.produce(address, queue, values)

    @contextmanager
    def worker(self, address: str, queue: str, batch: int) -> Iterator[Work]:
        with connected(address) as client, client.worker(queue, group=GROUP) as worker:

            def work() -> int:
                tasks = worker.fetch(batch, wait=1.0)
                worker.ack(tasks)
                return len(tasks)

            yield work

    @contextmanager
    def one(self, address: str, queue: str) -> Iterator[One]:
        with (
            connected(address) as client,
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


class AckAndLease(Strict):
    """The task side that acks a batch with the request for the next."""

    @contextmanager
    def worker(self, address: str, queue: str, batch: int) -> Iterator[Work]:
        with connected(address) as client, client.worker(queue, group=GROUP, prefetch=LEASES_AHEAD) as worker:
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


SYSTEMS = [
    *(Penstock(scheme, delivery) for scheme in SCHEMES for delivery in DELIVERIES),
    Penstock("ipc", "control"),
    Direct(),
    DirectCommitting(),
    TwoProducers(),
]
TASK_QUEUES = [Strict("penstock, strict", 60_000), AckAndLease("penstock, ack and lease", 120_000)]
