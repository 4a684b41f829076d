"""Sizes, times and positions as people write them, as numbers as machines use them.

Contract: sizes are int bytes or text like "64MB", durations are seconds, timedelta or
text like "7d", moments are datetime. What cannot be read raises InvalidArgument with an example. Pure.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from ...storage import units
from ...storage.header import EVENT_TIMES
from ...transport.messages import EARLIEST, LATEST
from ..errors import InvalidArgument

SECONDS_MAX = 100 * 365.25 * 86400
"""The longest duration: what waits so long waits for ever, and it fits into every message."""

Size = int | str
Duration = float | timedelta | str
Start = Literal["earliest", "latest"] | datetime
"""Where to begin without a position: an end, or the first record appended at or after a time."""


def size_bytes(value: Size, name: str = "size") -> int:
    """Bytes of `value`; `name` is for the error."""
    try:
        if isinstance(value, bool):
            raise TypeError(f"{value} is no size")
        found = units.size_bytes(value)
    except (ValueError, TypeError) as error:
        raise InvalidArgument(f"{name}: {error}") from None
    if found < 0:
        raise InvalidArgument(f"{name}={value!r} is below 0")
    return found


def seconds(value: Duration, name: str = "duration") -> float:
    """Seconds of `value`; `name` is for the error."""
    if (type(value) is float or type(value) is int) and 0 <= value <= SECONDS_MAX:
        return float(value)
    try:
        if isinstance(value, bool):
            raise TypeError(f"{value} is no time")
        found = units.seconds(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidArgument(f"{name}: {error}") from None
    if not 0 <= found <= SECONDS_MAX:
        raise InvalidArgument(f"{name}={value!r} is not a time of 0 seconds or more, and of a hundred years at most")
    return found


def some_seconds(value: Duration, name: str) -> float:
    """Seconds of a duration that cannot be none."""
    found = seconds(value, name)
    if not found:
        raise InvalidArgument(f"{name}={value!r} has to be longer than 0 seconds")
    return found


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


def microseconds(moment: datetime, name: str = "time") -> int:
    """Microseconds UTC of a datetime with a zone; `name` is for the error."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    if not isinstance(moment, datetime):
        raise InvalidArgument(f"{name}={moment!r} is not a datetime")
    if moment.utcoffset() is None:
        raise InvalidArgument(
            f"{name}={moment!r} has no zone, so it is another moment on each machine: give one, like "
            "datetime.now(UTC), or .astimezone() where it is local time"
        )
    try:
        return (moment.astimezone(UTC) - epoch) // timedelta(microseconds=1)
    except (OverflowError, ValueError):
        raise InvalidArgument(f"{name}={moment} is a time that the calendar has no UTC for") from None


def start_time(value: Start, name: str = "start") -> int:
    """EARLIEST, LATEST or a time, as the wire has it."""
    if value == "earliest":
        return EARLIEST
    if value == "latest":
        return LATEST
    if isinstance(value, datetime):
        return microseconds(value, name)
    raise InvalidArgument(f'{name}={value!r} is not a place to start: give "earliest", "latest" or a datetime')


def setting_values(given: dict[str, Any]) -> dict[str, Any]:
    """Topic settings with sizes and durations as numbers; which settings exist is the broker's business."""
    return {name: _setting(name, value) for name, value in given.items()}


def _setting(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name.endswith("_bytes"):
        return size_bytes(value, name)
    return seconds(value, name) if name.endswith("_s") else value
