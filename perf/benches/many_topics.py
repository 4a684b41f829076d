"""The cost of 1,000 topics to an idle broker: processor time and disk."""

from __future__ import annotations

import time
from collections.abc import Iterator

import penstock

from ..lab.harness import Lab
from ..lab.rows import Row
from ..systems.broker import Served, serve

WATCHED_S = 5.0


def rows(lab: Lab) -> Iterator[Row]:
    topics = lab.count(1000, least=100)
    with lab.place() as place, serve(place) as broker:
        with penstock.connect(broker.url) as client:
            for number in range(topics):
                name = f"topic-{number:04}"
                client.create_topic(name)
                with client.producer(name) as producer:
                    producer.send(b"x" * 100)
        name = f"many: {topics:,} topics with one partition each, idle"
        yield Row(f"{name}: processor", "% of a core", lambda: _idle_share(broker), more_is_better=False, goal=2.0)
        yield Row(f"{name}: disk", "MiB", lambda: broker.disk_bytes() / 2**20, more_is_better=False, goal=4096.0)
        yield Row(f"{name}: broker memory", "MiB", broker.memory_mib, more_is_better=False)


def _idle_share(broker: Served) -> float:
    """Processor time of an idle broker and keeper."""
    before, begun = broker.cpu_s(), time.perf_counter()
    time.sleep(WATCHED_S)
    return (broker.cpu_s() - before) / (time.perf_counter() - begun) * 100
