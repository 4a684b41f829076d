"""The values of tasks, queue groups, dead letters and schedules, as JSON has them.

Contract: as shapes.py. A lease is a text, because its number can be larger than numbers of JavaScript are exact. Pure.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from ...clients.errors import InvalidArgument
from ...clients.queues.descriptions import DeadTask, Queue, Schedule, TaskInfo
from ...storage.record import Record
from .shapes import NewMessage, Setting, StoredMessage, put, stored

GROUP = "tasks"
"""The queue group of tasks of which no other is said."""

Name = Annotated[str, Meta(min_length=1, max_length=200)]
GroupName = Annotated[Name, Meta(description="The queue group.")]
Seconds = Annotated[float, Meta(ge=0, le=10 * 365 * 86400)]
LeaseSeconds = Annotated[
    float, Meta(ge=0.001, le=366 * 86400, description="How long a lease lasts; without it, as long as the group says.")
]
Lease = Annotated[str, Meta(pattern="^[0-9]{1,18}$", description="Of the answer that gave the task out.")]
Priority = Annotated[int, Meta(ge=0, le=255, description="Higher ones first.")]


class NewTask(NewMessage, forbid_unknown_fields=True, kw_only=True):
    """A task: a message of its queue, and when and how it is to be given out."""

    queue: Name
    delay_s: Annotated[Seconds, Meta(description="Not given out before.")] | None = None
    at: Annotated[datetime, Meta(tz=True, description="Not given out before.")] | None = None
    priority: Priority | None = None


class TaskPlace(Struct, frozen=True):
    """The id of a task; `repeated` if it is the one that an earlier request with this key made."""

    id: str
    repeated: bool


class LeaseRequestBody(Struct, forbid_unknown_fields=True):
    """How many tasks, of which queue, and for how long to wait for the first one."""

    queue: Name
    group: GroupName = GROUP
    worker: Annotated[str, Meta(max_length=200, description="For people.")] = "http"
    max_tasks: Annotated[int, Meta(ge=1, le=1000)] = 1
    lease_s: LeaseSeconds | None = None
    timeout_ms: Annotated[int, Meta(ge=0, le=60_000)] = 0


class LeasedTaskBody(StoredMessage, frozen=True, kw_only=True, omit_defaults=True):
    """A task that is leased until a time, by its id and lease. `until_us` is missing for a lease without end."""

    id: str
    lease: str
    attempt: int
    until_us: int | UnsetType = UNSET


class LeasedTasks(Struct, frozen=True):
    tasks: list[LeasedTaskBody]


class AckBody(Struct, forbid_unknown_fields=True):
    """A task is done, with a result as any JSON value, text or bytes."""

    group: GroupName = GROUP
    lease: Lease | None = None
    result: msgspec.Raw | UnsetType = UNSET
    result_base64: bytes | None = None

    def bytes_of_result(self) -> bytes | None:
        """Raises InvalidArgument."""
        if isinstance(self.result, msgspec.Raw):
            if self.result_base64 is not None:
                raise InvalidArgument("a task has one of result and result_base64")
            return bytes(self.result)
        return self.result_base64


class NackBody(Struct, forbid_unknown_fields=True):
    """A task failed, and is tried again after a time."""

    group: GroupName = GROUP
    lease: Lease | None = None
    delay_s: Annotated[Seconds, Meta(description="Without it, the group's back-off.")] | None = None
    reason: str = ""


class RejectBody(Struct, forbid_unknown_fields=True):
    """A task failed for good."""

    group: GroupName = GROUP
    lease: Lease | None = None
    reason: str = ""


class ReleaseBody(Struct, forbid_unknown_fields=True):
    """A task was not tried."""

    group: GroupName = GROUP
    lease: Lease | None = None


class ExtendBody(Struct, forbid_unknown_fields=True):
    """A task needs more time; `progress` is what to say of it meanwhile, as any JSON value."""

    lease: Lease
    group: GroupName = GROUP
    lease_s: LeaseSeconds | None = None
    progress: msgspec.Raw | UnsetType = UNSET


class ExtendedLease(Struct, frozen=True):
    """Until when, in microseconds, and whether the task was cancelled meanwhile."""

    until_us: int
    cancelled: bool


class GroupBody(Struct, forbid_unknown_fields=True):
    """A queue group alone."""

    group: GroupName = GROUP


class TaskStatus(Struct, frozen=True, omit_defaults=True):
    """A task as its group has it. `why` says in a sentence what holds it back or what became of it."""

    id: str
    group: str
    state: str
    attempt: int
    why: str
    worker: str = ""
    time: datetime | None = None
    reason: str = ""
    result: str | UnsetType = UNSET
    result_base64: bytes | UnsetType = UNSET
    progress: str | UnsetType = UNSET
    progress_base64: bytes | UnsetType = UNSET
    cancelling: bool = False


class GroupInfo(Struct, frozen=True):
    """A queue group of a topic: tasks by state, and settings."""

    queue: str
    group: str
    ready: int
    in_flight: int
    delayed: int
    retrying: int
    dead_lettered: int
    depth: Annotated[int, Meta(description="Tasks that are not finished.")]
    oldest: datetime | None
    paused_until: datetime | None
    settings: dict[str, Any]


class WorkerInfo(Struct, frozen=True):
    """A worker of a queue group, and how many tasks it holds. Times are null where the group does not remember it."""

    name: str
    pending: int
    first_seen: datetime | None
    last_active: Annotated[datetime | None, Meta(description="When it was last given tasks, or extended a lease.")]


class WorkerList(Struct, frozen=True):
    workers: list[WorkerInfo]


class NewSettings(Struct, forbid_unknown_fields=True):
    """Settings of a queue group, and where a new one begins."""

    settings: Annotated[dict[str, Setting], Meta(description="As of `penstock queue set`.")] = {}
    start: Annotated[str, Meta(pattern="^(earliest|latest)$")] = "earliest"


class PauseBody(Struct, forbid_unknown_fields=True):
    """Until when a group pauses; without a time, until it is resumed."""

    until: Annotated[datetime, Meta(tz=True)] | None = None


class ServiceStats(Struct, frozen=True):
    """The broker's counters by name, and its queue groups."""

    broker: dict[str, Any]
    queues: list[GroupInfo]


