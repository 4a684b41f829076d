"""Sizes and times as people write them: "64MB", "1.5s", "7d".

Idea: one parser for arguments, topic settings, configuration and command lines. Sizes are powers of 1024, with or
without the "i": 64MB = 64MiB = 67108864. Times in text need a unit: "7" is days to some people and seconds to others.
Contract: `size_bytes` and `seconds` raise ValueError with a sentence that quotes the input. Pure.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta

_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")

SECONDS_MAX = 100 * 366 * 86400
"""The longest duration: in practice for ever, and it fits into every message, clock and calendar."""

_SIZES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def size_bytes(text: str | int) -> int:
    """Bytes in `text`: 4096, "4096", "64KB", "1.5GiB". Raises ValueError."""
    if isinstance(text, int):
        return text
    found = _NUMBER.fullmatch(text)
    unit = found and _SIZES.get(re.sub("i?b$", "", found[2].lower()) or "")
    if not found or not unit:
        raise ValueError(
            f"{text!r} is not a size: write bytes, 0 or more, or a number with KB, MB, GB or TB, as in 64MB"
        )
    return round(float(found[1]) * unit) if "." in found[1] else int(found[1]) * unit


def seconds(text: str | float | timedelta) -> float:
    """Seconds in `text`: "200ms", "30s", "15m", "2h", "7d", "1w", "0", a number or a timedelta. Raises ValueError."""
    if isinstance(text, timedelta):
        return text.total_seconds()
    if isinstance(text, int | float):
        return float(text)
    found = _NUMBER.fullmatch(text)
    unit = found and _SECONDS.get(found[2].lower())
    if found and not found[2]:
        if not float(found[1]):
            return 0.0
        raise ValueError(f"{text!r} is a number without a unit: write {found[1]}s for seconds, or {found[1]}d for days")
    if not found or not unit:
        raise ValueError(f"{text!r} is not a time: write a number, 0 or more, with us, ms, s, m, h, d or w, as in 30s")
    if (given := float(found[1]) * unit) > SECONDS_MAX:
        raise ValueError(f"{text!r} is over a hundred years, the longest time")
    return given


def size_text(count: float) -> str:
    """`count` bytes for people: 67108864 -> "64 MB"."""
    for unit in ("B", "KB", "MB", "GB"):
        if abs(count) < 1024 or unit == "GB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if count == math.floor(count) or count >= 100 else f"{count:.1f} {unit}"


def time_text(duration_s: float) -> str:
    """A duration for people: 0.00012 -> "120 us", 90 -> "90 s", 604800 -> "7 d"."""
    for unit, length in (("us", 1e-6), ("ms", 1e-3)):
        if 0 < duration_s < length * 1000:
            return f"{duration_s / length:.3g} {unit}"
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("m", 60.0)):
        if duration_s >= length and duration_s % length == 0:
            return f"{duration_s / length:.0f} {unit}"
    return f"{duration_s:.3g} s" if duration_s < 100 else f"{duration_s:,.0f} s"


def span_text(first: int, end: int) -> str:
    """The range of offsets, as in "0 to 9", or none."""
    return f"{first} to {end - 1}" if end > first else f"none yet, the next one is {end}"


def count_text(count: int, noun: str) -> str:
    """How many of what: 1 record, 1,234 records."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
