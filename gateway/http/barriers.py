"""Callbacks that wait for tasks to end: those of `then=` and of groups of tasks.

Contract: programs with Python clients send them. Here they are listed, and deleted with the right to
manage their queue.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from ...clients.barriers.descriptions import Barrier
from ...clients.tasks.message import NAME_HEADER
from .operation import HttpCall, HttpOperation
from .task_shapes import Name


class BarrierQuery(Struct, forbid_unknown_fields=True):
    """Of which queue."""

    queue: Annotated[Name, Meta(description="Callbacks that this one gets.")] | None = None
    max_barriers: Annotated[int, Meta(ge=1, le=1000)] = 100


class BarrierInfo(Struct, frozen=True):
    """A callback that waits for `members` tasks, of which `waiting` have not ended. It is forgotten at `until`."""

    id: str
    queue: str
    function: str
    members: int
    waiting: int
    ended: bool
    why: str
    until: datetime


class BarriersBody(Struct, frozen=True):
    barriers: list[BarrierInfo]


async def list_barriers(call: HttpCall) -> BarriersBody:
    asked: BarrierQuery = call.asked
    if asked.queue is not None:
        call.may("see", asked.queue)
    found = await call.link.client.barriers(asked.queue, most=asked.max_barriers)
    return BarriersBody([_info(each) for each in found if call.sees(each.topic)])


async def delete_barrier(call: HttpCall) -> None:
    call.may("manage", call.path["queue"])
    await call.link.client.delete_barrier(call.path["queue"], call.path["barrier"])


def _info(found: Barrier) -> BarrierInfo:
    function = found.headers.get(NAME_HEADER, b"").decode(errors="replace")
    return BarrierInfo(
        found.id, found.topic, function, found.members, found.waiting, found.ended, found.why, found.until
    )  # fmt: skip


OPERATIONS = [
    HttpOperation(
        method="GET", path="/barriers", name="listBarriers", tag="barriers", handler=list_barriers, query=BarrierQuery,
        summary="Callbacks that wait for tasks to end, and for what", gives=BarriersBody,
    ),
    HttpOperation(
        method="DELETE", path="/barriers/{queue}/{barrier}", name="deleteBarrier", tag="barriers",
        handler=delete_barrier, summary="Have a callback never come; its tasks go on", status=204,
    ),
]  # fmt: skip
