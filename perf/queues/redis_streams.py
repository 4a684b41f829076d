"""Redis Streams as a task queue: a consumer group, redis-py with hiredis over a Unix socket.

Tasks are put in by a script for a thousand at once, the fastest way there is; a worker reads a batch with XREADGROUP
and finishes it with one XACK. Both change the file, and `appendfsync always` syncs each. A finished entry stays in the
stream, as a record does in a log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

from ..systems import redis_streams
from .queue import One, Queue, Work

GROUP = "lab"
SYSTEM = next(system for system in redis_streams.SYSTEMS if "script" in system.name)


class RedisGroup(Queue):
    """One stream with one group."""

    name = "Redis Streams, consumer group"
    durabilities = SYSTEM.durabilities
    chunk = 15_000

    def absent(self) -> str:
        return SYSTEM.absent()

    def versions(self) -> dict[str, str]:
        return SYSTEM.versions()

    def serve(self, directory: Path, durability: str) -> AbstractContextManager[str]:
        return SYSTEM.serve(directory, durability)

    def create(self, address: str, queue: str) -> None:
        with closing(redis_streams.connect(address)) as client:
            client.delete(queue)
            client.execute_command("XGROUP", "CREATE", queue, GROUP, "0", "MKSTREAM")

    def enqueue(self, address: str, queue: str, values: Sequence[bytes]) -> None:
        SYSTEM.produce(address, queue, values)

    @contextmanager
    def worker(self, address: str, queue: str, batch: int) -> Iterator[Work]:
        with closing(redis_streams.connect(address)) as client:
            name = f"worker-{client.client_id()}"

            def work() -> int:
                return _work(client, queue, name, batch)

            yield work

    @contextmanager
    def one(self, address: str, queue: str) -> Iterator[One]:
        with closing(redis_streams.connect(address)) as client:

            def life(value: bytes) -> None:
                client.execute_command("XADD", queue, "*", redis_streams.FIELD, value)
                if _work(client, queue, "one", 1) != 1:
                    raise RuntimeError("the entry that was just added was not given out")

            yield life


def _work(client: Any, queue: str, name: str, batch: int) -> int:
    read = ("XREADGROUP", "GROUP", GROUP, name, "COUNT", batch, "BLOCK", 1000, "STREAMS", queue, ">")
    reply = client.execute_command(*read)
    if not reply:
        return 0
    ids = [id_ for id_, _ in reply[0][1]]
    client.execute_command("XACK", queue, GROUP, *ids)
    return len(ids)


QUEUES = [RedisGroup()]
