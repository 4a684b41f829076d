"""Broker memory with a consumer a million records behind, and with one that has joined and never reads.

The bound: whatever consumers do, the broker's own memory stays within BOUND_MIB of its size when they had joined,
including credit, socket buffers and Python's arenas. Mapped files do not count: the kernel takes them back when it
needs the space. Each sample is a new broker: memory once grown does not show growth again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import penstock

from ..lab.harness import Lab
from ..lab.rows import Row
from ..systems.broker import Served, serve

BOUND_MIB = 32.0
STEP = 50_000
VALUES = [b"x" * 100] * STEP


def rows(lab: Lab) -> Iterator[Row]:
    behind = lab.count(1_000_000, least=STEP)
    for name, measure in (
        ("a consumer that joined and never reads", _never_reads),
        ("a consumer that catches up from far behind", _catches_up),
    ):
        yield Row(
            f"memory: broker growth, {name}",
            "MiB",
            lambda measure=measure: _on_a_fresh_broker(lab, measure, behind // STEP),
            more_is_better=False,
            goal=BOUND_MIB,
            note=f"the most over {behind:,} records of 100 bytes, looked at every {STEP:,}",
        )


def _on_a_fresh_broker(lab: Lab, measure, steps: int) -> float:
    with lab.place() as place, serve(place) as broker, penstock.connect(broker.url) as client:
        client.create_topic("memory")
        return measure(broker, client, steps)


def _never_reads(broker: Served, client: penstock.Client, steps: int) -> float:
    with client.consumer("memory", group="idle", delivery="push"), client.producer("memory") as producer:
        before = broker.memory_mib()
        return max(_after(broker, lambda: producer.send_many(VALUES)) for _ in range(steps)) - before


def _catches_up(broker: Served, client: penstock.Client, steps: int) -> float:
    with client.producer("memory") as producer:
        for _ in range(steps):
            producer.send_many(VALUES)
    with client.consumer("memory", group="late", delivery="push") as consumer:
        before, records = broker.memory_mib(), iter(consumer)
        return max(_after(broker, lambda: sum(1 for _ in islice(records, STEP))) for _ in range(steps)) - before


def _after(broker: Served, step) -> float:
    step()
    return broker.memory_mib()
