"""What a viewer may change: pausing and resuming a queue, redriving its dead letters, moving a consumer group.

Idea: an action reads its form and then calls the operation of the API, which asks for the rights. The answer is the
page that it was done on, with a notice.

Contract: POST alone, from a page of this console (forms.py). An error leaves as a page of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct

from ..http import groups as api_groups
from ..http import queues as api_queues
from ..http.operation import HttpCall, Reply
from ..http.shapes import SeekBody
from ..http.task_shapes import CountBody, PauseBody, RedriveBody
from .figures import age, count
from .making import Notice, PageMaker
from .queues import queue
from .topics import group

Fields = TypeVar("Fields", bound=Struct)


class PauseForm(Struct, forbid_unknown_fields=True):
    """For how long; without it, until the queue is resumed."""

    seconds: Annotated[int, Meta(ge=1, le=366 * 86_400)] | None = None


class ResumeForm(Struct, forbid_unknown_fields=True):
    """Nothing more to say."""


class RedriveForm(Struct, forbid_unknown_fields=True):
    """Which dead letters, and how fast."""

    id: str = ""
    reason: str = ""
    per_s: Annotated[float, Meta(ge=0, le=1e6)] = 0.0


class SeekForm(Struct, forbid_unknown_fields=True):
    """Where the group goes."""

    to: Literal["earliest", "latest", "time"]
    time: Annotated[str, Meta(max_length=64)] = ""


async def pause(maker: PageMaker, call: HttpCall) -> Reply:
    form = _form(maker, call, PauseForm)
    until = None if form.seconds is None else datetime.now(UTC) + timedelta(seconds=form.seconds)
    call.body = PauseBody(until)
    await api_groups.pause(call)
    how_long = "until it is resumed" if form.seconds is None else f"for {age(form.seconds)}"
    return await queue(maker, call, Notice("done", f"Paused {how_long}. Tasks that workers hold go on."))


async def resume(maker: PageMaker, call: HttpCall) -> Reply:
    _form(maker, call, ResumeForm)
    await api_groups.resume(call)
    return await queue(maker, call, Notice("done", "Resumed. Workers get tasks again."))


async def redrive(maker: PageMaker, call: HttpCall) -> Reply:
    form = _form(maker, call, RedriveForm)
    ids = [form.id.strip()] if form.id.strip() else None
    call.body = RedriveBody(call.path["topic"], call.path["group"], ids, form.reason, form.per_s)
    found: CountBody = await api_groups.redrive(call)
    if not found.count:
        return await queue(maker, call, Notice("failed", "No dead letter matches, so none was redriven."))
    tasks = "task" if found.count == 1 else "tasks"
    return await queue(maker, call, Notice("done", f"Redrove {count(found.count)} {tasks}, from attempt 1."))


async def seek(maker: PageMaker, call: HttpCall) -> Reply:
    form = _form(maker, call, SeekForm)
    call.path = {**call.path, "queue": call.path["topic"], "consumer": call.path["group"]}
    call.body = SeekBody(form.time.strip() if form.to == "time" else form.to)
    await api_queues.seek(call)
    where = {"earliest": "the first message", "latest": "the end"}.get(form.to, form.time.strip())
    return await group(maker, call, Notice("done", f"Moved to {where}."))


Action = Callable[[PageMaker, HttpCall], Awaitable[Reply]]

ACTIONS: dict[str, tuple[str, Action]] = {
    "pause": ("queues", pause),
    "resume": ("queues", resume),
    "redrive": ("queues", redrive),
    "seek": ("groups", seek),
}
"""By the last part of their paths: the kind of page that they are on, and what they do."""


def _form(maker: PageMaker, call: HttpCall, type_: type[Fields]) -> Fields:
    body: Any = call.body
    return maker.forms.read(body, call.headers, call.principal, type_)
