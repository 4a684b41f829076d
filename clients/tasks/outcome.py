"""The outcome of one call of a task function.

Pure: values only, and how an exception reads in a history.
"""

from __future__ import annotations

import traceback

from msgspec import Struct

REASON_MAX = 1000
"""Characters of a reason; the whole traceback is in the worker's log."""


class Returned(Struct, tag=True, frozen=True):
    """The function returned."""

    result: bytes


class Failed(Struct, tag=True, frozen=True):
    """The function raised or took too long: the broker retries the task if attempts are left."""

    reason: str
    trace: str = ""  # of what it raised, for the log
    is_last: bool = False  # it has no attempt left: the broker dead-letters it


class RefusedCall(Struct, tag=True, frozen=True):
    """The call can never succeed: the broker dead-letters it without a retry."""

    reason: str


class Dropped(Struct, tag=True, frozen=True):
    """The call was not finished: the attempt does not count."""


Outcome = Returned | Failed | RefusedCall | Dropped


def failure(error: BaseException) -> Failed:
    """The outcome of a call that raised."""
    return Failed(reason_of(error), "".join(traceback.format_exception(error)).rstrip())


def reason_of(error: BaseException) -> str:
    """The last line of the traceback, cut to fit into a history."""
    lines = "".join(traceback.format_exception_only(error)).strip().splitlines()
    last = lines[-1] if lines else type(error).__name__
    return last if len(last) <= REASON_MAX else last[: REASON_MAX - 3] + "..."
