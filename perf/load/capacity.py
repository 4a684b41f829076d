"""The rate that a system sustains: found by trying, first in powers of two, then by bisection.

Idea: a rate holds when an open loop at it ends with everything received, with a p99 below a bound and with a latency
that does not grow. One failure may be the machine's, so a rate fails only when it fails twice.

Contract: bounded: at most TRIES_MAX rates are tried. `search` is pure; `holds` judges one run.
"""

from __future__ import annotations

from collections.abc import Callable

from ..systems.system import System
from . import loads
from .loads import Load, Outcome

FIRST_BYTES = 20_000_000
"""What the first rate that is tried comes to, in bytes per second, each record counted as RECORD_COSTS_BYTES longer."""
RECORD_COSTS_BYTES = 900
SECONDS, SHORTEST_S = 1.0, 0.2
"""Of a try."""
TRIES_MAX = 32
P99_MOST_US = 100_000.0
GROWTH_MAX = 0.02
"""Seconds of latency per second: at this, the system does 2 % less than what is offered."""


def rate_of(system: System, address: str, size: int = 100, precision: float = 0.1, seconds: float = SECONDS) -> int:
    """The rate a running system sustains, in messages of `size` bytes per second."""
    first = FIRST_BYTES // (size + RECORD_COSTS_BYTES)
    return sustained(lambda rate: loads.run(system, address, Load(rate, seconds, size)), first, precision)


def keeps_up(outcome: Outcome) -> bool:
    """Whether the system handled the whole load."""
    return not outcome.missing and outcome.growth <= GROWTH_MAX and outcome.percentiles.p99 <= P99_MOST_US


def sustained(run: Callable[[int], Outcome], first: int, precision: float = 0.1) -> int:
    """The highest rate found at which `run` keeps up, at least twice for each that does not. 0 when none does."""
    return search(lambda rate: keeps_up(run(rate)) or keeps_up(run(rate)), first, precision)


def search(holds: Callable[[int], bool], first: int, precision: float) -> int:
    """The highest rate that holds, within `precision`, searched from `first` up or down."""
    low, high, tries = 0, 0, 0
    rate = max(1, first)
    while tries < TRIES_MAX and not (low and high) and rate:
        tries += 1
        low, high = (rate, high) if holds(rate) else (low, rate)
        rate = rate * 2 if low else rate // 2
    while tries < TRIES_MAX and low and high > low * (1 + precision) and high - low > 1:
        tries += 1
        middle = max(low + 1, int((low * high) ** 0.5))
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
