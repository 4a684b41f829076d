"""The time of day, as records have it; waiting goes by the clock of the connection, which never jumps."""

from __future__ import annotations

import time


def wall_us() -> int:
    """Now, in microseconds UTC."""
    return time.time_ns() // 1000
