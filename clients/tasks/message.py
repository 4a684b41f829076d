"""Calls on their way to a queue: the records that they become, one or many."""

from __future__ import annotations

from datetime import datetime
from itertools import chain
from typing import Any, Literal

from msgspec import Struct

from .. import tracing
from ..arguments.quantities import microseconds
from ..barriers.descriptions import BARRIER_HEADER, Callback, GroupTask
from ..errors import InvalidArgument
from ..producing.queued import not_before

NAME_HEADER = "penstock-task"
"""The header of a record that names the function."""

ENCODING_HEADER = "penstock-encoding"
"""The header of a record that says how its value, its progress and its result are encoded."""

RETRY_HEADER = "penstock-retry"
"""The header of a record that is retried by a rule of its own."""

EXPIRES_HEADER = "penstock-expires"
"""The header of a record that no worker begins after a time: microseconds UTC, in digits."""


How = Literal["one", "all", "ended"]


class Then(Struct, frozen=True):
    """The function that is called once some calls have ended: its queue, and what its task is sent with.

    `how` says what it is called with: "one" result, "all" results, or how each "ended".
    """

    queue: str
    headers: dict[str, bytes]
    priority: int
    how: How

    @property
    def name(self) -> str:
        """Of its function."""
        return self.headers[NAME_HEADER].decode()

    def callback(self) -> Callback:
        """Its record: with the trace that is current."""
        headers = {**tracing.headers(self.headers), BARRIER_HEADER: self.how.encode()}
        return Callback(self.queue, headers, self.priority, self.how == "ended")


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
    then: Then | None = None

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
        callback = None if self.then is None else self.then.name
        for name, given in (("delay", self.delay_s), ("expires", self.expires), ("then", callback)):
            if given is not None:
                raise InvalidArgument(f"{name}={given!r} is of one call: a schedule sends one at each of its times")
        return {
            "key": self.key, "headers": self.headers, "zone": zone, "priority": self.priority,
            "coalesce": self.coalesce,
        }  # fmt: skip

    def grouped(self, group: str, now_us: int) -> GroupTask:
        """The call as a task of a group of calls. Raises InvalidArgument."""
        if self.dedup is not None:
            function = self.headers[NAME_HEADER].decode()
            raise InvalidArgument(
                f"{function} has dedup=: a call that repeats another is no task of its own to wait for"
            )
        at_us = not_before(self.delay_s, self.at, now_us)
        return GroupTask(self.queue, group, self.value, self.key, headers_of(self, now_us), self.priority, at_us)


class Messages(Struct, frozen=True):
    """Many calls of one function on their way to its queue; `keys` and `dedups` are one for each call, or None.

    `runs` are their values, some thousand together, end to end: a producer takes them as they are.
    """

    queue: str
    count: int
    runs: list[Any]
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
        nothing = [None] * self.count
        beside = zip(chain.from_iterable(self.runs), self.keys or nothing, self.dedups or nothing, strict=True)
        return [(value, {"key": key, "dedup": dedup, **shared}) for value, key, dedup in beside]


def headers_of(sent: Message | Messages, now_us: int) -> dict[str, bytes]:
    """The headers of what is sent now: with the trace that is current, and the time at which it expires."""
    headers, expires = tracing.headers(sent.headers), sent.expires
    if expires is None:
        return headers
    if isinstance(expires, datetime):
        return {**headers, EXPIRES_HEADER: b"%d" % microseconds(expires, "expires")}
    return {**headers, EXPIRES_HEADER: b"%d" % (now_us + round(expires * 1e6))}
