"""How long requests take in the broker, by kind: from arrival to the answer's departure.

Idea: every request is counted, and one of each `SAMPLE` of a kind is timed, so that the others cost one addition. A
timed request is known by its number: of two connections with equal numbers, the later one is timed.

Contract: requests that wait for records count the wait, as their clients see it. Requests that are never answered are
forgotten. Memory: `TIMED_MOST` requests. Must not know what requests mean, or clocks.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from ..storage.histogram import SAMPLE, Histogram

if TYPE_CHECKING:
    from collections.abc import Hashable

TIMED_MOST = 256


class Latencies:
    """Requests by kind, and how long some of them took."""

    def __init__(self) -> None:
        self.timed: dict[int, tuple[Hashable, type, float]] = {}
        """Requests that are being timed, by number: their peer, kind and arrival."""
        self._counts = defaultdict[type, int](int)
        self._took_us = defaultdict[type, Histogram](Histogram)

    def arrived(self, peer: Hashable, message: Any, at_s: float) -> None:
        """Count a request, and time it if it is its turn."""
        kind = type(message)
        before = self._counts[kind]
        self._counts[kind] = before + 1
        if before % SAMPLE:
            return
        request = getattr(message, "request", 0)
        if request:
            if len(self.timed) >= TIMED_MOST:
                self.timed.clear()
            self.timed[request] = (peer, kind, at_s)

    def answered(self, peer: Hashable, request: int, at_s: float) -> None:
        """An answer leaves."""
        asker, kind, since_s = self.timed[request]
        if asker == peer:
            del self.timed[request]
            self._took_us[kind].note(int((at_s - since_s) * 1e6))

    def stats(self) -> dict[str, Any]:
        """Counts and histograms by the names of the kinds."""
        return {
            "requests.by_kind": {kind.__name__: count for kind, count in self._counts.items()},
            "requests.us": {kind.__name__: found.values() for kind, found in self._took_us.items()},
        }
