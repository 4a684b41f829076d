"""Groups of tasks on three real nodes whose leaders are killed: each callback comes once, with all results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import penstock
import pytest
from penstock.errors import LeaseLost
from support.cluster import ClusterProcesses
from support.cluster_load import PATIENCE_S, Repeating, stored

MEMBERS = 3
LEASE_S = 3.0


def sending(names: list[str]) -> Callable[[penstock.Client], Callable[[], None]]:
    """Sends groups one after the other, and notes those that are sent."""

    def make(client: penstock.Client) -> Callable[[], None]:
        def once() -> None:
            name = f"group-{len(names)}"
            tasks = [penstock.GroupTask("parts", "w", f"{name}/{each}".encode()) for each in range(MEMBERS)]
            client.send_group(tasks, then=penstock.Callback("totals"))
            names.append(name)

        return once

    return make


def working(client: penstock.Client) -> Callable[[], None]:
    """Completes tasks with what they are as their results."""
    worker = client.worker("parts", group="w", lease=LEASE_S, prefetch=0)

    def once() -> None:
        for task in worker.fetch(max_records=MEMBERS, wait=0.2):
            with suppress(LeaseLost):
                task.ack(result=task.value)

    return once


def run(folder: Path, kills: int) -> None:
    names: list[str] = []
    with ClusterProcesses(folder) as cluster:
        cluster.leader()
        with penstock.connect(cluster.url, timeout=PATIENCE_S) as client:
            client.create_topic("parts", partitions=2)
            client.create_topic("totals", partitions=1)
            client.set_queue("parts", "w", max_attempts=1000, lease_s=LEASE_S)
        workers = [Repeating(cluster.url, working) for _ in range(2)]
        with workers[0], workers[1]:
            with Repeating(cluster.url, sending(names)) as sender:
                for _ in range(kills):
                    sender.more(8)
                    with cluster.without_leader():
                        sender.more(8)
            with penstock.connect(cluster.url, timeout=PATIENCE_S) as client:
                while client.barriers():
                    workers[0].more(1)
                while client.queue("parts", "w").depth:
                    workers[0].more(1)
        callbacks = stored(cluster.url, "totals", 1)[0]
    assert Counter(map(group_of, callbacks)) == dict.fromkeys(names, 1)
    assert len(names) >= 16 * kills


def group_of(value: bytes) -> str:
    """The group of a callback's record, whose members have all completed."""
    words = msgspec.msgpack.decode(value, type=list[tuple[str, bytes, str]])
    names = [result.decode().partition("/") for _, result, _ in words]
    assert {state for state, _, _ in words} == {"completed"}
    assert [number for _, _, number in names] == [str(each) for each in range(MEMBERS)]
    (name,) = {name for name, _, _ in names}
    return name


def test_each_callback_comes_once_while_leaders_are_killed(tmp_path: Path) -> None:
    run(tmp_path, kills=2)


@pytest.mark.soak
def test_each_callback_comes_once_however_often_leaders_are_killed(tmp_path: Path) -> None:
    run(tmp_path, kills=30)
