"""Celery's no-op tasks over penstock beside Celery over Redis that syncs each command, with the same workers.

A whole life is put in by one process and worked off by two workers meanwhile. Put in is one process alone, a commit for
each task; worked off is a backlog, by two workers, from the first to the last of its tasks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from ..lab.harness import Lab
from ..lab.rows import Beside, Row, Sample
from ..load import work
from ..systems import queue_named
from ..systems.queue import Queue

OURS, PEER = "Celery on penstock", "Celery on Redis"
WARM = 20
TASKS = 1_000
GOAL = 2.0
Measure = Callable[..., float]


def rows(lab: Lab) -> Iterator[Row]:
    tasks = lab.count(TASKS, least=50)
    for what, measure, goal in (
        ("whole life", work.lives_per_s, GOAL),
        ("put in", put_in_per_s, None),
        ("worked off", worked_off_per_s, GOAL),
    ):
        note = f"{tasks:,} no-op tasks, {work.WORKERS} solo workers"
        yield _row(lab, what, partial(measure, tasks=tasks), goal, note)


def _row(lab: Lab, what: str, measure: Measure, goal: float | None, note: str) -> Row:
    ours = queue_named(OURS)

    def sample() -> float:
        with work.served(lab, ours, "durable") as address:
            return measure(ours, address)

    return Row(
        f"celery: {what}", "tasks/s", sample, peers=_peer(lab, measure), durability="durable", note=note,
        ratio_goals={PEER: goal} if goal else {}, stated="celery" if what == "whole life" else "",
    )  # fmt: skip


def _peer(lab: Lab, measure: Measure) -> Mapping[str, Beside[Sample]]:
    peer = queue_named(PEER)

    @contextmanager
    def enter() -> Iterator[Sample]:
        with work.served(lab, peer, "durable") as address:
            yield lambda: measure(peer, address)

    return {PEER: enter}


def put_in_per_s(queue: Queue, address: str, tasks: int) -> float:
    """Tasks a second that one process puts in, each committed before the next; nothing works."""
    name = work.fresh(queue, address)
    queue.enqueue(address, name, [b""] * WARM)
    begun = time.perf_counter()
    queue.enqueue(address, name, [b""] * tasks)
    return tasks / (time.perf_counter() - begun)


def worked_off_per_s(queue: Queue, address: str, tasks: int) -> float:
    """Tasks of a backlog that workers finish in a second, from when the first of them is at work."""
    name = work.fresh(queue, address)
    for _ in range(work.WORKERS):
        queue.enqueue(address, name, [b""] * WARM)
    queue.enqueue(address, name, [b""] * tasks)
    with queue.workers(address, name, work.BATCH, work.WORKERS) as finished:
        work.wait(finished, WARM)
        begun = time.perf_counter()
        work.wait(finished, work.WORKERS * WARM + tasks)
        return tasks / (time.perf_counter() - begun)
