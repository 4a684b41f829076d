"""Retry rules of a task function: how often, and after which delay.

Idea: the rules of a queue group in the words of the application. They are settings of the queue, which the broker
applies: a worker that dies is retried by the same rules as a function that raises.

Pure: values only.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ..arguments.checking import check_fields
from ..arguments.quantities import Duration, seconds
from ..errors import InvalidArgument


class Retry(Struct, frozen=True):
    """Attempts and the time between them.

    Attempt n + 1 follows `backoff * 2 ** (n - 1)` after attempt n failed, `max_backoff` at most; a random part of up to
    `jitter` (0 to 1) is taken off. After `max_attempts` the task is dead-lettered; None: it is retried for ever.
    """

    max_attempts: int | None = 20
    backoff: Duration = 1.0
    max_backoff: Duration = 300.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        check_fields(self)
        if self.max_attempts is not None and self.max_attempts < 1:
            raise InvalidArgument(f"max_attempts={self.max_attempts!r} is below 1: a task is tried once at least")
        if not 0 <= self.jitter <= 1:
            raise InvalidArgument(f"jitter={self.jitter!r} is not a share from 0 to 1")

    def settings(self) -> dict[str, Any]:
        """Settings for a queue group."""
        return {
            "max_attempts": self.max_attempts,
            "backoff_s": seconds(self.backoff, "backoff"),
            "backoff_max_s": seconds(self.max_backoff, "max_backoff"),
            "jitter": float(self.jitter),
        }
