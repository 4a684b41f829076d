"""A pace: how many tokens a bucket gets in a time, and how many it holds.

Contract: `pace_of` raises InvalidSettings with one sentence. Intervals are rounded up, so no rate is exceeded. Pure.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ....errors import InvalidSettings

SECOND = 1_000_000_000_000
"""In picoseconds: the highest rate has whole intervals."""

BURST_S = 0.1
"""The burst where none is given, as a share of a second's worth."""

COUNT_MAX = 1_000_000_000
"""Leases in one unit of time, and of a burst."""

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_RATE = re.compile(r"([0-9]{1,10})/([smhd])")


class LeasePace(NamedTuple):
    """The measures of a token bucket, in picoseconds."""

    interval: int  # from one token to the next
    depth: int  # from an empty bucket to a full one

    @property
    def burst(self) -> int:
        """Tokens of a full bucket."""
        return self.depth // self.interval


def per_second(rate: float) -> LeasePace:
    """So many a second."""
    interval = round(SECOND / rate)
    return LeasePace(interval, max(round(rate * BURST_S), 1) * interval)


def pace_of(rate: str, burst: int | None) -> LeasePace:
    """The pace of a rate as text: "100/s", "10/m". Raises InvalidSettings."""
    found = _RATE.fullmatch(rate)
    count = int(found[1]) if found else 0
    if found is None or not 1 <= count <= COUNT_MAX:
        raise InvalidSettings(
            f"queue setting rate={rate!r} is not allowed: it has to be a number of leases from 1 to {COUNT_MAX} in a "
            "second, minute, hour or day, as in 100/s, 10/m, 500/h or 1/d; or nothing for no limit"
        )
    interval = -(-_UNITS[found[2]] * SECOND // count)
    tokens = max(round(BURST_S * SECOND / interval), 1) if burst is None else burst
    return LeasePace(interval, tokens * interval)
