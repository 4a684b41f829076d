"""The things a bench can measure: a figure, a latency, a curve.

Idea: a bench says what to measure and what to compare with; the harness decides in which order and how often.
Comparisons are *limits* (this machine without any system: bare ZeroMQ, memcpy, fdatasync) and *peers* (what users
would choose instead). A limit is sampled at once; a peer is started before its first sample and stopped after its
last, so that no two peers share the machine while a figure is taken.

Contract: values only; nothing here runs, waits or prints. Knows no system and not penstock. Results are in
measured.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")

Sample = Callable[[], float]
"""One measurement, in the unit of its row. Starts and stops what it needs."""

Beside = Callable[[], AbstractContextManager[T]]
"""A peer: entered once before its samples, left after them. Raises Absent when it cannot run here."""

BEST_PEER = "best peer"
"""In `ratio_goals`: the peer that did best in this run."""


class Absent(Exception):
    """A limit or peer cannot run on this machine; the text says why. It is reported as absent, never guessed."""


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
    stated: str = ""  # the goal of goals.py that this row answers
    full: bool = False  # only in `make bench-full`


@dataclass(frozen=True)
class Percentiles:
    """The percentiles of one histogram, in microseconds.

    `stolen`: the share of the processors' time that the hypervisor gave to others meanwhile, which makes tails.
    """

    p50: float
    p90: float
    p99: float
    p999: float
    most: float
    stolen: float = 0.0


LatencySample = Callable[[], Percentiles]


@dataclass
class Latency:
    """Latency at one load, from the moment each message was due. Less is better.

    Rows of one name at several loads make one table and one plot.
    """

    name: str
    load: str  # as people say it: "1 k/s", "50 %"
    measure: LatencySample
    limits: Mapping[str, LatencySample] = field(default_factory=dict)
    peers: Mapping[str, Beside[LatencySample]] = field(default_factory=dict)
    goals: Mapping[str, float] = field(default_factory=dict)  # "p99" -> most, in microseconds
    ratio_goals: Mapping[tuple[str, str], float] = field(default_factory=dict)  # ("p99", name or BEST_PEER) -> most
    durability: str = ""
    note: str = ""
    stated: str = ""
    full: bool = False


@dataclass
class Curve:
    """How a cost grows: one value for each `x`, in the order given. One plot.

    `measure(x)` is called `turns` times running for each x, in turn with `beside`, after one warming turn where there
    are several; what it sets up for an x it may keep.
    """

    name: str
    unit: str
    x_name: str
    xs: Sequence[float]
    measure: Callable[[float], float]
    beside: Mapping[str, Callable[[float], float]] = field(default_factory=dict)  # may raise Absent for an x
    turns: int = 3
    durability: str = ""
    note: str = ""
    full: bool = False
