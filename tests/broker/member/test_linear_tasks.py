"""What clients of three real nodes see of tasks, while nodes are killed, could have happened at one queue in order."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from math import inf
from pathlib import Path

import penstock
import pytest
from penstock.errors import LeaseLost
from support.cluster import ClusterProcesses
from support.cluster_load import PATIENCE_S, Repeating
from support.linear import Operation, TaskState, linearized, task_step

LEASE_S = 3.0


def holds(*operations: tuple) -> bool:
    return linearized([Operation(*each) for each in operations], TaskState(), task_step)


def test_the_checker_knows_what_one_queue_could_have_said():
    put, lease, ack = ("put", 0, 1), ("lease", 2, 3, 1), ("ack", 4, 5, 1)
    assert holds(put, lease, ack)
    assert holds(lease, ack, put), "given in any order"
    assert not holds(("put", 4, 5), lease), "before it was put"
    assert holds(("put", 0, inf), lease, ack), "a put that has no answer"
    assert not holds(put, lease, ack, ("lease", 6, 7, 2)), "an acked task does not come back"
    assert holds(put, lease, ("ack", 4, inf, 1), ("lease", 6, 7, 2), ("ack", 8, 9, 2)), "unless that has no answer"
    assert not holds(put, lease, ("lease", 4, 5, 1)), "no two leases of one attempt"
    assert holds(put, lease, ("lease", 4, 5, 3)), "one that no worker heard of is an attempt"
    assert not holds(put, lease, ("lease", 4, 5, 2), ("ack", 6, 7, 1)), "fenced"
    assert not holds(put, lease, ("lease", 4, 7, 2), ("ack", 5, 6, 1)), "the second lease cannot follow the ack"
    assert not holds(put, lease, ("lease", 4, 5, 2), ("nack", 6, 7, 1)), "nor by a nack"
    assert not holds(put, lease, ("lost", 4, 5, 1), ("ack", 6, 7, 1)), "lost is lost"
    assert holds(put, lease, ("lease", 4, 5, 2), ("lost", 6, 7, 1), ("ack", 8, 9, 2))
    assert holds(put, lease, ("nack", 4, 5, 1), ("lease", 6, 7, 2))
    assert not holds(put, lease, ("nack", 4, 5, 1), ("ack", 6, 7, 1))
    assert not holds(put, ("put", 2, 3)), "a resend is no second task"


class History:
    """What clients did, by task."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.by_task: dict[bytes, list[Operation]] = defaultdict(list)

    def note(self, task: bytes, what: str, begin: float, end: float, attempt: int | None = None) -> None:
        with self._lock:
            self.by_task[task].append(Operation(what, begin, end, attempt))

    def check(self) -> None:
        """Every task could have been at one queue, and every one that was put is done."""
        for task, operations in self.by_task.items():
            in_order = sorted(operations, key=lambda operation: operation.begin)
            assert linearized(operations, TaskState(), task_step), f"{task!r}: {in_order}"


def putting(history: History, topic: str) -> Callable[[penstock.Client], Callable[[], None]]:
    def make(client: penstock.Client) -> Callable[[], None]:
        producer, numbers = client.producer(topic), iter(range(1_000_000))

        def once() -> None:
            task, begin = b"%d" % next(numbers), time.monotonic()
            producer.send(task)
            history.note(task, "put", begin, time.monotonic())

        return once

    return make


def settling(history: History, topic: str, seed: int) -> Callable[[penstock.Client], Callable[[], None]]:
    chance = random.Random(seed)

    def make(client: penstock.Client) -> Callable[[], None]:
        worker = client.worker(topic, group="w", lease=LEASE_S, prefetch=0)

        def once() -> None:
            begin = time.monotonic()
            tasks = worker.fetch(max_records=3, wait=0.2)
            end = time.monotonic()
            for task in tasks:
                history.note(task.value or b"", "lease", begin, end, task.attempt)
            for task in tasks:
                settle(task)

        def settle(task: penstock.Task) -> None:
            what, begin, end = "ack" if chance.random() < 0.7 else "nack", time.monotonic(), inf
            try:
                with suppress(penstock.errors.TimedOut):  # it may yet happen
                    task.ack() if what == "ack" else task.nack(delay=0)
                    end = time.monotonic()
            except LeaseLost:
                what, end = "lost", time.monotonic()
            history.note(task.value or b"", what, begin, end, task.attempt)

        return once

    return make


def run(folder: Path, kills: int) -> None:
    history = History()
    with ClusterProcesses(folder) as cluster:
        cluster.leader()
        with penstock.connect(cluster.url, timeout=PATIENCE_S) as client:
            client.create_topic("tasks", partitions=1)
            client.set_queue("tasks", "w", max_attempts=1000, lease_s=LEASE_S)
        workers = [Repeating(cluster.url, settling(history, "tasks", seed)) for seed in range(2)]
        with workers[0], workers[1]:
            with Repeating(cluster.url, putting(history, "tasks")) as putter:
                for _ in range(kills):
                    putter.more(15)
                    with cluster.without_leader():
                        putter.more(15)
            wanted = set(history.by_task)
            while not all(is_done(history.by_task[task]) for task in wanted):
                workers[0].more(1)
                workers[1].more(1)
    history.check()
    assert sum(len(each) for each in history.by_task.values()) > 60 * kills


def is_done(operations: list[Operation]) -> bool:
    """Whether a task was acked, as far as that was answered, or may have been."""
    return any(each.what == "ack" for each in list(operations))


def test_histories_of_tasks_are_linearizable_while_leaders_are_killed(tmp_path: Path) -> None:
    run(tmp_path, kills=2)


@pytest.mark.soak
def test_long_histories_of_tasks_are_linearizable(tmp_path: Path) -> None:
    run(tmp_path, kills=40)
