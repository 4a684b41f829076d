"""Penstock as a cluster of three nodes over Unix sockets. A majority has fsynced what is acknowledged: `durable`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import penstock
from penstock.demo.nodes import Nodes

from .cluster import Cluster, Puts

TOPIC = "values"
PATIENCE_S = 60.0


class PenstockCluster(Cluster):
    """See the module."""

    name = "penstock"
    durability = "durable"
    chunk = 500_000

    def absent(self) -> str:
        return ""

    @contextmanager
    def serve(self, directory: Path) -> Iterator[str]:
        with running(directory) as nodes:
            yield nodes.unix

    @contextmanager
    def client(self, address: str) -> Iterator[Puts]:
        with penstock.connect(address, timeout=PATIENCE_S) as client:
            client.create_topic(TOPIC, if_missing=True, segment_bytes="64MB", retention_bytes="128MB")
            with client.producer(TOPIC) as producer:

                def many(values: Sequence[bytes], window: int) -> None:
                    out: deque[penstock.Future[int]] = deque()
                    for value in values:
                        out.append(producer.send_nowait(value))
                        if len(out) == window:
                            out.popleft().result()
                    for future in out:
                        future.result()

                def one(value: bytes) -> None:
                    producer.send(value)

                def batches(values: Sequence[bytes]) -> None:
                    producer.send_many(values)

                yield Puts(one, many, batches)


@contextmanager
def running(directory: Path) -> Iterator[Nodes]:
    """Three nodes, once one leads."""
    nodes = Nodes(directory)
    try:
        nodes.wait()
        yield nodes
    finally:
        nodes.close()


REPLICATED = PenstockCluster()
