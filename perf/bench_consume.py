"""Consuming a stored topic: over PUSH and PULL, and mapped; as objects, and as Arrow batches.

A sample is a new consumer that reads the topic from the first record to the last. Beside it, a bare PUSH hands the
same bytes to a PULL that does not look at them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from itertools import islice

import penstock

from . import limits
from .harness import Lab
from .rows import Row
from .served import serve

GOALS = {("push", "objects"): 3e6, ("push", "Arrow"): 10e6, ("mapped", "objects"): 4e6, ("mapped", "Arrow"): 50e6}


def rows(lab: Lab) -> Iterator[Row]:
    batches = lab.count(1_200_000) // limits.RECORDS or 1
    count = batches * limits.RECORDS
    bare = {"bare PUSH/PULL": lambda: limits.push_pull_records_per_s(count)}
    with lab.place() as place, serve(place) as broker, penstock.connect(broker.url) as client:
        client.create_topic("consume", segment_bytes="256MB")
        with client.producer("consume") as producer:
            producer.send_many([b"%0100d" % number for number in range(limits.RECORDS)] * batches)
        for (delivery, form), goal in GOALS.items():
            read = {"objects": _objects, "Arrow": _arrow}[form]
            yield Row(
                f"consume: {'PUSH/PULL' if delivery == 'push' else 'mapped'}, as {form}",
                "records/s",
                lambda read=read, delivery=delivery: read(client, delivery, count),
                goal=goal,
                limits=bare,
            )
        yield Row(
            "consume: mapped, as Arrow, verify=False",
            "records/s",
            lambda: _arrow(client, "mapped", count, verify=False),
            limits=bare,
        )


def _objects(client: penstock.Client, delivery: str, count: int) -> float:
    with client.consumer("consume", start="earliest", delivery=delivery) as consumer:
        first = next(iter(consumer))
        begun = time.perf_counter()
        deque(islice(consumer, count - 1 - first.offset), maxlen=0)
        return count / (time.perf_counter() - begun)


def _arrow(client: penstock.Client, delivery: str, count: int, *, verify: bool = True) -> float:
    with client.consumer("consume", start="earliest", delivery=delivery, verify=verify) as consumer:
        batches = consumer.batches("arrow")
        seen = begin = next(batches).num_rows
        begun = time.perf_counter()
        while seen < count:
            seen += next(batches).num_rows
        return (count - begin) / (time.perf_counter() - begun)
