"""What can be measured: a figure, a latency, a curve; and what came out of measuring one.

Idea: a bench says what to measure and what stands beside it; the harness decides in which order and how often.
Beside penstock stand *limits* (what this machine does without any system: bare ZeroMQ, memcpy, fdatasync) and
*peers* (what users would pick instead). A limit is sampled at once; a peer is started before its first sample and
stopped after its last, so that no two servers share the machine while a figure is taken.

Contract: values only; nothing here runs, waits or prints. Knows no system and not penstock.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Sample = Callable[[], float]
"""One measurement, in the unit of its row. Starts and stops what it needs."""

T = TypeVar("T")
Beside = Callable[[], AbstractContextManager[T]]
"""A peer: entered once before its samples, left after them. Raises Absent when it cannot run here."""

BEST_PEER = "best peer"
"""In `ratio_goals`: the peer that did best in this run."""


class Absent(Exception):
    """A peer cannot run on this machine; the text says why. It is reported as absent, never guessed."""


@dataclass
class Row:
    """One figure. Bounds are least values when `more_is_better`, most otherwise."""

    name: str
    unit: str
    measure: Sample
    more_is_better: bool = True
    goal: float | None = None
    limits: Mapping[str, Sample] = field(default_factory=dict)
    peers: Mapping[str, Beside[Sample]] = field(default_factory=dict)
    ratio_goals: Mapping[str, float] = field(default_factory=dict)  # by name of a limit or peer, or BEST_PEER
    durability: str = ""  # what an acknowledgement meant: durable, written, or nothing to acknowledge
    note: str = ""
    full: bool = False  # only in `make bench-full`


@dataclass(frozen=True)
class Percentiles:
    """What one histogram says, in microseconds."""

    p50: float
    p90: float
    p99: float
    p999: float
    most: float


LatencySample = Callable[[], Percentiles]


@dataclass
class Latency:
    """Latency at one load, from the moment each message was due. Less is better."""

    name: str
    measure: LatencySample
    limits: Mapping[str, LatencySample] = field(default_factory=dict)
    peers: Mapping[str, Beside[LatencySample]] = field(default_factory=dict)
    ratio_goals: Mapping[tuple[str, str], float] = field(default_factory=dict)  # ("p99", name or BEST_PEER) -> most
    durability: str = ""
    note: str = ""
    full: bool = False


@dataclass
class Curve:
    """How a cost grows: one value for each `x`. One plot."""

    name: str
    unit: str
    x_name: str
    xs: Sequence[float]
    measure: Callable[[float], float]
    beside: Mapping[str, Callable[[float], float]] = field(default_factory=dict)
    durability: str = ""
    note: str = ""
    full: bool = False


@dataclass
class Compared(Generic[T]):
    """One limit or peer: its samples, and the samples of penstock that were taken in turn with them."""

    name: str
    is_peer: bool
    samples: list[T] = field(default_factory=list)
    ours: list[T] = field(default_factory=list)
    absent: str = ""  # why there are none


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Median of the ratios of pairs that were measured one after the other."""
    pairs = [a / b for a, b in zip(ours, theirs, strict=True) if b]
    return statistics.median(pairs) if pairs else None
