"""Tasks over HTTP: enqueued, leased, settled and asked after by their ids.

Idea: a task is a record of a topic, and its id names it. A worker leases tasks by one request and settles them by
others, also through another gateway.

Contract: an `Idempotency-Key` makes a repeated request answer with the task of the first one, within the topic's
`dedup_window_s`. What was leased for a client that left while it waited is released.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from ...broker.rights import Operation
from ...clients.errors import TimedOut
from ...clients.producing.queued import as_queued
from ...clients.queues.outcomes import Outcome
from ...clients.queues.task_ids import parse_task_id, task_id
from ...transport.queue_messages import FOREVER_US
from ..sending import Outgoing, append_few
from ..task_leases import LeasedRecord, SettleTerms, extend_task, lease, settle_task
from .operation import JSON, ClientLeft, Handler, HttpCall, HttpOperation
from .task_shapes import (
    GROUP,
    AckBody,
    ExtendBody,
    ExtendedLease,
    GroupBody,
    GroupName,
    LeasedTaskBody,
    LeasedTasks,
    LeaseRequestBody,
    NackBody,
    NewTask,
    RejectBody,
    ReleaseBody,
    TaskPlace,
    TaskStatus,
    leased_task,
    task_status,
)

KEY = "Idempotency-Key"


class TaskQuery(Struct, forbid_unknown_fields=True):
    """Of which group, and for how long to wait until the task is final."""

    group: GroupName = GROUP
    timeout_ms: Annotated[int, Meta(ge=0, le=60_000, description="How long to wait until it is finished.")] = 0


async def enqueue(call: HttpCall) -> TaskPlace:
    task: NewTask = call.body
    call.may("write", task.queue)
    key = call.headers.get(KEY.lower().encode())
    queued = None
    if key is not None or (task.delay_s, task.at, task.priority) != (None, None, None):
        now_us = call.link.driver.connection.channel.now_us()
        queued = as_queued(task.delay_s, task.at, task.priority, key, now_us)
    record = Outgoing(
        task.bytes_of_value(), task.bytes_of_key(), task.bytes_of_headers(), task.timestamp, task.partition, queued
    )
    (place,) = await append_few(call.link, call.principal, task.queue, [record], create=call.door.may_create)
    offset = place.offset if place.repeats is None else place.repeats
    return TaskPlace(task_id(task.queue, place.partition, offset), place.repeats is not None)


async def lease_tasks(call: HttpCall) -> LeasedTasks:
    wanted: LeaseRequestBody = call.body
    call.may_work(wanted.queue, wanted.group)
    leasing = asyncio.ensure_future(
        lease(
            call.link, wanted.queue, wanted.group, wanted.worker, most=wanted.max_tasks, lease_s=wanted.lease_s,
            wait_s=wanted.timeout_ms / 1000, check=lambda: call.may_work(wanted.queue, wanted.group),
        )
    )  # fmt: skip
    try:
        found = await call.wait(leasing)
    except ClientLeft:
        late = leasing.result() if leasing.done() else ()  # both in one turn of the loop
        if late:
            ids = [each.id(wanted.queue) for each in late]
            await call.link.client.settle(wanted.queue, wanted.group, ids, "release")
        raise
    return LeasedTasks([_leased(wanted.queue, each) for each in found or ()])


def _leased(queue: str, found: LeasedRecord) -> LeasedTaskBody:
    until_us = None if found.until_us >= FOREVER_US else found.until_us
    return leased_task(found.id(queue), found.record, found.token, found.attempt, until_us)


async def extend(call: HttpCall) -> ExtendedLease:
    wanted: ExtendBody = call.body
    id_ = _id(call, wanted.group)
    progress = bytes(wanted.progress) if isinstance(wanted.progress, msgspec.Raw) else None
    until_us, cancelled = await extend_task(
        call.link, id_, wanted.group, int(wanted.lease), lease_s=wanted.lease_s, progress=progress
    )
    return ExtendedLease(until_us, cancelled)


async def get_task(call: HttpCall) -> TaskStatus:
    id_, client = _id(call, call.asked.group, "read"), call.link.client
    if call.asked.timeout_ms:
        try:
            found = await call.wait(client.wait_task(id_, call.asked.group, call.asked.timeout_ms / 1000))
        except TimedOut:
            found = None
        _id(call, call.asked.group, "read")  # it may have lost the right meanwhile
        if found is not None:
            return task_status(found)
    return task_status(await client.task(id_, call.asked.group))


async def cancel(call: HttpCall) -> TaskStatus:
    return task_status(await call.link.client.cancel_task(_id(call, call.body.group, "write"), call.body.group))


def _id(call: HttpCall, group: str, operation: Operation | None = None) -> str:
    """The task of a request that works in a group, or does this to it. Raises InvalidArgument, Refusal."""
    topic = parse_task_id(call.path["id"])[0]
    if operation is None:
        call.may_work(topic, group)
    else:
        call.may(operation, topic, "group", group)
    return call.path["id"]


def settling(verb: Outcome) -> Handler:
    """The handler of one outcome."""

    async def settled(call: HttpCall) -> None:
        body = call.body
        terms = SettleTerms(
            verb, None if body.lease is None else int(body.lease), getattr(body, "delay_s", None),
            getattr(body, "reason", ""), body.bytes_of_result() if isinstance(body, AckBody) else None,
        )  # fmt: skip
        await settle_task(call.link, _id(call, body.group), body.group, terms)

    return settled


OPERATIONS = [
    HttpOperation(
        method="POST", path="/tasks", name="enqueue", tag="tasks", handler=enqueue,
        summary="Append a task to a queue, which is made if it is not there",
        headers=((KEY, "A repeated request with the same key (1 KiB at most) is answered with the first task."),),
        takes=(JSON,), body=NewTask, gives=TaskPlace, status=201,
    ),
    HttpOperation(
        method="POST", path="/tasks/lease", name="lease", tag="tasks", handler=lease_tasks,
        summary="Take tasks of a queue for some time", takes=(JSON,), body=LeaseRequestBody, gives=LeasedTasks,
        about="They come from one partition. Another worker gets a task when its lease runs out before it is settled.",
    ),
    HttpOperation(
        method="GET", path="/tasks/{id}", name="getTask", tag="tasks", handler=get_task, query=TaskQuery,
        summary="What has become of a task, or holds it back", gives=TaskStatus,
    ),
    HttpOperation(
        method="POST", path="/tasks/{id}/ack", name="ack", tag="tasks", handler=settling("ack"), status=204,
        summary="A task is done", takes=(JSON,), body=AckBody,
        about="Without `lease`, whichever lease the task is under.",
    ),
    HttpOperation(
        method="POST", path="/tasks/{id}/nack", name="nack", tag="tasks", handler=settling("nack"), status=204,
        summary="A task failed: it is tried again, or dead-lettered after the last attempt", takes=(JSON,),
        body=NackBody,
    ),
    HttpOperation(
        method="POST", path="/tasks/{id}/reject", name="reject", tag="tasks", handler=settling("reject"), status=204,
        summary="A task failed for good: it is dead-lettered", takes=(JSON,), body=RejectBody,
    ),
    HttpOperation(
        method="POST", path="/tasks/{id}/release", name="release", tag="tasks", handler=settling("release"),
        summary="A task was not tried: another worker gets it at once", takes=(JSON,), body=ReleaseBody, status=204,
    ),
    HttpOperation(
        method="POST", path="/tasks/{id}/extend", name="extend", tag="tasks", handler=extend,
        summary="Keep the lease of a task, and say how far it is", takes=(JSON,), body=ExtendBody, gives=ExtendedLease,
    ),
    HttpOperation(
        method="POST", path="/tasks/{id}/cancel", name="cancel", tag="tasks", handler=cancel, takes=(JSON,),
        summary="Have a task not given out any more", body=GroupBody, gives=TaskStatus,
    ),
]  # fmt: skip
