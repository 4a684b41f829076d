"""A call on its way to a queue: the record that it becomes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from .. import tracing
from ..errors import InvalidArgument

NAME_HEADER = "penstock-task"
"""The header of a record that names the function."""

ENCODING_HEADER = "penstock-encoding"
"""The header of a record that says how its value, its progress and its result are encoded."""


class Message(Struct, frozen=True):
    """One call on its way to a queue."""

    queue: str
    value: bytes
    key: bytes | None
    headers: dict[str, bytes]
    priority: int
    delay_s: float | None = None
    at: datetime | None = None
    dedup: bytes | None = None

    def sending(self) -> dict[str, Any]:
        """The producer's arguments beside the value: with the trace that is current, which a schedule does not have."""
        return {
            "key": self.key, "headers": tracing.headers(self.headers), "delay": self.delay_s, "at": self.at,
            "priority": self.priority or None, "dedup": self.dedup,
        }  # fmt: skip

    def scheduling(self, zone: str) -> dict[str, Any]:
        """The schedule's arguments beside the value. Raises InvalidArgument for a call that it cannot make."""
        if self.dedup is not None:
            function = self.headers[NAME_HEADER].decode()
            raise InvalidArgument(f"{function} has dedup=, which schedules do not know: schedule a function without it")
        return {"key": self.key, "headers": self.headers, "zone": zone, "priority": self.priority}
