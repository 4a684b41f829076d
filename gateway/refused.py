"""What the doors of a gateway have refused, counted by reason, where the exporter of metrics sees it.

Idea: neither process is a client of the other. Where a supervisor runs both, it gives both a page of memory, in which
the gateway counts and from which the exporter reads when it is scraped. The page outlives either, so a gateway that is
started again goes on counting.

A gateway that runs apart shows its own at its HTTP door.

Contract: one process counts. A count is 8 bytes that are written at once, so a reader needs no lock. Without a page,
the counts are the process's own.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from typing import Literal, get_args

from .exposition import Metric

Reason = Literal[
    "credentials", "guesses", "grants", "quota", "size", "memory", "connections", "slow", "protocol", "records"
]  # fmt: skip

REASONS: tuple[Reason, ...] = get_args(Reason)
"""In the order of their places in the page; docs/seeing.md says what each is."""

_PLACES = {reason: place for place, reason in enumerate(REASONS)}
_COUNT_BYTES = 8


class RefusedCounts:
    """See the module."""

    def __init__(self, page: int = -1) -> None:
        """`page`: the descriptor of the shared page; -1 for none."""
        memory = bytearray(_COUNT_BYTES * len(REASONS)) if page < 0 else mmap.mmap(page, mmap.PAGESIZE)
        self._counts = memoryview(memory).cast("Q")

    def add(self, reason: Reason) -> None:
        """Count one more."""
        self._counts[_PLACES[reason]] += 1

    def by_reason(self) -> dict[str, int]:
        """All counts, also those that are 0."""
        return {reason: self._counts[place] for reason, place in _PLACES.items()}


def metric_of(by_reason: Mapping[str, int]) -> Metric:
    """The counts as Prometheus has them."""
    samples = [((("reason", reason),), count) for reason, count in by_reason.items()]
    return Metric("penstock_gateway_refused_total", "counter", "Refused by the gateway's doors.", samples)
