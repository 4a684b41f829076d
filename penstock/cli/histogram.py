"""Durations as percentiles and as bars for a terminal. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from ..storage.units import time_text

PERCENTILES = (50.0, 90.0, 99.0, 99.9)
SHORTEST_S = 1e-9
"""Shorter durations count as this."""

BARS = " ▏▎▍▌▋▊▉█"
_STEPS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
"""Edges within each power of ten: steps of about the same ratio, at numbers that read well."""


def summary(durations_s: Sequence[float]) -> dict[str, float]:
    """Percentiles by name, by nearest rank: each is a measured duration. Needs at least one."""
    ordered = sorted(durations_s)
    ranks = {percent: math.ceil(round(percent * len(ordered) / 100, 6)) for percent in PERCENTILES}
    found = {f"p{percent:g}": ordered[max(rank - 1, 0)] for percent, rank in ranks.items()}
    return {"min": ordered[0], **found, "max": ordered[-1]}


def histogram(durations_s: Sequence[float], *, width: int = 40) -> list[str]:
    """One line per range of durations, with a bar of at most `width` characters; the longest is the most common."""
    if not durations_s:
        return []
    edges = _edges(min(durations_s), max(durations_s))
    counts = [0] * (len(edges) - 1)
    for duration in durations_s:
        counts[_bucket(edges, duration)] += 1
    labels = [f"{time_text(low)} - {time_text(high)}" for low, high in pairwise(edges)]
    widest, most = max(map(len, labels)), max(counts)
    return [
        f"{label:>{widest}}  {_bar(count / most * width):<{width}}  {count:,}"
        for label, count in zip(labels, counts, strict=True)
    ]


def _edges(lowest: float, highest: float) -> list[float]:
    """The edges from the last at or below `lowest` to the first above `highest`."""
    lowest, highest = max(lowest, SHORTEST_S), max(highest, SHORTEST_S)
    power = math.floor(math.log10(lowest)) - 1
    ladder = [step * 10.0**exponent for exponent in range(power, power + 14) for step in _STEPS]
    first = max(at for at, edge in enumerate(ladder) if edge <= lowest)
    last = next((at for at, edge in enumerate(ladder) if edge > highest), len(ladder) - 1)
    return ladder[first : last + 1]


def _bucket(edges: list[float], duration: float) -> int:
    return next((at for at, edge in enumerate(edges[1:]) if duration < edge), len(edges) - 2)


def _bar(length: float) -> str:
    whole, part = divmod(round(length * 8), 8)
    return "█" * whole + (BARS[part] if part else "")
