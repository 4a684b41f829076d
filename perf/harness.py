"""Run rows, pair by pair, and keep what came out.

Idea: a bench is a small file `bench_<name>.py` with one generator `rows(lab)`. It sets something up, yields a `Row`
(what to measure, the machine's limit beside it, the goal), is resumed when the row has been measured, and cleans up.
Measure and limit alternate within one run, so a slow minute of the machine hits both; a result is the median of at
least five, the ratio is the median of the ratios of the pairs.

Contract: `measure` and `limit` return one sample in the row's unit, and start and stop what they need. The harness
times nothing itself and knows nothing of penstock.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

Sample = Callable[[], float]
Pair = tuple[list[float], Sample | None]


@dataclass
class Row:
    """One figure. `goal` and `ratio_goal` are bounds: least when `more_is_better`, most otherwise."""

    name: str
    unit: str
    measure: Sample
    more_is_better: bool = True
    goal: float | None = None
    limit: Sample | None = None
    limit_name: str = ""
    ratio_goal: float | None = None
    durability: str = ""  # what an acknowledgement meant: durable, written, or nothing to acknowledge
    note: str = ""


@dataclass
class Result:
    """A row as measured: every sample is kept, medians are derived."""

    row: Row
    bench: str
    values: list[float] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)

    @property
    def value(self) -> float:
        return statistics.median(self.values)

    @property
    def limit(self) -> float | None:
        return statistics.median(self.limits) if self.limits else None

    @property
    def ratio(self) -> float | None:
        pairs = [value / limit for value, limit in zip(self.values, self.limits, strict=False) if limit]
        return statistics.median(pairs) if pairs else None

    @property
    def spread(self) -> float:
        """Distance between the best and the worst sample, in parts of the median."""
        return (max(self.values) - min(self.values)) / self.value if self.value else 0.0

    @property
    def reached(self) -> bool | None:
        """Whether every goal of the row is met; None when it has none."""
        row = self.row
        asked = [(self.value, row.goal), (self.ratio, row.ratio_goal)]
        answers = [
            (got >= bound) if row.more_is_better else (got <= bound)
            for got, bound in asked
            if bound is not None and got is not None
        ]
        return all(answers) if answers else None

    def as_json(self) -> dict[str, object]:
        row = self.row
        return {
            "bench": self.bench,
            "name": row.name,
            "unit": row.unit,
            "better": "more" if row.more_is_better else "less",
            "median": self.value,
            "goal": row.goal,
            "samples": self.values,
            "limit": {"name": row.limit_name, "median": self.limit, "samples": self.limits} if self.limits else None,
            "ratio": self.ratio,
            "ratio_goal": row.ratio_goal,
            "reached": self.reached,
            "durability": row.durability,
            "note": row.note,
        }


@dataclass(frozen=True)
class Lab:
    """What a bench gets: a place on the disk under test, and how much to do."""

    directory: Path
    repeat: int
    scale: float  # 1.0 is the stated size; smaller for a quick look

    def count(self, full: int, least: int = 1000) -> int:
        return max(least, int(full * self.scale))

    @contextmanager
    def place(self) -> Iterator[Path]:
        """A fresh directory on the disk under test, gone afterwards."""
        path = Path(tempfile.mkdtemp(dir=self.directory))
        try:
            yield path
        finally:
            shutil.rmtree(path)


def names() -> list[str]:
    """Every bench there is: the files `bench_<name>.py` beside this one."""
    found = (module.name for module in iter_modules([str(Path(__file__).parent)]))
    return sorted(name.removeprefix("bench_") for name in found if name.startswith("bench_"))


def run(bench: str, lab: Lab, tell: Callable[[str], None]) -> Iterator[Result]:
    """Measure every row of one bench, in the order it yields them."""
    for row in import_module(f"{__package__}.bench_{bench}").rows(lab):
        yield _measure(Result(row, bench), lab.repeat, tell)


def _measure(result: Result, repeat: int, tell: Callable[[str], None]) -> Result:
    row = result.row
    warming = 1 if repeat > 1 else 0  # the first turn pays for imports and first connections; nobody's figure
    for turn in range(repeat + warming):
        tell(f"{result.bench}: {row.name} ({turn} of {repeat})")
        for values, sample in _in_turn(turn, (result.values, row.measure), (result.limits, row.limit)):
            if sample is not None:
                values.append(sample())
    del result.values[:warming], result.limits[:warming]
    return result


def _in_turn(turn: int, first: Pair, second: Pair) -> tuple[Pair, Pair]:
    """Who goes first alternates, so that neither always finds the caches of the other."""
    return (first, second) if turn % 2 == 0 else (second, first)
