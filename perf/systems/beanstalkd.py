"""beanstalkd: beanstalkd of Debian, greenstalk, over a Unix socket.

Durability: `-b` keeps a write-ahead log; `-f 0` fsyncs it for every job before the answer, `-F` never.

How it is driven: one command, one answer. The protocol could carry several commands at once, but greenstalk, like the
other clients in use, waits for each answer; there is no put, reserve or delete of many jobs. A record costs a round
trip to put and two to take (reserve, delete), and that is the figure. Several connections would share the work, and
give up the order. A receiver deletes a job when it asks for the next one, as a worker does: a task
costs the same three round trips.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from . import servers
from .queue import One, Queue, Work
from .system import Receiver, Sender, System

JOB_BYTES = 8 << 20  # the default refuses a job of 64 KiB
LOG_BYTES = 64 << 20  # the default of 10 MiB begins a file for each hundred thousand small jobs
SYNC = {"durable": ("-f", "0"), "written": ("-F",)}

Client = Any  # greenstalk.Client; greenstalk is there only with the extra `bench`


class Beanstalkd(System):
    """One tube."""

    name = "beanstalkd"
    durabilities = frozenset(SYNC)
    chunk = 6_000

    def absent(self) -> str:
        return servers.absence("beanstalkd", "greenstalk")

    def versions(self) -> dict[str, str]:
        said = servers.said(servers.program("beanstalkd"), "-v")
        return {"beanstalkd": said.removeprefix("beanstalkd "), **servers.client_versions("greenstalk")}

    @contextmanager
    def serve(self, directory: Path, durability: str) -> Iterator[str]:
        with servers.short_path() as place:
            path = place / "beanstalkd"
            sizes = ("-z", str(JOB_BYTES), "-s", str(LOG_BYTES))
            command = [servers.program("beanstalkd"), "-l", f"unix:{path}", "-b", str(directory), *sizes]
            with servers.running([*command, *SYNC[durability]], directory / "beanstalkd.log", [path]):
                yield str(path)

    def create(self, address: str, stream: str) -> None:
        """Remove jobs of an earlier use; tubes exist while they are used."""
        import greenstalk

        with connect(address, stream) as client:
            try:
                while True:
                    client.delete(client.reserve(timeout=0))
            except greenstalk.TimedOutError:
                pass  # nothing is left

    def produce(self, address: str, stream: str, values: Sequence[bytes]) -> None:
        with self.sender(address, stream) as send:
            send(values)

    def consume(self, address: str, stream: str, count: int) -> Sequence[bytes]:
        with connect(address, stream) as client:
            values = []
            for _ in range(count):
                job = client.reserve(timeout=int(servers.PATIENCE_S))
                values.append(job.body)
                client.delete(job)
            return values

    @contextmanager
    def sender(self, address: str, stream: str) -> Iterator[Sender]:
        with connect(address, stream) as client:

            def send(values: Sequence[bytes]) -> None:
                for value in values:
                    client.put(value)

            yield send

    def acknowledged(self, address: str, stream: str) -> AbstractContextManager[Sender]:
        """A sender that waits for the answer to every put."""
        return self.sender(address, stream)

    @contextmanager
    def receiver(self, address: str, stream: str) -> Iterator[Receiver]:
        with connect(address, stream) as client:
            yield _receiver(client)


def _receiver(client: Client) -> Callable[[], Sequence[bytes]]:
    done: list[Any] = []

    def receive() -> Sequence[bytes]:
        while done:
            client.delete(done.pop())
        job = client.reserve(timeout=int(servers.PATIENCE_S))
        done.append(job)
        return [job.body]

    return receive


def connect(path: str, tube: str) -> Client:
    import greenstalk

    return greenstalk.Client(path, encoding=None, use=tube, watch=tube)


class Tube(Beanstalkd, Queue):
    """The task side."""

    chunk = 600

    def enqueue(self, address: str, queue: str, values: Sequence[bytes]) -> None:
        self.produce(address, queue, values)

    @contextmanager
    def worker(self, address: str, queue: str, batch: int) -> Iterator[Work]:
        import greenstalk

        with connect(address, queue) as client:

            def work() -> int:
                try:
                    client.delete(client.reserve(timeout=1))
                except greenstalk.TimedOutError:
                    return 0
                return 1

            yield work

    @contextmanager
    def one(self, address: str, queue: str) -> Iterator[One]:
        with connect(address, queue) as client:

            def life(value: bytes) -> None:
                client.put(value)
                client.delete(client.reserve(timeout=1))

            yield life


SYSTEM = Beanstalkd()
TASK_QUEUE = Tube()
