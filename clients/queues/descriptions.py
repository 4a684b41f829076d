"""Descriptions of queues, tasks and schedules, as clients return them: frozen values, detached from the wire."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from ...storage.record import NO_HEADERS, Record
from ...transport import messages, queue_messages
from ..descriptions import instant, moment
from .picking import Unreadable, pick
from .task_ids import task_id

STATES = {"waiting": "retrying", "dead": "dead-lettered"}
"""States of a task that the wire names otherwise."""

FINAL = frozenset({"completed", "dead-lettered", "discarded", "cancelled"})
"""States in which a task stays unless it is redriven."""


class Failure(msgspec.Struct, frozen=True):
    """One attempt that failed. Made by `Client.task`."""

    time: datetime
    worker: str
    reason: str


class QueuePartition(msgspec.Struct, frozen=True):
    """A queue group on one partition. Every record is counted once, finished ones not at all.

    Made by `Client.queue`.
    """

    partition: int
    ready: int
    in_flight: int
    delayed: int
    retrying: int
    dead_lettered: int
    oldest: datetime | None
    paused_until: datetime | None


class Queue(msgspec.Struct, frozen=True):
    """One queue group of one topic. `unavailable`: partitions on which it cannot work, because they are damaged.

    Made by `Client.queue`.
    """

    topic: str
    name: str
    settings: dict[str, Any]
    partitions: list[QueuePartition]
    unavailable: list[int] = []

    @property
    def ready(self) -> int:
        """Records that could be leased now, but for limits and order of keys."""
        return sum(partition.ready for partition in self.partitions)

    @property
    def in_flight(self) -> int:
        """Records that workers have."""
        return sum(partition.in_flight for partition in self.partitions)

    @property
    def delayed(self) -> int:
        """Records that their producer has delayed."""
        return sum(partition.delayed for partition in self.partitions)

    @property
    def retrying(self) -> int:
        """Records that failed and will be retried."""
        return sum(partition.retrying for partition in self.partitions)

    @property
    def dead_lettered(self) -> int:
        """Records that failed for good. They are retried only when redriven."""
        return sum(partition.dead_lettered for partition in self.partitions)

    @property
    def depth(self) -> int:
        """Records that are not finished: ready, in flight, delayed and retrying."""
        return self.ready + self.in_flight + self.delayed + self.retrying

    @property
    def oldest(self) -> datetime | None:
        """When the oldest record that is ready, retrying or in flight was appended."""
        return min((partition.oldest for partition in self.partitions if partition.oldest is not None), default=None)

    @property
    def paused_until(self) -> datetime | None:
        """When the pause ends; None if the group is not paused."""
        found = (partition.paused_until for partition in self.partitions if partition.paused_until is not None)
        return max(found, default=None)


class TaskInfo(msgspec.Struct, frozen=True):
    """One record as a queue group has it. Made by `Client.task`.

    `state` is pending, delayed, leased, retrying, completed, dead-lettered, discarded or cancelled. `why` is a sentence
    that says what holds the task back or what became of it. `attempt` is that of the latest lease, or of the one that
    gave the result, and 0 before the first, and once cancelled or discarded. `time` is the moment until which the task
    is delayed, retrying or leased, or at which it was dead-lettered, discarded, cancelled or completed. A task acked
    without a result has neither, and one leased until it is settled has no `time`. `given` is when `worker` got it.
    """

    id: str
    group: str
    state: str
    attempt: int
    why: str
    worker: str
    time: datetime | None
    reason: str
    result: bytes | None
    progress: bytes | None
    cancelling: bool
    history: list[Failure]
    given: datetime | None = None

    @property
    def final(self) -> bool:
        """Whether the task stays in this state unless it is redriven."""
        return self.state in FINAL


class DeadTask(msgspec.Struct, frozen=True):
    """A record that a queue group dead-lettered: its last failure, and those before. Made by `Client.dead_letters`.

    `unreadable` says why a damaged record, or one whose codec is missing, cannot be read. Its record is empty then.
    """

    record: Record
    attempt: int
    time: datetime
    reason: str
    history: list[Failure]
    unreadable: str = ""

    @property
    def id(self) -> str:
        """Names the task: for `redrive`, `discard`, `task`."""
        return task_id(self.record.topic, self.record.partition, self.record.offset)


class PendingTask(msgspec.Struct, frozen=True):
    """A task that a worker holds. Made by `Client.pending`.

    `given` is when it got it, and `idle` the seconds since then; both None if that is not known. `until` is when its
    lease ends, None for one without an end. `token` is the number of the lease.
    """

    topic: str
    partition: int
    offset: int
    worker: str
    attempt: int
    given: datetime | None
    idle: float | None
    until: datetime | None
    token: int

    @property
    def id(self) -> str:
        """Names the task: for `settle`, `task`."""
        return task_id(self.topic, self.partition, self.offset)


class ClaimedTask(msgspec.Struct, frozen=True):
    """A task under the lease of a claim. `until` is None for a lease without an end. Made by `Client.claim`.

    `record` is None if it was not asked for, or cannot be read here.
    """

    id: str
    attempt: int
    token: int
    until: datetime | None
    record: Record | None


class Claimed(msgspec.Struct, frozen=True):
    """The result of a claim. Made by `Client.claim`.

    `gone` are ids of leased tasks whose records the log has no more; they are leased no longer. `next` is the id with
    which to go on, None when there is nothing behind these.
    """

    tasks: list[ClaimedTask]
    gone: list[str]
    next: str | None


class PendingSummary(msgspec.Struct, frozen=True):
    """How many tasks of a queue group are leased, the first and the last by id, and how many each worker holds.

    Made by `Client.pending_summary`.
    """

    count: int
    lowest: str | None
    highest: str | None
    workers: dict[str, int]


GONE_S = 60.0
"""A worker that holds nothing and is silent for so long has ended: one that runs asks more often."""


class QueueWorker(msgspec.Struct, frozen=True):
    """A worker of a queue group, by its name. `pending` is how many tasks it holds. Made by `Client.workers`.

    `first_seen` is when it first asked for tasks. `last_active` is when it was last given some or extended a lease, and
    None if it never was. Both are None where the group does not remember it. `last_asked` is when it last asked for
    tasks, None if it did not since the broker began, and `waiting` whether a request of it waits for some now. `silent`
    is for how many seconds nothing was heard of it, 0.0 while it waits, and None where that is not known.
    """

    name: str
    pending: int
    first_seen: datetime | None
    last_active: datetime | None
    last_asked: datetime | None
    waiting: bool
    silent: float | None = None

    @property
    def gone(self) -> bool:
        """Whether it seems to have ended: it holds nothing, waits for nothing, and was not heard of for a minute."""
        return not self.pending and not self.waiting and (self.silent is None or self.silent >= GONE_S)


class Schedule(msgspec.Struct, frozen=True):
    """A record appended at stated times. `last` is None before the first time, `next` after the last.

    Made by `Client.schedules`.
    """

    topic: str
    name: str
    spec: str
    zone: str
    value: bytes
    key: bytes | None
    next: datetime | None
    last: datetime | None
    partition: int
    coalesce: bool = False


def queue_of(found: messages.Queue) -> Queue:
    """A queue group as the wire has it."""
    partitions = [_partition_of(p) for p in found.partitions]
    return Queue(found.topic_name, found.group, dict(found.settings), partitions, list(found.unavailable))


def _partition_of(found: messages.QueuePartition) -> QueuePartition:
    return QueuePartition(
        found.partition, found.ready, found.in_flight, found.delayed, found.waiting, found.dead,
        moment(found.oldest_us), moment(found.paused_until_us or -1),
    )  # fmt: skip


def task_of(id_: str, group: str, found: messages.TaskState) -> TaskInfo:
    """A task as the wire has it."""
    return TaskInfo(
        id_, group, STATES.get(found.state, found.state), found.attempt, found.why, found.worker,
        _unless_never(found.time_us), found.reason, found.result, found.progress, found.cancelling,
        _history(found.history), moment(found.given_us),
    )  # fmt: skip


def dead_of(topic: str, partition: int, found: list[messages.DeadTask], payload: bytes) -> Iterator[DeadTask]:
    """Dead-lettered tasks as the wire has them, with their records."""
    rows = pick(payload, [(task.offset, 1) for task in found])
    for task, row in zip(found, rows, strict=True):
        if isinstance(row, Unreadable):
            record = Record(b"", None, NO_HEADERS, task.offset, task.time_us, partition, topic)
            unreadable = row.error.message
        else:
            ((value, key, headers, offset, time_us),) = zip(*row, strict=False)
            record, unreadable = Record(value, key, headers, offset, time_us, partition, topic), ""
        yield DeadTask(record, task.attempt, instant(task.time_us), task.reason, _history(task.history), unreadable)


def pending_of(topic: str, partition: int, found: queue_messages.PendingRecords) -> Iterator[PendingTask]:
    """Leased tasks as the wire has them."""
    for run in found.runs:
        idle = None if run.given_us < 0 else max(found.now_us - run.given_us, 0) / 1e6
        given, until = moment(run.given_us), _unless_never(run.until_us)
        for offset in range(run.offset, run.offset + run.count):
            yield PendingTask(topic, partition, offset, run.worker, run.attempt, given, idle, until, run.token)


def claimed_of(topic: str, found: queue_messages.Leased, payload: bytes | None) -> Iterator[ClaimedTask]:
    """Claimed tasks as the wire has them; without a payload no records were asked for."""
    records: dict[int, Record] = {}
    for rows in pick(payload or b"", [(first, count) for first, count, _ in found.runs] if payload else []):
        if not isinstance(rows, Unreadable):
            records.update((row[3], Record(*row, found.partition, topic)) for row in zip(*rows, strict=False))
    until = _unless_never(found.until_us)
    for first, count, attempt in found.runs:
        for offset in range(first, first + count):
            id_ = task_id(topic, found.partition, offset)
            yield ClaimedTask(id_, attempt, found.token, until, records.get(offset))


def pending_summary_of(topic: str, found: queue_messages.Workers) -> PendingSummary:
    """Counts of leased tasks as the wire has them."""
    some = [partition for partition in found.partitions if partition.pending]
    return PendingSummary(
        sum(partition.pending for partition in some),
        task_id(topic, some[0].partition, some[0].lowest) if some else None,
        task_id(topic, some[-1].partition, some[-1].highest) if some else None,
        {worker.name: worker.pending for worker in found.workers if worker.pending},
    )


def workers_of(found: queue_messages.Workers) -> list[QueueWorker]:
    """The workers of a queue group as the wire has them."""
    return [
        QueueWorker(
            each.name, each.pending, moment(each.first_us), moment(each.last_us), moment(each.asked_us),
            each.waits, _silent(each, found.now_us),
        )
        for each in found.workers
    ]  # fmt: skip


def _silent(worker: queue_messages.QueueWorker, now_us: int) -> float | None:
    """For how long nothing was heard of a worker."""
    if worker.waits:
        return 0.0
    last_us = max(worker.first_us, worker.last_us, worker.asked_us)
    return None if last_us < 0 else max(now_us - last_us, 0) / 1e6


def schedule_of(found: messages.Schedule) -> Schedule:
    """A schedule as the wire has it."""
    return Schedule(
        found.topic_name, found.name, found.spec, found.zone, found.value, found.key,
        _unless_never(found.next_us), moment(found.last_us), found.partition, found.coalesce,
    )  # fmt: skip


def _history(found: list[tuple[int, str, str]]) -> list[Failure]:
    return [Failure(instant(time_us), worker, reason) for time_us, worker, reason in found]


def _unless_never(time_us: int) -> datetime | None:
    """As `moment`, and None for a time that never comes."""
    return None if time_us >= queue_messages.FOREVER_US else moment(time_us)
