"""Time for one record: acknowledged as durable in a closed loop, and delivered to an idle mapped reader.

The disk is measured at the same pace: an fdatasync right after another is cheaper than one after a pause, so the
limit beside a round trip of L is the median fdatasync of a loop that makes one every L.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import penstock

from . import limits
from .harness import Lab
from .rows import Row
from .served import Served, serve

PACE_S = 0.001
SAME_PACE = "fdatasync at the same pace"
BARE = "bare ZeroMQ ipc one way"


def rows(lab: Lab) -> Iterator[Row]:
    rounds = lab.count(1000, least=100)
    with lab.place() as place, serve(place) as broker, penstock.connect(broker.url) as client:
        client.create_topic("durable")
        client.create_topic("written", commit="written")
        with client.producer("durable") as producer:
            taken = [_closed_loop_us(producer, 100)]

            def durable() -> float:
                taken.append(_closed_loop_us(producer, rounds))
                return taken[-1]

            yield Row(
                "latency: one durable record, closed loop",
                "us",
                durable,
                False,
                limits={SAME_PACE: lambda: limits.fdatasync_us(lab.directory, taken[-1] / 1e6)},
                ratio_goals={SAME_PACE: 1.5},
                durability="durable",
                stated="durable record",
            )
        yield from _idle_reader(broker, client, rounds)


def _idle_reader(broker: Served, client: penstock.Client, rounds: int) -> Iterator[Row]:
    """A goal of 1.2 times the bare one-way and 40 us is a goal for what is left after taking 40 us away."""
    for delivery, goal in (("mapped", 1.2), ("push", None)):
        with client.producer("written") as producer:
            yield Row(
                f"latency: send to an idle {delivery} reader, one way, less 40 us",
                "us",
                lambda producer=producer, delivery=delivery: _one_way_us(broker, producer, delivery, rounds) - 40,
                False,
                limits={BARE: limits.one_way_us},
                ratio_goals={} if goal is None else {BARE: goal},
                durability="written",
            )


def _closed_loop_us(producer: penstock.Producer, rounds: int) -> float:
    took = []
    for _ in range(rounds):
        begun = time.perf_counter()
        producer.send(b"x" * 100)
        took.append(time.perf_counter() - begun)
    return statistics.median(took) * 1e6


def _one_way_us(broker: Served, producer: penstock.Producer, delivery: str, rounds: int) -> float:
    """From before `send` to after the reader's `fetch`, at a pace that leaves the reader idle in between."""
    with limits.peer("reader", broker.url, "written", delivery, str(rounds)) as reader:
        for _ in range(rounds):
            limits.wait_until(time.perf_counter() + PACE_S)
            producer.send(time.perf_counter_ns().to_bytes(8, "little") + bytes(92))
        assert reader.stdout
        return float(reader.stdout.readline())
