"""`python -m perf [bench ...]`: measure, show, keep. `make bench` runs all of it; `--list` says what there is."""

from __future__ import annotations

import resource
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from . import benches, session, smoke
from .lab import archive, report, times
from .lab.harness import Lab

BUILD = Path(__file__).parents[1] / "build"
OUTCOME = BUILD / "perf"
REPEAT, SCALE = 5, 1.0
QUICK_REPEAT, QUICK_SCALE = 1, 0.1


@click.command()
@click.argument("chosen", metavar="[BENCH]...", nargs=-1, type=click.Choice(benches.names()))
@click.option("--repeat", default=REPEAT, show_default=True, help="Samples per figure; the median is reported.")
@click.option("--scale", default=SCALE, show_default=True, help="Amount of work, in parts of the stated one.")
@click.option("--full", is_flag=True, help="Every row, also those that take long: about an hour.")
@click.option("--quick", is_flag=True, help=f"A look, not a result: --repeat {QUICK_REPEAT} --scale {QUICK_SCALE}.")
@click.option("--directory", type=click.Path(path_type=Path), default=BUILD, help="On the disk to be measured.")
@click.option("--write", is_flag=True, help="Replace the record's results of what is measured, and its RESULTS.md.")
@click.option("--record", type=click.Path(path_type=Path), default=archive.RECORD, help="Another record than perf/.")
@click.option("--smoke", "only_smoke", is_flag=True, help="A minute: does the lab work, have the ratios held?")
@click.option("--report", "only_report", is_flag=True, help="Make RESULTS.md and its plots from the record.")
@click.option("--list", "listing", is_flag=True, help="List the benches and end.")
def main(
    chosen: tuple[str, ...],
    repeat: int,
    scale: float,
    full: bool,
    quick: bool,
    directory: Path,
    write: bool,
    record: Path,
    only_smoke: bool,
    only_report: bool,
    listing: bool,
) -> None:
    """Measure every figure penstock states, beside this machine's own limits and its peers, in the same run."""
    signal.signal(signal.SIGTERM, _terminate)
    directory.mkdir(parents=True, exist_ok=True)
    if listing:
        click.echo("\n".join(benches.names()))
    elif only_report:
        _report(record)
    elif only_smoke:
        _smoke(directory, record, write)
    else:
        repeat, scale = (QUICK_REPEAT, QUICK_SCALE) if quick else (repeat, scale)
        with tempfile.TemporaryDirectory(prefix="perf-", dir=directory) as place:
            lab = Lab(Path(place), repeat, scale, full, outcome=OUTCOME)
            _measure_all(chosen or benches.names(), lab, record, write)


def _terminate(signum: int, _frame: object) -> None:
    sys.exit(128 + signum)  # runs every finally: servers are stopped, directories removed


def _report(record: Path) -> None:
    report.write(record / archive.PAGE, archive.read_all(record / archive.RESULTS, benches.names()))


def _smoke(directory: Path, record: Path, write: bool) -> None:
    if write:
        archive.write(record / archive.RESULTS, smoke.measure(directory, click.echo))
        return
    committed = next(iter(archive.read_all(record / archive.RESULTS, [smoke.NAME])), None)
    try:
        smoke.check(directory, click.echo, committed)
    except smoke.Fell as fell:
        raise click.ClickException(f"smoke: {fell}") from fell


def _measure_all(names: Sequence[str], lab: Lab, record: Path, write: bool) -> None:
    """Run one bench after the other; a failure must not cost the others' results."""
    _take_all_descriptors()
    console = Console(width=None if sys.stdout.isatty() else 180, log_path=False)
    console.log(times.estimate(times.read(OUTCOME, record / archive.RESULTS), names, lab.full))
    failed = []
    for number, bench in enumerate(names, 1):
        try:
            minutes = _measure(bench, lab, console, f"[{number} of {len(names)}]")
        except Exception as error:
            failed.append(f"{bench} ({error})")
            console.print_exception()
        else:
            if minutes is not None:
                _keep(bench, lab, minutes, record / archive.RESULTS if write else None)
    if write:
        _report(record)
    if failed:
        raise click.ClickException(f"not measured to the end: {', '.join(failed)}; the reasons are above")


def _take_all_descriptors() -> None:
    """Raise the limit on descriptors, for a thousand consumers here and for servers that inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _measure(bench: str, lab: Lab, console: Console, turn: str) -> float | None:
    """Run a bench and show each result as it comes; returns the minutes it took, None without any row."""
    measured = session.begun(bench, benches.about(bench), lab, subject=benches.subject(bench))
    with console.status("starting") as status:
        tell = lambda text: status.update(f"{turn} {bench}: {text}")  # noqa: E731
        for result in session.gather(measured, benches.rows(bench, lab), lab, tell):
            console.log(report.line(result))
    if "minutes" not in measured.facts:
        console.log(f"{bench}: nothing was measured, as all of its rows take long; --full measures them")
    return measured.facts.get("minutes")


def _keep(bench: str, lab: Lab, minutes: float, results: Path | None) -> None:
    """Keep how long it took, and copy its results to those of a record, if any."""
    if (lab.repeat, lab.scale) == (REPEAT, SCALE):
        for directory in filter(None, [OUTCOME, results]):
            times.keep(directory, bench, lab.full, minutes)
    if results:
        archive.publish(bench, OUTCOME, results)


if __name__ == "__main__":
    main()
