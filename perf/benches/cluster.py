"""One replicated shard: three nodes on this machine, beside other replicated systems of three servers each.

All six or more processes share two processors, so every figure is one of processor time as much as of waiting. A value
has 100 bytes and counts once a majority has it. Failover is from SIGKILL of the leader to the next acknowledged record.
"""

from __future__ import annotations

import math
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import penstock

from ..bare import limits, unix_sockets
from ..lab.harness import Lab
from ..lab.rows import Absent, Row, Sample
from ..load import peers
from ..systems import every_cluster
from ..systems.broker import cpu_s
from ..systems.cluster import Cluster, Puts
from ..systems.penstock_cluster import REPLICATED, TOPIC, running

LONE = 300
WINDOW, WINDOWED = 100, 20_000
CLIENTS, COMMANDS = 100, 8_000
KILLS, KILLS_FULL = 10, 100
PARTITIONS, IDLE_S = 1_000, 10.0
PATIENCE_S = 60.0
PACE_S = 0.001
WORK_US = 300
LEAST = "four ways of a bare Unix socket, one fdatasync, 300 us"
PEERS = [each for each in every_cluster() if each is not REPLICATED]
FIVE_TIMES_EACH = {each.name: 5.0 for each in PEERS}

Measure = Callable[[Cluster, Puts], float]


def rows(lab: Lab) -> Iterator[Row]:
    lone, windowed = lab.count(LONE, least=20), lab.count(WINDOWED, least=WINDOW)
    with lab.place() as place, REPLICATED.serve(place) as address:
        with REPLICATED.client(address) as puts:
            yield _row(
                lab, "cluster: one record after the other", "us", puts, partial(_lone_us, count=lone),
                limits={LEAST: partial(_least_us, lab)}, ratio_goals={LEAST: 1.0},
            )  # fmt: skip
            yield _row(
                lab, f"cluster: {WINDOW} sends on their way", "records/s", puts,
                partial(_windowed_per_s, count=windowed), goal=40_000, ratio_goals=FIVE_TIMES_EACH,
            )  # fmt: skip
            yield _row(
                lab, "cluster: at the rate of the client", "records/s", puts, partial(_batches_per_s, lab=lab),
                goal=1_000_000, ratio_goals=FIVE_TIMES_EACH,
            )  # fmt: skip
        commands = lab.count(COMMANDS, least=CLIENTS)
        yield Row(
            f"cluster: lone sends of {CLIENTS} clients", "records/s", partial(_commands_per_s, address, commands),
            goal=8_000, durability="durable", note="threads of this process, each with a connection of its own",
        )  # fmt: skip
    yield from _failover(lab)
    yield Row(
        f"cluster: idle with {PARTITIONS:,} partitions", "% of a processor", partial(_idle_percent, lab),
        more_is_better=False, goal=3.0, note="the node that takes most",
    )  # fmt: skip


def _row(lab: Lab, name: str, unit: str, puts: Puts, measure: Measure, **bounds: Any) -> Row:
    return Row(
        name, unit, lambda: measure(REPLICATED, puts), more_is_better=unit == "records/s",
        peers={each.name: partial(_beside, lab, each, measure) for each in PEERS}, durability=REPLICATED.durability,
        **bounds,
    )  # fmt: skip


def _least_us(lab: Lab) -> float:
    """To the leader, to a follower, back and back: what no cluster of three processes can do without, and some time to
    work in."""
    return 4 * unix_sockets.one_way_us() + limits.fdatasync_us(lab.directory, PACE_S) + WORK_US


@contextmanager
def _beside(lab: Lab, cluster: Cluster, measure: Measure) -> Iterator[Sample]:
    if reason := cluster.absent():
        raise Absent(reason)
    with lab.place() as place, cluster.serve(place) as address, cluster.client(address) as puts:
        yield lambda: measure(cluster, puts)


def _lone_us(cluster: Cluster, puts: Puts, count: int) -> float:
    took: list[float] = []
    for value in peers.values(count):
        begun = time.perf_counter()
        puts.one(value)
        took.append(time.perf_counter() - begun)
    return statistics.median(took) * 1e6


def _windowed_per_s(cluster: Cluster, puts: Puts, count: int) -> float:
    values = peers.values(count if cluster is REPLICATED else cluster.chunk)
    return len(values) / _took_s(lambda: puts.many(values, WINDOW))


def _batches_per_s(cluster: Cluster, puts: Puts, lab: Lab) -> float:
    values = peers.values(lab.count(cluster.chunk, least=100))
    return len(values) / _took_s(lambda: puts.batches(values))


def _took_s(work: Callable[[], None]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _commands_per_s(address: str, count: int) -> float:
    """Sends of many threads, each one after the other."""
    begin, left = threading.Barrier(CLIENTS + 1), iter(range(count))
    taking = threading.Lock()

    def work() -> None:
        with penstock.connect(address, timeout=PATIENCE_S) as client, client.producer(TOPIC) as producer:
            producer.send(b"first")
            begin.wait()
            while True:
                with taking:
                    if next(left, None) is None:
                        return
                producer.send(b"v" * peers.RECORD_BYTES)

    threads = [threading.Thread(target=work) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    begin.wait()
    return count / _took_s(lambda: [thread.join() for thread in threads] and None)


def _failover(lab: Lab) -> Iterator[Row]:
    kills = lab.count(KILLS_FULL if lab.full else KILLS, least=1)
    found: list[float] = []

    def measured() -> list[float]:
        if not found:
            found.extend(sorted(_failovers_s(lab, kills)))
        return found

    for name, part, goal in (("median", 0.5, 1.0), ("99th percentile", 0.99, 3.0), ("worst", 1.0, None)):
        yield Row(
            f"cluster: failover, {name}", "s", lambda part=part: measured()[math.ceil(part * kills) - 1],
            more_is_better=False, goal=goal, durability="durable", note=f"{kills} kills of the leader, in one run",
        )  # fmt: skip


def _failovers_s(lab: Lab, kills: int) -> list[float]:
    with lab.place() as place, running(place) as nodes, penstock.connect(nodes.unix, timeout=PATIENCE_S) as client:
        client.create_topic(TOPIC)
        found: list[float] = []
        with client.producer(TOPIC) as producer:
            for _ in range(kills):
                producer.send(b"before")
                leader = nodes.leader()
                killed, begun = leader.pid, time.perf_counter()
                os.kill(killed, signal.SIGKILL)
                producer.send(b"after")
                found.append(time.perf_counter() - begun)
                nodes.until(lambda leader=leader, killed=killed: leader.pid not in (killed, -1))
        return found


def _idle_percent(lab: Lab) -> float:
    with lab.place() as place, running(place) as nodes, penstock.connect(nodes.unix, timeout=PATIENCE_S) as client:
        client.create_topic(TOPIC, partitions=PARTITIONS)
        client.close()
        time.sleep(IDLE_S / 2)
        before = {node.pid: cpu_s(node.pid) for node in nodes.nodes}
        time.sleep(IDLE_S)
        return max(cpu_s(pid) - used for pid, used in before.items()) / IDLE_S * 100
