"""Producing over ZeroMQ ipc from one client, acknowledged as durable, beside a bare DEALER and ROUTER.

The bare pair moves the same batches, encoded by the same function, in a window of the same size, and acknowledges
each as soon as it has arrived: no log, no checksum verified, no disk.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import penstock

from . import limits
from .harness import Lab
from .rows import Row
from .served import serve

VALUE = b"x" * 100


def rows(lab: Lab) -> Iterator[Row]:
    values = [b"%0100d" % number for number in range(limits.RECORDS)] * (lab.count(1_200_000) // limits.RECORDS or 1)
    with lab.place() as place, serve(place) as broker, penstock.connect(broker.url) as client:
        client.create_topic("produce", segment_bytes="256MB", retention_bytes="512MB")
        with client.producer("produce") as producer:
            producer.send_many(values[: limits.RECORDS])
            yield Row(
                "produce: send_many, batches of 256 KiB",
                "records/s",
                lambda: _many(producer, values),
                goal=2.5e6,
                limits={"bare DEALER/ROUTER": lambda: limits.dealer_router_records_per_s(values)},
                ratio_goals={"bare DEALER/ROUTER": 0.8},
                durability="durable",
                stated="produce",
            )
            count = lab.count(400_000)
            yield Row(
                "produce: send_nowait one by one",
                "records/s",
                lambda: _nowait(producer, count),
                goal=1e6,
                limits={"empty loop": lambda: 1e9 / limits.empty_loop_ns()},
                durability="durable",
            )


def _many(producer: penstock.Producer, values: Sequence[bytes]) -> float:
    begun = time.perf_counter()
    producer.send_many(values)
    producer.flush()
    return len(values) / (time.perf_counter() - begun)


def _nowait(producer: penstock.Producer, count: int) -> float:
    send = producer.send_nowait
    begun = time.perf_counter()
    for _ in range(count):
        send(VALUE)
    producer.flush()
    return count / (time.perf_counter() - begun)