class DeadTaskBody(StoredMessage, frozen=True, kw_only=True, omit_defaults=True):
    """A task that failed for good."""

    id: str
    attempt: int
    time: datetime
    reason: str
    unreadable: str = ""


class DeadTaskList(Struct, frozen=True):
    tasks: list[DeadTaskBody]


class DeadChoice(Struct, forbid_unknown_fields=True):
    """Some dead-lettered tasks of a group, or all."""

    queue: Name
    group: GroupName = GROUP
    ids: Annotated[list[str], Meta(max_length=10_000, description="Only these.")] | None = None
    reason: Annotated[str, Meta(description="Only those that have this in their reason.")] = ""


class RedriveBody(DeadChoice, forbid_unknown_fields=True):
    """Dead-lettered tasks to be tried again."""

    per_s: Annotated[float, Meta(ge=0, le=1e6, description="How many become ready each second; 0: at once.")] = 0.0


class CountBody(Struct, frozen=True):
    """How many tasks it was."""

    count: int


class NewSchedule(NewMessage, forbid_unknown_fields=True, kw_only=True):
    """A message to be appended at stated times."""

    spec: Annotated[str, Meta(description='Five fields of cron, as in "0 6 * * mon-fri", or "every 30s".')]
    zone: Annotated[str, Meta(description='Of the cron fields, like "Europe/Vienna".')] = "UTC"
    priority: Priority = 0
    coalesce: Annotated[bool, Meta(description="Append nothing while the message of an earlier time waits.")] = False


class ScheduleInfo(Struct, frozen=True, omit_defaults=True):
    """A schedule as it stands."""

    queue: str
    name: str
    spec: str
    zone: str
    partition: int
    next: datetime | None = None
    last: datetime | None = None
    value: str | UnsetType = UNSET
    value_base64: bytes | UnsetType = UNSET
    key: str | UnsetType = UNSET
    key_base64: bytes | UnsetType = UNSET
    coalesce: bool = False


class SchedulesBody(Struct, frozen=True):
    schedules: list[ScheduleInfo]


def task_status(found: TaskInfo) -> TaskStatus:
    """A task as a reply has it."""
    fields: dict[str, Any] = {}
    for name, content in (("result", found.result), ("progress", found.progress)):
        if content is not None:
            put(fields, name, content)
    return TaskStatus(
        found.id, found.group, found.state, found.attempt, found.why, found.worker, found.time, found.reason,
        cancelling=found.cancelling, **fields,
    )  # fmt: skip


def group_info(found: Queue) -> GroupInfo:
    """A queue group as a reply has it."""
    return GroupInfo(
        found.topic, found.name, found.ready, found.in_flight, found.delayed, found.retrying, found.dead_lettered,
        found.depth, found.oldest, found.paused_until, found.settings,
    )  # fmt: skip


def leased_task(id_: str, record: Record, token: int, attempt: int, until_us: int | None) -> LeasedTaskBody:
    """A leased task as a reply has it."""
    until = UNSET if until_us is None else until_us
    return LeasedTaskBody(**_fields(record), id=id_, lease=str(token), attempt=attempt, until_us=until)


def dead_task(found: DeadTask) -> DeadTaskBody:
    """A dead-lettered task as a reply has it."""
    return DeadTaskBody(
        **_fields(found.record), id=found.id, attempt=found.attempt, time=found.time, reason=found.reason,
        unreadable=found.unreadable,
    )  # fmt: skip


def schedule_info(found: Schedule) -> ScheduleInfo:
    """A schedule as a reply has it."""
    fields: dict[str, Any] = {}
    put(fields, "value", found.value)
    if found.key is not None:
        put(fields, "key", found.key)
    return ScheduleInfo(
        found.topic, found.name, found.spec, found.zone, found.partition, found.next, found.last,
        coalesce=found.coalesce, **fields,
    )  # fmt: skip


def _fields(record: Record) -> dict[str, Any]:
    return msgspec.structs.asdict(stored(record))
