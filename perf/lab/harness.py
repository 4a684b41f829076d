"""Runs the measurements that a bench asks for, pair by pair.

Idea: a bench is a generator. It sets something up, yields a `Row`, a `Latency` or a `Curve` (rows.py), is resumed when
that has been measured, and cleans up. Penstock and its limits and peers are sampled in turn, alternating which goes
first, so that a slow minute of the machine hits both.

Contract: samples start and stop what they need; the harness times nothing itself and knows nothing of penstock. A
limit or peer that is absent or fails costs its own column, an error of penstock's own sample ends the bench.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from .machine import ProcessorTime
from .measured import Bound, Compared, Figure, Grown, Loaded, Result, Series
from .rows import Absent, Beside, Curve, Latency, Percentiles, Row

T = TypeVar("T")
Tell = Callable[[str], None]
OURS = "penstock"


class OwnSampleFailed(Exception):
    """Penstock's own sample raised; no peer is blamed for that."""


@dataclass(frozen=True)
class Lab:
    """The context of a bench: a place on the disk under test, and how much to do."""

    directory: Path
    repeat: int
    scale: float  # 1.0 is the stated size; smaller for a quick look
    full: bool = False  # `make bench-full`: an hour, not minutes
    bench: str = ""  # whose rows are being measured
    outcome: Path = field(default_factory=lambda: Path("build", "perf"))  # where results are gathered

    def count(self, full: int, least: int = 1000) -> int:
        """`full` scaled to this run."""
        return max(least, int(full * self.scale))

    @contextmanager
    def place(self) -> Iterator[Path]:
        """A fresh directory on the disk under test, gone afterwards."""
        path = Path(tempfile.mkdtemp(dir=self.directory))
        try:
            yield path
        finally:
            shutil.rmtree(path)

    def kept(self, name: str) -> Path:
        """The path of a file kept beside the bench's results, such as a histogram's log."""
        self.outcome.mkdir(parents=True, exist_ok=True)
        return self.outcome / f"{self.bench}-{name}"


def measure_all(rows: Generator[Row | Latency | Curve], lab: Lab, tell: Tell) -> Iterator[Result]:
    """Measure every row of one bench, in the order it yields them."""
    with closing(rows):
        for row in rows:
            if lab.full or not row.full:
                yield measure(row, lab.repeat, tell)


def measure(row: Row | Latency | Curve, repeat: int, tell: Tell) -> Result:
    match row:
        case Row():
            return _figure(row, repeat, tell)
        case Latency():
            return _loaded(row, repeat, tell)
        case Curve():
            return _grown(row, repeat, tell)


def _figure(row: Row, repeat: int, tell: Tell) -> Figure:
    bounds = [Bound(row.goal)] if row.goal is not None else []
    bounds += [Bound(bound, against) for against, bound in row.ratio_goals.items()]
    samples, compared = _compare(row.measure, row.limits, row.peers, repeat, _prefixed(tell, row.name))
    return Figure(
        row.name, row.unit, row.more_is_better, row.durability, row.note, row.stated, bounds, samples, compared
    )


def _loaded(row: Latency, repeat: int, tell: Tell) -> Loaded:
    bounds = [Bound(bound, of=of) for of, bound in row.goals.items()]
    bounds += [Bound(bound, against, of) for (of, against), bound in row.ratio_goals.items()]
    tell = _prefixed(tell, f"{row.name} at {row.load}")
    samples: list[Percentiles]
    samples, compared = _compare(row.measure, row.limits, row.peers, repeat, tell)
    return Loaded(row.name, row.load, row.durability, row.note, row.stated, bounds, samples, compared)


def _prefixed(tell: Tell, prefix: str) -> Tell:
    return lambda text: tell(f"{prefix} {text}")


