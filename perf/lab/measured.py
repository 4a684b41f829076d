"""Results: every sample, and the ratios and verdicts that follow from them.

Contract: plain values, written and read as JSON (archive.py); nothing derived is stored. A ratio is the median of the
ratios of pairs that were sampled one after the other, penstock over the other. A bound against something absent is
neither reached nor missed.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from .rows import BEST_PEER, Percentiles

T = TypeVar("T")


@dataclass
class Compared(Generic[T]):
    """One limit or peer: its samples, and the samples of penstock that were taken in turn with them."""

    name: str
    is_peer: bool
    samples: list[T] = field(default_factory=list)
    ours: list[T] = field(default_factory=list)
    absent: str = ""  # why it cannot run on this machine
    failed: str = ""  # the error that ended it

    @property
    def is_measured(self) -> bool:
        return bool(self.samples)


@dataclass(frozen=True)
class Bound:
    """A bound on a result: on its value, or on its ratio to something."""

    bound: float
    against: str = ""  # a limit, a peer, BEST_PEER; "" asks the value itself
    of: str = ""  # which percentile of a latency


@dataclass(frozen=True)
class Verdict:
    """A bound, and how it went."""

    asked: Bound
    more_is_better: bool
    measured: float | None
    against: str = ""  # which one it was, where BEST_PEER was asked

    @property
    def reached(self) -> bool | None:
        if self.measured is None:
            return None
        return self.measured >= self.asked.bound if self.more_is_better else self.measured <= self.asked.bound


@dataclass
class Figure:
    """A Row as measured."""

    name: str
    unit: str
    more_is_better: bool = True
    durability: str = ""
    note: str = ""
    stated: str = ""
    bounds: list[Bound] = field(default_factory=list)
    samples: list[float] = field(default_factory=list)
    compared: list[Compared[float]] = field(default_factory=list)


@dataclass
class Loaded:
    """A Latency as measured."""

    name: str
    load: str
    durability: str = ""
    note: str = ""
    stated: str = ""
    bounds: list[Bound] = field(default_factory=list)
    samples: list[Percentiles] = field(default_factory=list)
    compared: list[Compared[Percentiles]] = field(default_factory=list)

    @property
    def more_is_better(self) -> bool:
        return False


@dataclass
class Series:
    """One line of a curve: the samples at each x. An x that could not be measured is not there."""

    name: str
    xs: list[float] = field(default_factory=list)
    samples: list[list[float]] = field(default_factory=list)
    absent: str = ""  # why it ends early, or was not measured at all

    def medians(self) -> list[float]:
        return [statistics.median(samples) for samples in self.samples]


@dataclass
class Grown:
    """A Curve as measured; penstock's series is the first."""

    name: str
    unit: str
    x_name: str
    durability: str = ""
    note: str = ""
    series: list[Series] = field(default_factory=list)


Result = Figure | Loaded | Grown


@dataclass
class Measured:
    """One run of one bench: what results/<bench>.json of a record holds."""

    bench: str
    about: str  # the first line of the bench's docstring
    facts: dict[str, Any] = field(default_factory=dict)  # machine.py
    subject: str = "penstock"  # whose figures these are
    peers: dict[str, str] = field(default_factory=dict)  # versions of what stood beside
    figures: list[Figure] = field(default_factory=list)
    latencies: list[Loaded] = field(default_factory=list)
    curves: list[Grown] = field(default_factory=list)

    def add(self, result: Result) -> None:
        match result:
            case Figure():
                self.figures.append(result)
            case Loaded():
                self.latencies.append(result)
            case Grown():
                self.curves.append(result)

    def names_beside(self) -> set[str]:
        """Every limit and peer that was measured."""
        rows = [*self.figures, *self.latencies]
        return {other.name for row in rows for other in row.compared if other.is_measured}


def column(samples: Sequence[float] | Sequence[Percentiles], of: str = "") -> list[float]:
    """The numbers in samples: themselves, or one percentile of each."""
    return [sample if isinstance(sample, float | int) else getattr(sample, of) for sample in samples]


def median(samples: Sequence[float] | Sequence[Percentiles], of: str = "") -> float:
    return statistics.median(column(samples, of))


def spread(samples: Sequence[float]) -> float:
    """Distance between the best and the worst sample, in parts of the median."""
    middle = statistics.median(samples)
    return (max(samples) - min(samples)) / middle if middle else 0.0


def ratio(other: Compared[float] | Compared[Percentiles], of: str = "") -> float | None:
    """Penstock over the other: the median of the pairs."""
    pairs = zip(column(other.ours, of), column(other.samples, of), strict=True)
    ratios = [ours / theirs for ours, theirs in pairs if theirs]
    return statistics.median(ratios) if ratios else None


def best_peer(result: Figure | Loaded, of: str = "") -> Compared[float] | Compared[Percentiles] | None:
    """The measured peer with the best median."""
    peers = [other for other in result.compared if other.is_peer and other.is_measured]
    best = max if result.more_is_better else min
    return best(peers, key=lambda other: median(other.samples, of), default=None)


def verdicts(result: Figure | Loaded) -> Iterator[Verdict]:
    for asked in result.bounds:
        if not asked.against:
            yield Verdict(asked, result.more_is_better, median(result.samples, asked.of))
            continue
        other = _named(result, asked)
        measured = ratio(other, asked.of) if other else None
        yield Verdict(asked, result.more_is_better, measured, other.name if other else asked.against)


def _named(result: Figure | Loaded, asked: Bound) -> Compared[float] | Compared[Percentiles] | None:
    if asked.against == BEST_PEER:
        return best_peer(result, asked.of)
    return next((other for other in result.compared if other.name == asked.against), None)


def reached(result: Figure | Loaded) -> bool | None:
    """Whether every bound is met; None when there is none, or one could not be judged and none is missed."""
    answers = [verdict.reached for verdict in verdicts(result)]
    if False in answers:
        return False
    return None if None in answers or not answers else True
