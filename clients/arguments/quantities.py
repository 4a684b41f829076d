"""Parses sizes, times and positions into numbers.

Contract: sizes are int bytes or text like "64MB", durations are seconds, timedelta or
text like "7d", moments are datetime. Invalid ones raise InvalidArgument with an example. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

from ...storage.arguments import microseconds, seconds, size_bytes, some_seconds
from ...storage.header import EVENT_TIMES
from ...transport.messages import EARLIEST, LATEST
from ..errors import InvalidArgument

__all__ = [
    "EVENT_TIME_MAX", "EVENT_TIME_MIN", "Duration", "Size", "Start", "event_time", "lease_milliseconds", "microseconds",
    "seconds", "setting_values", "size_bytes", "some_seconds", "start_time",
]  # fmt: skip

Size = int | str
Duration = float | timedelta | str
Start = Literal["earliest", "latest"] | datetime
"""Where to begin without a position: an end, or the first record appended at or after a time."""


EVENT_TIME_MIN = 31_536_000_000_000
"""Microseconds UTC of 1971: a number below it counts seconds, or milliseconds up to the year 2969."""

EVENT_TIME_MAX = EVENT_TIMES[1]
"""Microseconds UTC of the end of 9999, where calendars end: a number above it counts nanoseconds."""


def event_time(value: int | datetime) -> int:
    """Microseconds UTC of an event."""
    if isinstance(value, datetime):
        return min(microseconds(value, "timestamp"), EVENT_TIME_MAX)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidArgument(f"timestamp={value!r} is no time: give a datetime with a zone, or whole microseconds UTC")
    if not EVENT_TIME_MIN <= value <= EVENT_TIME_MAX:
        raise InvalidArgument(
            f"timestamp={value} counts no microseconds since 1970 UTC: those of 1971 to 9999 are {EVENT_TIME_MIN} to "
            f"{EVENT_TIME_MAX}; seconds, milliseconds and nanoseconds have to be made such, and for other times there "
            "is datetime"
        )
    return value


def start_time(value: Start, name: str = "start") -> int:
    """EARLIEST, LATEST or a time, as the wire has it."""
    if value == "earliest":
        return EARLIEST
    if value == "latest":
        return LATEST
    if isinstance(value, datetime):
        return microseconds(value, name)
    raise InvalidArgument(f'{name}={value!r} is not a place to start: give "earliest", "latest" or a datetime')


def setting_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """Topic settings with sizes and durations as numbers; which settings exist is the broker's business."""
    return {name: _setting(name, value) for name, value in given.items()}


def _setting(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name.endswith("_bytes"):
        return size_bytes(value, name)
    return seconds(value, name) if name.endswith("_s") and not name.endswith("_per_s") else value


def lease_milliseconds(lease: Duration) -> int:
    """A lease's length as on the wire, where 0 has another meaning."""
    found = seconds(lease, "lease")
    if not 0.001 <= found <= 366 * 86400:
        raise InvalidArgument(f"lease={lease!r} is not a time from 1 ms to 366 days")
    return round(found * 1000)
