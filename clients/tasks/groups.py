"""Groups: calls that are sent together, and one function that is called once they have ended.

    jobs = penstock.group([price.call("UA 1545", shop) for shop in shops], then=cheapest)

Idea: the broker knows how each task ends, whichever worker has it, and appends the callback's task itself, exactly
once. So nothing here counts, and senders and workers may die at any moment.

Contract: a group is sent once. An error while it is sent leaves the calls that were sent, and no callback for them.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from typing import Any, Literal, TypeVar

from ...transport.barrier_messages import MEMBERS_MAX
from ..errors import InvalidArgument
from .call import Call, CallbackFunction, GroupApp, callback
from .jobs import AsyncJob, Job
from .message import Then

R = TypeVar("R")

On = Literal["completed", "ended"]


def group(calls: Iterable[Call[R]], *, then: CallbackFunction, on: On = "completed") -> list[Job[R]]:
    """Send calls, and have `then` called once with what became of all of them.

    Args:
        calls: 1 to 1000, as `function.call(...)` or `function.options(...).call(...)` makes them, of functions of one
            app.
        then: a task function of that app, called by a worker with one argument. It takes neither key= nor dedup=.
        on: "completed": it is called with the list of results, in the order of the calls, once all have completed. A
            dead-lettered task holds it up until it is redriven. "ended": it is called with a list of `penstock.Ended`
            once each has completed, was dead-lettered, cancelled or deleted.

    Returns: the jobs, in the order of the calls. When it returns, all are committed, and so is the callback.

    Raises: InvalidArgument; what `TaskFunction.send` raises. An error may leave calls that were sent, without callback.
    """
    app, found, last = _grouped(calls, then, on)
    ids = app.send_group([call.message for call in found], last)
    return [Job(call.function, id) for call, id in zip(found, ids, strict=True)]


async def group_async(calls: Iterable[Call[R]], *, then: CallbackFunction, on: On = "completed") -> list[AsyncJob[R]]:
    """As `penstock.group`, awaited."""
    app, found, last = _grouped(calls, then, on)
    ids = await app.aio.send_group([call.message for call in found], last)
    return [AsyncJob(call.function, id) for call, id in zip(found, ids, strict=True)]


def _grouped(calls: Iterable[Call[R]], then: Any, on: str) -> tuple[GroupApp, list[Call[R]], Then]:
    """What is sent, checked. Raises InvalidArgument."""
    if on not in ("completed", "ended"):
        raise InvalidArgument(f'on={on!r} is not known: "completed" and "ended" are')
    if not isinstance(calls, Iterable):
        raise InvalidArgument(f"calls={reprlib.repr(calls)} is not a list: a group is of function.call(...)")
    found = list(calls)
    for call in found:
        if not isinstance(call, Call):
            raise InvalidArgument(f"{reprlib.repr(call)} is no call: a group is of function.call(...)")
    if not 1 <= len(found) <= MEMBERS_MAX:
        raise InvalidArgument(f"a group of {len(found)} calls cannot be sent: 1 to {MEMBERS_MAX} can")
    app = found[0].function.app
    for call in found:
        if call.function.app is not app:
            first = found[0].function.name
            raise InvalidArgument(f"{call.function.name} is of another app than {first}: a group is of one app")
        if call.message.then is not None:
            raise InvalidArgument(f"{call} has then= of its own: a group has one callback")
    return app, found, callback(then).as_then("all" if on == "completed" else "ended", app)
