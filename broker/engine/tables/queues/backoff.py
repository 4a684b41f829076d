"""Back-off: the delay before a failed record is retried.

Idea: exponential back-off: the delay doubles with each attempt up to a limit. A random part is taken off (jitter), so
that records that failed together do not return together. Of a long run, neighbours do: it is cut into a few hundred
stretches, each with a delay of its own, so that a lease of any length is returned in one turn.

Contract: computes times and changes nothing. Times are log time; randomness is an argument. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .leases import Run
    from .settings import QueueSettings

Chance = Callable[[], float]
"""A random number from 0 up to 1."""

TimedRun = tuple[int, int, int, int]
"""First offset, how many, attempts so far, ready at."""

DOUBLINGS_MAX = 64
"""Beyond this, every delay is at its limit."""

STRETCHES = 256
"""Stretches of one run, at most, that have delays of their own."""


def backed_off(settings: QueueSettings, now_us: int, chance: Chance, run: Run) -> list[TimedRun]:
    """The retry times of a failed run."""
    first, count, attempt = run
    pause_us = 1e6 * min(settings.backoff_max_s, settings.backoff_s * 2.0 ** min(attempt - 1, DOUBLINGS_MAX))
    if not settings.jitter or not pause_us:
        return [(first, count, attempt, now_us + round(pause_us))]
    end, step = first + count, -(-count // STRETCHES)
    return [
        (begin, min(step, end - begin), attempt, now_us + round(pause_us * (1 - settings.jitter * chance())))
        for begin in range(first, end, step)
    ]


def untried(runs: Iterable[Run], ready_us: int) -> list[TimedRun]:
    """Records that were leased and not tried, ready at a time: the attempt does not count."""
    return [(first, count, attempt - 1, ready_us) for first, count, attempt in runs]
