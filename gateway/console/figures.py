"""Numbers, times and small graphs as pages show them: with units, and as short as they can be read.

Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

NONE = "–"
"""In place of a figure that is not known."""

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_AGES = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def count(value: float | None) -> str:
    """A number of things, in full."""
    return NONE if value is None else f"{value:,.0f}"


def brief(value: float | None) -> str:
    """A number of things in few characters: 950, 12.3 k, 4.56 M."""
    if value is None:
        return NONE
    for unit, scale, least in (("G", 1e9, 1e9), ("M", 1e6, 1e6), ("k", 1e3, 1e4)):
        if abs(value) >= least:
            return f"{_three(value / scale)} {unit}"
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def _three(value: float) -> str:
    """With three digits, or those before the point."""
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f}"


def rate(value: float | None) -> str:
    """Things a second."""
    return NONE if value is None else f"{brief(value)} /s"


def size(value: float | None) -> str:
    """Bytes."""
    if value is None:
        return NONE
    power = 0
    while abs(value) >= 1024 and power < len(_SIZES) - 1:
        value, power = value / 1024, power + 1
    return f"{value:.0f} {_SIZES[power]}" if power == 0 or value >= 100 else f"{value:.1f} {_SIZES[power]}"


def age(seconds: float | None) -> str:
    """How long something takes or took, in its two largest units."""
    if seconds is None:
        return NONE
    if seconds < 1:
        return "0 s" if seconds <= 0 else "under 1 s"
    left, parts = int(seconds), []
    for unit, length in _AGES:
        if left >= length or parts:
            parts.append(f"{left // length} {unit}")
            left %= length
    return " ".join(part for part in parts[:2] if not part.startswith("0 "))


def micros(value: float | None) -> str:
    """Microseconds, as the unit that fits."""
    if value is None:
        return NONE
    if value < 1000:
        return f"{value:.0f} µs"
    return f"{_three(value / 1000)} ms" if value < 1_000_000 else f"{_three(value / 1e6)} s"


def percent(value: float | None) -> str:
    """A share, 1.0 being all."""
    return NONE if value is None else f"{value * 100:.1f} %"


def iso(moment: datetime) -> str:
    """A time for programs, in UTC."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def setting(name: str, value: object) -> str:
    """A setting of a topic or a group, with the unit that its name says."""
    if value is None or value == "":
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if name.endswith("_s"):
            return age(value) if value >= 1 or value == 0 else f"{value * 1000:.3g} ms"
        return size(value) if name.endswith("_bytes") else f"{value:,}"
    return str(value)


SPARK_WIDTH, SPARK_HEIGHT = 120.0, 28.0


def spark(values: Sequence[float], most: int) -> str:
    """The points of a line through values, the latest at the right edge, for a graph with room for `most` of them."""
    if len(values) < 2:
        return ""
    top, step = max(*values, 1e-9), SPARK_WIDTH / (most - 1)
    left, low, high = SPARK_WIDTH - step * (len(values) - 1), SPARK_HEIGHT - 2, SPARK_HEIGHT - 4
    return " ".join(f"{left + step * at:.1f},{low - high * value / top:.1f}" for at, value in enumerate(values))