def _compare(
    measure: Callable[[], T],
    limits: Mapping[str, Callable[[], T]],
    peers: Mapping[str, Beside[Callable[[], T]]],
    repeat: int,
    tell: Tell,
) -> tuple[list[T], list[Compared[T]]]:
    """Sample ours beside the limits, then beside each peer."""
    beside = [Compared[T](name, is_peer=False) for name in limits]
    ours = _in_turn(measure, list(zip(beside, limits.values(), strict=True)), repeat, tell)
    for name, enter in peers.items():
        beside.append(_beside_peer(measure, name, enter, repeat, tell))
    return ours, beside


def _beside_peer(
    measure: Callable[[], T], name: str, enter: Beside[Callable[[], T]], repeat: int, tell: Tell
) -> Compared[T]:
    peer = Compared[T](name, is_peer=True)
    tell(f"starting {name}")
    with _blamed(peer), enter() as sample:
        _in_turn(measure, [(peer, sample)], repeat, lambda text: tell(f"beside {name} {text}"))
    return peer


def _in_turn(
    measure: Callable[[], T], others: list[tuple[Compared[T], Callable[[], T]]], repeat: int, tell: Tell
) -> list[T]:
    """Sample all `repeat` times; the order alternates, so that none always starts on another's caches."""
    warming = 1 if repeat > 1 else 0  # the first turn pays for imports and first connections, and is not counted
    ours: list[T] = []
    for turn in range(repeat + warming):
        tell(f"({turn} of {repeat})")
        for contender in [None, *others][:: 1 if turn % 2 == 0 else -1]:
            if contender is None:
                ours.append(_own_sample(measure))
            else:
                _sample(*contender)
    del ours[:warming]
    for other, _ in others:
        del other.samples[:warming]
        other.ours = ours.copy() if other.is_measured else []
    return ours


def _own_sample(measure: Callable[[], T]) -> T:
    try:
        return _taken(measure)
    except Exception as error:
        raise OwnSampleFailed(f"penstock's own sample failed: {_text(error)}") from error


def _sample(other: Compared[T], sample: Callable[[], T]) -> None:
    if not other.absent and not other.failed:
        with _blamed(other):
            other.samples.append(_taken(sample))


def _taken(measure: Callable[[], T]) -> T:
    """One sample; of a latency, with what was stolen of the processors meanwhile."""
    before = ProcessorTime.now()
    sample = measure()
    if isinstance(sample, Percentiles):
        return replace(sample, stolen=ProcessorTime.now().stolen_since(before))
    return sample


@contextmanager
def _blamed(other: Compared[T]) -> Iterator[None]:
    """Catch an error inside and record it as this system's reason for not being measured."""
    try:
        yield
        return
    except OwnSampleFailed:
        raise
    except Absent as reason:
        other.absent = _text(reason)
    except Exception as error:
        other.failed = _text(error)
    other.samples, other.ours = [], []


def _text(error: Exception) -> str:
    """The first line of an error's message, as a cell of a table."""
    said = str(error).strip().partition("\n")[0]
    return said if isinstance(error, Absent) and said else f"{type(error).__name__}: {said}"


def _grown(curve: Curve, repeat: int, tell: Tell) -> Grown:
    series = [Series(OURS), *(Series(name) for name in curve.beside)]
    for x in curve.xs:
        beside = [Compared[float](name, is_peer=False) for name in curve.beside]
        others = [(other, lambda f=f, x=x: f(x)) for other, f in zip(beside, curve.beside.values(), strict=True)]
        told = _prefixed(tell, f"{curve.name} at {x:,g}")
        ours = _in_turn(lambda x=x: curve.measure(x), others, min(curve.turns, repeat), told)
        for line, samples, other in zip(series, [ours, *(b.samples for b in beside)], [None, *beside], strict=True):
            _add_point(line, x, samples, other)
    return Grown(curve.name, curve.unit, curve.x_name, curve.durability, curve.note, series)


def _add_point(line: Series, x: float, samples: list[float], other: Compared[float] | None) -> None:
    if samples:
        line.xs.append(x)
        line.samples.append(samples)
    elif other:
        line.absent = f"at {x:,g}: {other.absent or other.failed}"
