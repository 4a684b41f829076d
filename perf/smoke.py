"""One minute of the lab: does every part of it work, and have penstock's own ratios held?

Idea: a few figures at a small scale, each beside a bare limit that needs nothing installed, one latency under load and
one curve; they go through harness, agents, histograms, archive, report and plots into a temporary directory, and their
ratios are compared with the committed ones for the same rows at the same scale (judgement.py). Rows that fell are
measured again, twice at most.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import penstock

from . import session
from .bare import limits
from .benches import consume, embedded, produce
from .lab import archive, judgement, report
from .lab.harness import Lab
from .lab.judgement import Judged, Ratios
from .lab.measured import Measured
from .lab.rows import Curve, Latency, Row
from .load import loads, peers
from .systems import bare
from .systems.broker import LOCAL, serve
from .systems.penstock import Penstock

NAME = "smoke"
ABOUT = "A minute of the lab: a few figures, beside bare limits alone."
REPEAT = 9
SCALE = 0.5
TRIES = 3
BATCHES = (10, 100, 1000)
LOAD = loads.Load(500, 1.0, warm_s=0.2)


Show = Callable[[str], None]
Asked = Generator[Row | Latency | Curve]


class Fell(Exception):
    """A ratio did not hold, or a part of the lab does not work."""


def check(directory: Path, show: Show, committed: Measured | None) -> None:
    """Check that all parts work, judge ratios by the committed ones, and report each. Raises Fell."""
    with _lab(directory) as lab:
        measured = _tried(lab, rows(lab), show)
        _gather(measured, loaded(lab), replace(lab, repeat=1), show)
        _check_files(lab.outcome)
        unlike = judgement.unlike(measured, committed) if committed else ""
        before = judgement.ratios(committed) if committed and not unlike else {}
        judged = _judged(lab, judgement.ratios(measured), before, show)
    for one in judged:
        show(f"smoke: {one}")
    if unlike:
        show(f"smoke: nothing was judged: {unlike}")
    if fallen := [str(one) for one in judged if one.fell]:
        raise Fell(f"in the best of {TRIES} tries: {'; '.join(fallen)}")


def measure(directory: Path, show: Show) -> Measured:
    """Measure figures to be committed: as many tries as a check may take, pooled."""
    with _lab(directory) as lab:
        return judgement.pooled([_tried(lab, rows(lab), show) for _ in range(TRIES)])


@contextmanager
def _lab(directory: Path) -> Iterator[Lab]:
    with tempfile.TemporaryDirectory(prefix="smoke-", dir=directory) as place:
        yield Lab(Path(place), REPEAT, SCALE, bench=NAME, outcome=Path(place, "outcome"))


def _judged(lab: Lab, first: Ratios, committed: Ratios, show: Show) -> list[Judged]:
    """Judge by the best of up to TRIES tries; only rows that fell are retried."""
    tries = [first]
    while fallen := {one.row for one in judgement.judge(judgement.best(tries), committed) if one.fell}:
        if len(tries) == TRIES:
            break
        show(f"smoke: once more: {', '.join(sorted(fallen))}")
        tries.append(judgement.ratios(_tried(lab, only(fallen, rows(lab)), show)))
    return judgement.judge(judgement.best(tries), committed)


def _tried(lab: Lab, asked: Asked, show: Show) -> Measured:
    measured = session.begun(NAME, ABOUT, lab)
    _gather(measured, asked, lab, show)
    return measured


def _gather(measured: Measured, asked: Asked, lab: Lab, show: Show) -> None:
    for result in session.gather(measured, asked, lab, lambda text: None):
        show(report.line(result))


def only(names: Collection[str], asked: Asked) -> Asked:
    """The rows with these names."""
    with closing(asked):
        yield from (row for row in asked if row.name in names)


def _check_files(outcome: Path) -> None:
    """Check that results can be read back and yield a page with its plots."""
    page = outcome / "RESULTS.md"
    again = archive.read_all(outcome, [NAME])
    report.write(page, again)
    plots = list((outcome / "results").glob("*.svg"))
    kept = list(outcome.glob("*.hlog"))
    if len(again) != 1 or NAME not in page.read_text() or len(plots) != 3 or len(kept) != 3:
        raise Fell(f"of one run came {len(again)} results, {len(plots)} plots of 3 and {len(kept)} histogram logs of 3")


# -- what is measured -----------------------------------------------------------------------------


def rows(lab: Lab) -> Asked:
    """The judged rows."""
    with lab.place() as place, serve(place) as broker, penstock.connect(broker.url) as client:
        with produce.producer_of(client, "durable-100") as producer:
            yield produce.many_row(producer, "produce: send_many of 100 B", peers.values(lab.count(produce.SIZES[100])))
        yield from _beside_limits(consume.large(lab, client))
    yield from _beside_limits(embedded.reads(lab, embedded.USUAL))


def loaded(lab: Lab) -> Asked:
    """Rows that only have to work."""
    yield from _latency(lab)
    yield _curve(lab)


def _beside_limits(asked: Iterator[Row]) -> Iterator[Row]:
    """The rows without bounds and peers."""
    return (replace(row, peers={}, ratio_goals={}, goal=None, stated="") for row in asked)


def _latency(lab: Lab) -> Iterator[Latency]:
    runs, system = loads.Runs(lab), Penstock(LOCAL, "mapped")
    with lab.place() as place, bare.SYSTEM.serve(place, "") as socket, system.serve(place, "written") as address:
        yield Latency(
            "send to receive",
            f"{LOAD.rate}/s",
            lambda: runs.kept(system.name, loads.run(system, address, LOAD)),
            limits={bare.SYSTEM.name: lambda: runs.kept(bare.SYSTEM.name, loads.ping_pong(socket, LOAD))},
            durability="written",
        )


def _curve(lab: Lab) -> Curve:
    values = embedded.USUAL.values(lab.count(40_000))
    return Curve(
        "embedded: append, by records of a batch",
        "ns/record",
        "records",
        BATCHES,
        lambda batch: embedded.fresh(lab, embedded.in_bulk, values, int(batch), "written"),
        beside={"pwrite": lambda batch: limits.pwrite_ns_per_record(lab.directory, int(batch) * 100)},
        durability="written",
    )
