"""The wall clock, for times in records; waiting uses the connection's monotonic clock."""

from __future__ import annotations

import time


def wall_us() -> int:
    """Now, in microseconds UTC."""
    return time.time_ns() // 1000
