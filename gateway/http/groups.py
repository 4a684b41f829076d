"""Queue groups, their dead letters, and schedules.

Contract: settings are those of `penstock queue set`, and the broker checks them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from ...clients.errors import InvalidArgument
from .operation import JSON, HttpCall, HttpOperation
from .shapes import Offset, Partition
from .task_shapes import (
    GROUP,
    CountBody,
    DeadChoice,
    DeadTaskList,
    GroupInfo,
    GroupName,
    Name,
    NewSchedule,
    NewSettings,
    PauseBody,
    RedriveBody,
    ScheduleInfo,
    SchedulesBody,
    WorkerInfo,
    WorkerList,
    dead_task,
    group_info,
    schedule_info,
)


class DeadQuery(Struct, forbid_unknown_fields=True):
    """Which dead-lettered tasks."""

    queue: Name
    group: GroupName = GROUP
    partition: Annotated[Partition, Meta(description="Of this one alone.")] | None = None
    offset: Annotated[Offset, Meta(description="Where to begin in the partition.")] = 0
    reason: Annotated[str, Meta(description="Only those that have this in their reason.")] = ""
    max_tasks: Annotated[int, Meta(ge=1, le=1000)] = 100


class ForgetQuery(Struct, forbid_unknown_fields=True):
    """What becomes of the tasks that a worker holds."""

    verb: Annotated[Literal["ack", "nack", "reject", "release"], Meta(description="Of the tasks that it holds.")] = (
        "release"
    )


class ScheduleQuery(Struct, forbid_unknown_fields=True):
    """Of which queue."""

    queue: Annotated[Name, Meta(description="Of this one alone.")] | None = None


# -- groups -----------------------------------------------------------------------------------------------


async def list_groups(call: HttpCall) -> list[GroupInfo]:
    call.may("see", topic := call.path["topic"])
    found = await call.link.client.queues(topic)
    return [group_info(each) for each in found if call.sees(topic, "group", each.name)]


async def get_group(call: HttpCall) -> GroupInfo:
    call.may("see", call.path["topic"], "group", call.path["group"])
    return group_info(await call.link.client.queue(call.path["topic"], call.path["group"]))


async def set_group(call: HttpCall) -> GroupInfo:
    topic, group, given = call.path["topic"], call.path["group"], call.body
    call.may("manage", topic, "group", group)
    if dead_topic := given.settings.get("dead_topic"):
        call.may("write", dead_topic)
    found = await call.link.driver.run(call.link.queue_verbs.set_queue(topic, group, given.start, given.settings))
    return group_info(await call.link.client.queue(found.topic_name, group))


async def delete_group(call: HttpCall) -> None:
    call.may("manage", call.path["topic"], "group", call.path["group"])
    await call.link.client.delete_queue(call.path["topic"], call.path["group"])


async def pause(call: HttpCall) -> None:
    call.may("manage", call.path["topic"], "group", call.path["group"])
    await call.link.client.pause_queue(call.path["topic"], call.path["group"], call.body.until)


async def resume(call: HttpCall) -> None:
    call.may("manage", call.path["topic"], "group", call.path["group"])
    await call.link.client.resume_queue(call.path["topic"], call.path["group"])


async def list_workers(call: HttpCall) -> WorkerList:
    call.may_work(call.path["topic"], call.path["group"])
    found = await call.link.client.workers(call.path["topic"], call.path["group"])
    return WorkerList([WorkerInfo(each.name, each.pending, each.first_seen, each.last_active) for each in found])


async def forget_worker(call: HttpCall) -> CountBody:
    topic, group, worker = call.path["topic"], call.path["group"], call.path["worker"]
    call.may_work(topic, group)
    return CountBody(await call.link.client.forget_worker(topic, group, worker, call.asked.verb))


# -- dead letters -----------------------------------------------------------------------------------------


async def dead_letters(call: HttpCall) -> DeadTaskList:
    asked: DeadQuery = call.asked
    call.may_work(asked.queue, asked.group)
    found = await call.link.client.dead_letters(
        asked.queue, asked.group, partition=asked.partition, offset=asked.offset, reason=asked.reason,
        max_records=asked.max_tasks,
    )  # fmt: skip
    return DeadTaskList([dead_task(each) for each in found])


async def redrive(call: HttpCall) -> CountBody:
    wanted: RedriveBody = call.body
    call.may("manage", wanted.queue, "group", wanted.group)
    return CountBody(
        await call.link.client.redrive(
            wanted.queue, wanted.group, wanted.ids, reason=wanted.reason, per_s=wanted.per_s
        )
    )  # fmt: skip


async def discard(call: HttpCall) -> CountBody:
    wanted: DeadChoice = call.body
    call.may("manage", wanted.queue, "group", wanted.group)
    return CountBody(await call.link.client.discard(wanted.queue, wanted.group, wanted.ids, reason=wanted.reason))


# -- schedules --------------------------------------------------------------------------------------------


async def list_schedules(call: HttpCall) -> SchedulesBody:
    if call.asked.queue is not None:
        call.may("see", call.asked.queue)
    found = await call.link.client.schedules(call.asked.queue)
    return SchedulesBody([schedule_info(each) for each in found if call.sees(each.topic, "schedule", each.name)])


async def set_schedule(call: HttpCall) -> ScheduleInfo:
    queue, given = call.path["queue"], call.body
    call.may("write", queue)
    call.may("manage", queue, "schedule", call.path["name"])
    value = given.bytes_of_value()
    if value is None:
        raise InvalidArgument("value=null: a schedule appends a value")
    return schedule_info(
        await call.link.client.schedule(
            queue, call.path["name"], given.spec, value, key=given.bytes_of_key(),
            headers=given.bytes_of_headers(), zone=given.zone, priority=given.priority,
            coalesce=given.coalesce,
        )
    )  # fmt: skip


async def delete_schedule(call: HttpCall) -> None:
    call.may("manage", call.path["queue"], "schedule", call.path["name"])
    await call.link.client.delete_schedule(call.path["queue"], call.path["name"])


_GROUP = "/api/v1/topics/{topic}/groups/{group}"

OPERATIONS = [
    HttpOperation(
        method="GET", path="/api/v1/topics/{topic}/groups", name="listGroups", tag="groups", handler=list_groups,
        summary="The queue groups of a topic", gives=list[GroupInfo],
    ),
    HttpOperation(
        method="GET", path=_GROUP, name="getGroup", tag="groups", handler=get_group, summary="One queue group",
        gives=GroupInfo,
    ),
    HttpOperation(
        method="PUT", path=_GROUP, name="setGroup", tag="groups", handler=set_group, takes=(JSON,), body=NewSettings,
        summary="Make a queue group, or change its settings", gives=GroupInfo,
    ),
    HttpOperation(
        method="DELETE", path=_GROUP, name="deleteGroup", tag="groups", handler=delete_group, status=204,
        summary="Delete a queue group with its leases, attempts and dead letters; the messages stay",
    ),
    HttpOperation(
        method="POST", path=f"{_GROUP}/pause", name="pause", tag="groups", handler=pause, takes=(JSON,), body=PauseBody,
        summary="Give no tasks of a group out", status=204,
    ),
    HttpOperation(
        method="POST", path=f"{_GROUP}/resume", name="resume", tag="groups", handler=resume, status=204,
        summary="Give tasks of a group out again",
    ),
    HttpOperation(
        method="GET", path=f"{_GROUP}/workers", name="listWorkers", tag="groups", handler=list_workers,
        summary="The workers of a queue group, and how many tasks each holds", gives=WorkerList,
    ),
    HttpOperation(
        method="DELETE", path=f"{_GROUP}/workers/{{worker}}", name="forgetWorker", tag="groups", handler=forget_worker,
        summary="Forget a worker, and settle the tasks that it holds", query=ForgetQuery, gives=CountBody,
        about="Answers how many it held. A worker that is still there finds its leases lost, and is known again with "
        "the next task that it gets.",
    ),
    HttpOperation(
        method="GET", path="/dead-letters", name="deadLetters", tag="dead letters", handler=dead_letters,
        query=DeadQuery, summary="Tasks that failed for good", gives=DeadTaskList,
    ),
    HttpOperation(
        method="POST", path="/dead-letters/redrive", name="redrive", tag="dead letters", handler=redrive,
        summary="Try dead-lettered tasks again, from attempt 1", takes=(JSON,), body=RedriveBody, gives=CountBody,
    ),
    HttpOperation(
        method="POST", path="/dead-letters/discard", name="discard", tag="dead letters", handler=discard,
        summary="Give dead-lettered tasks up", takes=(JSON,), body=DeadChoice, gives=CountBody,
    ),
    HttpOperation(
        method="GET", path="/schedules", name="listSchedules", tag="schedules", handler=list_schedules,
        query=ScheduleQuery, summary="Messages that are appended at stated times", gives=SchedulesBody,
    ),
    HttpOperation(
        method="PUT", path="/schedules/{queue}/{name}", name="setSchedule", tag="schedules", handler=set_schedule,
        summary="Append a message at stated times; a schedule of that name is replaced", takes=(JSON,),
        body=NewSchedule, gives=ScheduleInfo,
    ),
    HttpOperation(
        method="DELETE", path="/schedules/{queue}/{name}", name="deleteSchedule", tag="schedules",
        handler=delete_schedule, summary="Append it no more", status=204,
    ),
]  # fmt: skip
