"""Compares measured ratios with the committed ones, row by row.

Idea: a ratio to the machine's own limit, taken in one run on the same kind of processor, says little about the machine
and much about the code. One below half of the committed one is no noise. A busy machine may still spoil one try, so the
best of several tries counts, row by row.

Contract: pure. A ratio is that of the best samples of both sides, which other load disturbs least, turned so that more
is better. A limit that could not be measured has failed, because it needs nothing that may be missing; a row without a
committed ratio cannot fail, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .measured import Compared, Figure, Measured

HELD = 0.5
"""A ratio of at least so much of the committed one has held."""
ALIKE = ("cores", "cpu", "filesystem")
"""Facts that two machines must share for their ratios to be compared.

The processor, since some copy memory no slower than others and take three times as long over a line of Python.
"""

Key = tuple[str, str]
"""A row, and what it is compared with."""
Ratios = Mapping[Key, float | None]


@dataclass(frozen=True)
class Judged:
    """One ratio beside the committed one."""

    row: str
    against: str
    ratio: float | None  # None when it could not be measured
    committed: float | None  # None when there is none

    @property
    def fell(self) -> bool:
        if self.ratio is None:
            return True
        return self.committed is not None and self.ratio < HELD * self.committed

    def __str__(self) -> str:
        name = f"{self.row} / {self.against}"
        if self.ratio is None:
            return f"{name}: not measured"
        if self.committed is None:
            return f"{name}: {self.ratio:.3f}, and no ratio is committed"
        fell = f", which is less than {HELD:.0%} of it" if self.fell else ""
        return f"{name}: {self.ratio:.3f}, committed {self.committed:.3f}{fell}"


def ratios(measured: Measured) -> Ratios:
    """How many times as good as each limit, whichever way better is."""
    return {
        (figure.name, other.name): _goodness(figure, other) for figure in measured.figures for other in figure.compared
    }


def _goodness(figure: Figure, other: Compared[float]) -> float | None:
    if not other.is_measured:
        return None
    return max(other.ours) / max(other.samples) if figure.more_is_better else min(other.samples) / min(other.ours)


def best(tries: Sequence[Ratios]) -> Ratios:
    """Row by row the best of several tries; a later try may have fewer rows."""
    found: dict[Key, float | None] = {}
    for one in tries:
        for key, value in one.items():
            found[key] = max(filter(None, (found.get(key), value)), default=None)
    return found


def pooled(tries: Sequence[Measured]) -> Measured:
    """The first of several, with the samples of all: what is fit to be committed."""
    first, *others = tries
    for again in others:
        for figure, more in zip(first.figures, again.figures, strict=True):
            for other, also in zip(figure.compared, more.compared, strict=True):
                other.samples += also.samples
                other.ours += also.ours
            figure.samples += more.samples
    return first


def judge(now: Ratios, committed: Ratios) -> list[Judged]:
    return [Judged(*key, value, committed.get(key)) for key, value in now.items()]


def unlike(now: Measured, committed: Measured) -> str:
    """Why the two cannot be compared; empty when they can."""
    differing = [
        f"{fact} {committed.facts[fact]}, here {now.facts[fact]}"
        for fact in ALIKE
        if committed.facts[fact] != now.facts[fact]
    ]
    return f"committed on another kind of machine ({'; '.join(differing)})" if differing else ""
