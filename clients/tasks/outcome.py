"""The outcome of one call of a task function.

Pure: values only, and how an exception reads in a history.
"""

from __future__ import annotations

import traceback

from msgspec import Struct

from .retry import names_of
from .signals import Again, Reject

REASON_MAX = 1000
"""Characters of a reason; the whole traceback is in the worker's log."""


class Returned(Struct, tag=True, frozen=True):
    """The function returned."""

    result: bytes


class Failed(Struct, tag=True, frozen=True):
    """The function raised or took too long: the broker retries the task if attempts are left."""

    reason: str
    trace: str = ""  # of what it raised, for the log
    kinds: list[str] = []  # the classes of what it raised; none where it raised nothing
    is_last: bool = False  # it is dead-lettered: the broker gives no further attempt, or its Retry wants none
    rejects: bool = False  # its Retry wants none
    delay_s: float | None = None  # before the next attempt; None: the queue's back-off


class RefusedCall(Struct, tag=True, frozen=True):
    """The call can never succeed: the broker dead-letters it without a retry."""

    reason: str


class Deferred(Struct, tag=True, frozen=True):
    """The function asked to be called again later: no failure, so the attempt does not count."""

    delay_s: float
    reason: str = ""


class Dropped(Struct, tag=True, frozen=True):
    """The call was not finished: the attempt does not count."""


Outcome = Returned | Failed | RefusedCall | Deferred | Dropped


def outcome_of(error: BaseException) -> Failed | RefusedCall | Deferred:
    """The outcome of a call that raised."""
    if isinstance(error, Reject):
        return RefusedCall(_cut(error.reason))
    if isinstance(error, Again):
        return Deferred(error.delay_s, _cut(error.reason))
    return Failed(reason_of(error), "".join(traceback.format_exception(error)).rstrip(), names_of(error))


def reason_of(error: BaseException) -> str:
    """The last line of the traceback, cut to fit into a history."""
    lines = "".join(traceback.format_exception_only(error)).strip().splitlines()
    last = lines[-1] if lines else type(error).__name__
    return _cut(last)


def _cut(reason: str) -> str:
    return reason if len(reason) <= REASON_MAX else reason[: REASON_MAX - 3] + "..."
