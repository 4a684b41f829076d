"""A worker of the demo: takes late flights off the queue, fails where it is told to, and reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..broker.errors import LeaseLost
from ..clients import connect
from .late import failures, minutes_late
from .roles import Conductor, RoleDone
from .tally import fingerprint

if TYPE_CHECKING:
    from ..clients import SettleFuture, Task, Worker

MOST = 1000
"""Tasks per lease."""

WAIT_S = 0.05
"""How long a fetch waits for the first task: a Stop is looked for in between."""


class Worked(msgspec.Struct):
    """The report of one worker."""

    completed: int = 0
    failed: int = 0
    lost: int = 0  # leases that another worker held by the time the work was done


def work(conductor: Conductor) -> None:
    """Work until told to stop, then write the report."""
    order = conductor.wait_for_go()
    if order is None:
        return
    worked = Worked()
    with connect(order.url) as client, client.worker(order.topic, group=order.group) as worker:
        while not conductor.should_stop():
            tasks = worker.fetch(MOST, WAIT_S)
            if tasks:
                _work_off(worker, tasks, worked)
                conductor.progress(worked.completed)
    Path(order.report).write_bytes(msgspec.msgpack.encode(worked))
    conductor.say(RoleDone(worked.completed, 0.0))


def _work_off(worker: Worker, tasks: Sequence[Task], worked: Worked) -> None:
    """Process one lease: tasks that succeed are acked with their results, failures are retried."""
    acks: list[SettleFuture] = []
    failed: dict[int, list[Task]] = {}
    for task in tasks:
        if task.attempt > failures(fingerprint(task.value)):
            acks.append(worker.ack_nowait(task, b"%d" % minutes_late(task.value)))
        else:
            failed.setdefault(task.attempt, []).append(task)
    for attempt, some in failed.items():
        try:
            worker.nack(some, reason=f"failure injected into attempt {attempt}")
            worked.failed += len(some)
        except LeaseLost:
            worked.lost += len(some)
    for ack in acks:
        try:
            ack.result()
            worked.completed += 1
        except LeaseLost:
            worked.lost += 1
