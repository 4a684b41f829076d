"""Parses arguments into numbers: sizes, durations, moments, words, counts.

Contract: raises InvalidArgument, which names the argument, its value and what is allowed. Pure.
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

from . import units
from .errors import InvalidArgument

INT_MAX = (1 << 63) - 1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def size_bytes(value: int | str, name: str = "size", least: int = 0, most: int = INT_MAX) -> int:
    """Bytes of `value`; `name` is for the error."""
    try:
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            raise TypeError(f"{value!r} is no size")
        found = units.size_bytes(value)
    except (ValueError, TypeError) as error:
        raise InvalidArgument(f"{name}: {error}") from None
    if found < least:
        raise InvalidArgument(f"{name}={value!r} is below {least}")
    if found > most:
        raise InvalidArgument(f"{name}={value!r} is over {most} bytes")
    return found


def seconds(value: float | timedelta | str, name: str = "duration") -> float:
    """Seconds of `value`; `name` is for the error."""
    if (type(value) is float or type(value) is int) and 0 <= value <= units.SECONDS_MAX:
        return float(value)
    try:
        if isinstance(value, bool) or not isinstance(value, (int, float, timedelta, str)):
            raise TypeError(f"{value!r} is no time")
        found = units.seconds(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidArgument(f"{name}: {error}") from None
    if not 0 <= found <= units.SECONDS_MAX:
        raise InvalidArgument(f"{name}={value!r} is not a time of 0 seconds or more, and of a hundred years at most")
    return found


def some_seconds(value: float | timedelta | str, name: str) -> float:
    """Seconds of a duration that cannot be none."""
    found = seconds(value, name)
    if not found:
        raise InvalidArgument(f"{name}={value!r} has to be longer than 0 seconds")
    return found


def microseconds(moment: datetime, name: str = "time") -> int:
    """Microseconds UTC of a datetime with a zone; `name` is for the error."""
    if not isinstance(moment, datetime):
        raise InvalidArgument(f"{name}={moment!r} is not a datetime")
    if moment.utcoffset() is None:
        raise InvalidArgument(
            f"{name}={moment!r} has no zone, so it is another moment on each machine: give one, like "
            "datetime.now(UTC), or .astimezone() where it is local time"
        )
    try:
        return (moment.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)
    except (OverflowError, ValueError):
        raise InvalidArgument(f"{name}={moment} is a time that the calendar has no UTC for") from None


def whole(name: str, value: Any, least: int = 0, most: int = INT_MAX) -> int:
    """A whole number from `least` to `most`. True and False are none."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        span = f"from {least}" if least > -INT_MAX else "of 64 bits"
        highest = f" to {most}" if most < INT_MAX else ""
        raise InvalidArgument(f"{name}={reprlib.repr(value)} is not a whole number {span}{highest}")
    return value


def one_of(name: str, value: Any, known: Collection[str], beside: str = "") -> None:
    """Raise InvalidArgument for an unknown word; the message has the nearest known one and the other allowed values."""
    if not isinstance(value, str) or value not in known:
        near = difflib.get_close_matches(str(value), known, 1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise InvalidArgument(f"{name}={reprlib.repr(value)} is none of {', '.join(map(repr, known))}{beside}{meant}")
