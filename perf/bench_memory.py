"""Broker memory with a consumer a million records behind, and with one that has joined and never reads.

The bound: whatever consumers do, the broker's own memory grows by at most their credit, and stays under BOUND_MIB
above what it was before. Mapped files do not count: the kernel takes them back when it needs the space.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice

import penstock

from .harness import Lab, Row
from .served import Served, serve

BOUND_MIB = 64.0
STEP = 50_000
NUMBERS = count()


def rows(lab: Lab) -> Iterator[Row]:
    behind = lab.count(1_000_000)
    with lab.place() as place, serve(place) as broker, penstock.connect(broker.url) as client:
        values = [b"x" * 100] * STEP
        yield Row(
            "memory: broker growth, a consumer that joined and never reads",
            "MiB",
            lambda: _never_reads(broker, client, values, behind),
            False,
            BOUND_MIB,
            note=f"while {behind:,} records of 100 bytes were produced",
        )
        yield Row(
            "memory: broker growth, a consumer that catches up from far behind",
            "MiB",
            lambda: _catches_up(broker, client, values, behind),
            False,
            BOUND_MIB,
            note=f"from {behind:,} records behind, the largest of samples taken every {STEP:,} records",
        )


def _never_reads(broker: Served, client: penstock.Client, values: list[bytes], behind: int) -> float:
    topic = _fresh(client)
    with client.consumer(topic, group="idle", start="earliest", delivery="push") as consumer:
        consumer.fetch(max_records=1, wait=0.1)
        before = broker.memory_mib()
        with client.producer(topic) as producer:
            for _ in range(behind // STEP):
                producer.send_many(values)
        growth = broker.memory_mib() - before
    client.delete_topic(topic)
    return growth


def _catches_up(broker: Served, client: penstock.Client, values: list[bytes], behind: int) -> float:
    topic = _fresh(client)
    with client.producer(topic) as producer:
        for _ in range(behind // STEP):
            producer.send_many(values)
    before = most = broker.memory_mib()
    with client.consumer(topic, group="late", start="earliest", delivery="push") as consumer:
        records = iter(consumer)
        for _ in range(behind // STEP):
            assert sum(1 for _ in islice(records, STEP)) == STEP
            most = max(most, broker.memory_mib())
        consumer.commit()
    client.delete_topic(topic)
    return most - before


def _fresh(client: penstock.Client) -> str:
    """A topic nobody has used."""
    name = f"memory-{next(NUMBERS)}"
    client.create_topic(name)
    return name
