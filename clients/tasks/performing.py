"""Performs one call of a task function: decodes the task, calls, and returns the outcome, in any kind of pool.

Contract: exceptions of the function are not raised here: they are outcomes, with a traceback for the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from .. import tracing
from ..encoding import Encoding
from ..queues.outcomes import RESULT_BYTES_MAX
from .arguments import Arguments, Call
from .context import CurrentTask, working_on
from .middleware import Hook, around, around_async
from .outcome import Failed, Outcome, RefusedCall, Returned, outcome_of, reason_of


def perform(
    function: Any,
    arguments: Arguments,
    call: Call,
    encoding: Encoding,
    current: CurrentTask,
    hooks: Sequence[Hook] = (),
) -> Outcome:
    """Call a `def` within hooks."""
    with working_on(current):
        try:
            with _traced(arguments, current):
                result = around(hooks, current, partial(function, *call[0], **call[1]))
        except BaseException as error:
            return outcome_of(error)
    return _done(arguments, encoding, result)


async def perform_async(
    function: Any,
    arguments: Arguments,
    call: Call,
    encoding: Encoding,
    current: CurrentTask,
    hooks: Sequence[Hook] = (),
) -> Outcome:
    """Call an `async def` within hooks. A call cancelled from outside fails."""
    with working_on(current):
        try:
            with _traced(arguments, current):
                result = await around_async(hooks, current, partial(function, *call[0], **call[1]))
        except asyncio.CancelledError as error:
            return Failed(reason_of(error))  # the caller that cancelled it gives the reason
        except BaseException as error:
            return outcome_of(error)
    return _done(arguments, encoding, result)


def _traced(arguments: Arguments, current: CurrentTask) -> AbstractContextManager[object]:
    """A span that continues the sender's."""
    about = {"messaging.message.id": current.id, "penstock.attempt": current.attempt}
    return tracing.processing(current, f"process {arguments.name}", about)


def _done(arguments: Arguments, encoding: Encoding, result: Any) -> Outcome:
    try:
        packed = arguments.pack_result(encoding, result)
        if len(packed) > RESULT_BYTES_MAX:
            raise ValueError(f"{len(packed)} bytes, over {RESULT_BYTES_MAX}: have the function store it elsewhere")
    except ValueError as error:
        return RefusedCall(f"it was done, but its result cannot be kept: {error}")
    return Returned(packed)
