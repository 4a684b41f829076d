"""Calls on their way to a queue: the records that they become, one or many."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from .. import tracing
from ..arguments.quantities import microseconds
from ..errors import InvalidArgument

NAME_HEADER = "penstock-task"
"""The header of a record that names the function."""

ENCODING_HEADER = "penstock-encoding"
"""The header of a record that says how its value, its progress and its result are encoded."""

RETRY_HEADER = "penstock-retry"
"""The header of a record that is retried by a rule of its own."""

EXPIRES_HEADER = "penstock-expires"
"""The header of a record that no worker begins after a time: microseconds UTC, in digits."""


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
    expires: float | datetime | None = None  # seconds from now, or a moment
    attempts: int | None = 0  # that its own rule allows; 0: it has none
    coalesce: bool = False  # as of a schedule

    def sending(self, now_us: int) -> dict[str, Any]:
        """The producer's arguments beside the value: with the trace that is current, which a schedule does not have."""
        return {
            "key": self.key, "headers": headers_of(self, now_us), "delay": self.delay_s, "at": self.at,
            "priority": self.priority or None, "dedup": self.dedup,
        }  # fmt: skip

    def scheduling(self, zone: str) -> dict[str, Any]:
        """The schedule's arguments beside the value. Raises InvalidArgument for a call that it cannot make."""
        if self.dedup is not None:
            function = self.headers[NAME_HEADER].decode()
            raise InvalidArgument(f"{function} has dedup=, which schedules do not know: schedule a function without it")
        for name, given in (("delay", self.delay_s), ("expires", self.expires)):
            if given is not None:
                raise InvalidArgument(f"{name}={given!r} is of one call: a schedule sends one at each of its times")
        return {
            "key": self.key, "headers": self.headers, "zone": zone, "priority": self.priority,
            "coalesce": self.coalesce,
        }  # fmt: skip


class Messages(Struct, frozen=True):
    """Many calls of one function on their way to its queue; `keys` and `dedups` are one for each call, or None."""

    queue: str
    values: list[bytes]
    keys: list[bytes | None] | None
    dedups: list[bytes | None] | None
    headers: dict[str, bytes]
    priority: int
    delay_s: float | None = None
    expires: float | datetime | None = None
    attempts: int | None = 0

    @property
    def alike(self) -> bool:
        """Whether the calls differ by their values only."""
        return self.keys is None and self.dedups is None

    def sending_all(self, now_us: int) -> dict[str, Any]:
        """The producer's arguments beside the values of calls that are alike."""
        return {"headers": headers_of(self, now_us), "delay": self.delay_s, "priority": self.priority or None}

    def each(self, now_us: int) -> list[tuple[bytes, dict[str, Any]]]:
        """The values, with the producer's arguments beside each."""
        shared = self.sending_all(now_us)
        nothing = [None] * len(self.values)
        beside = zip(self.values, self.keys or nothing, self.dedups or nothing, strict=True)
        return [(value, {"key": key, "dedup": dedup, **shared}) for value, key, dedup in beside]


def headers_of(sent: Message | Messages, now_us: int) -> dict[str, bytes]:
    """The headers of what is sent now: with the trace that is current, and the time at which it expires."""
    headers, expires = tracing.headers(sent.headers), sent.expires
    if expires is None:
        return headers
    if isinstance(expires, datetime):
        return {**headers, EXPIRES_HEADER: b"%d" % microseconds(expires, "expires")}
    return {**headers, EXPIRES_HEADER: b"%d" % (now_us + round(expires * 1e6))}
