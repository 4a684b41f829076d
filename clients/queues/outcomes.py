"""The arguments of outcomes, checked: delay, reason, result, and the progress before.

Contract: impossible values raise InvalidArgument before anything is sent. Pure.
"""

from __future__ import annotations

import reprlib
from typing import Literal

from ...transport.queue_messages import BY_GROUP, PROGRESS_BYTES_MAX
from ..arguments.quantities import Duration, seconds
from ..errors import InvalidArgument

Outcome = Literal["ack", "nack", "reject", "release"]
"""How leased tasks are settled, by the names of the verbs on the wire."""

GOES_WITH: dict[str, tuple[Outcome, ...]] = {"delay": ("nack",), "reason": ("nack", "reject"), "result": ("ack",)}
"""What may be said of an outcome."""

DELAY_MOST_S = 366 * 86400
"""As long as a broker lets a failed task wait."""

RESULT_BYTES_MAX = 256 << 10
"""Limit of a result: larger ones belong in a record."""

REASON_CHARS_MAX = 4096
"""Limit of a failure's reason. Fits a traceback; every snapshot carries it while the task is dead-lettered."""


def check_belongs(verb: Outcome, **said: object) -> None:
    """Refuse what is given and is not said of such an outcome."""
    for name, value in said.items():
        if value not in (None, "") and verb not in GOES_WITH[name]:
            fitting = " or ".join(GOES_WITH[name])
            raise InvalidArgument(f"{name}={reprlib.repr(value)} goes with {fitting}, not with {verb}")


def delay_milliseconds(delay: Duration | None) -> int:
    """The delay before a failed task is retried, as the wire has it."""
    if delay is None:
        return BY_GROUP
    found = seconds(delay, "delay")
    if found > DELAY_MOST_S:
        raise InvalidArgument(f"delay={delay!r} is over the {DELAY_MOST_S // 86400} days that a failed task may wait")
    return round(found * 1000)


def checked_reason(reason: str) -> str:
    """A reason as the wire takes it."""
    if not isinstance(reason, str):
        raise InvalidArgument(f"reason={reason!r} is not a text")
    return reason[:REASON_CHARS_MAX].encode(errors="backslashreplace").decode()[:REASON_CHARS_MAX]


def checked_result(result: bytes | None) -> bytes | None:
    """A result, or none."""
    return None if result is None else _checked_bytes("a result", result, RESULT_BYTES_MAX)


def checked_progress(progress: bytes) -> bytes:
    """What a worker says of a task meanwhile."""
    return _checked_bytes("progress", progress, PROGRESS_BYTES_MAX)


def _checked_bytes(what: str, value: bytes, most: int) -> bytes:
    if not isinstance(value, bytes):
        raise InvalidArgument(f"{what} is bytes, not {type(value).__name__}; text needs .encode()")
    if len(value) > most:
        raise InvalidArgument(
            f"{what} of {len(value)} bytes is over the limit of {most}: write a record, and give its offset"
        )
    return value
