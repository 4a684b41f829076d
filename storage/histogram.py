"""A histogram of whole numbers: how many had each number of bits.

Idea: value v is counted in bucket `v.bit_length()`, so bucket b has the values below 2**b that are not in an earlier
one. Noting a value is two additions to integers; quantiles are worked out by those who look, within a factor of two.

Contract: values of 0 and above; times are in microseconds. Must not know what is counted. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

BUCKETS = 64

SAMPLE = 16
"""Of what is too frequent to be noted each time, one in so many is. A power of two."""


class Histogram:
    """Counts by number of bits, and the sum of all values."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        self.total = 0

    def note(self, value: int) -> None:
        """Count one value."""
        self.counts[value.bit_length()] += 1
        self.total += value

    def values(self) -> list[int]:
        """The sum of all values, then the counts up to the last that is not 0: as counters travel."""
        return shown(self.total, self.counts)


def shown(total: int, counts: Sequence[int]) -> list[int]:
    """A histogram as it travels: see `Histogram.values`."""
    last = max((place for place, count in enumerate(counts) if count), default=-1)
    return [total, *counts[: last + 1]]


def quantile(values: Sequence[int], share: float) -> int:
    """A bound that this share of the values noted lie below, of a histogram as it travels; 0 without any."""
    counts = values[1:]
    wanted = share * sum(counts)
    for bits, count in enumerate(counts):
        wanted -= count
        if wanted <= 0:
            return (1 << bits) - 1
    return 0


def lately(values: Sequence[int], before: Sequence[int] | None) -> Sequence[int]:
    """What was noted since a look before; everything, where that is nothing or there was no look."""
    old = [*(before or ()), *[0] * (len(values) - len(before or ()))]
    since = [value - each for value, each in zip(values, old, strict=True)]
    return since if any(since[1:]) else values
