"""`python -m perf [bench ...]`: measure, show, keep. `make bench` runs all of it; `--list` says what there is."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import click
from rich.console import Console

from . import benches as all_benches
from . import systems
from .lab import archive, harness, machine, report
from .lab.measured import Measured
from .stores import every_store

PAGE = Path(__file__).parent / "RESULTS.md"
BUILD = Path(__file__).parents[1] / "build"


def _terminate(signum: int, _frame: object) -> None:
    sys.exit(128 + signum)  # runs every finally: servers are stopped, directories removed


@click.command()
@click.argument("benches", nargs=-1, type=click.Choice(all_benches.names()))
@click.option("--repeat", default=5, show_default=True, help="Samples per figure; the median is reported.")
@click.option("--scale", default=1.0, show_default=True, help="Amount of work, in parts of the stated one.")
@click.option("--full", is_flag=True, help="Every row, also those that take long: about an hour.")
@click.option("--quick", is_flag=True, help="A look, not a result: --repeat 1 --scale 0.1.")
@click.option("--directory", type=click.Path(path_type=Path), default=BUILD, help="On the disk to be measured.")
@click.option("--write", is_flag=True, help="Replace the committed results of these benches, and RESULTS.md.")
@click.option("--report", "only_report", is_flag=True, help="Make RESULTS.md and its plots from what is committed.")
@click.option("--list", "listing", is_flag=True, help="List the benches and end.")
def main(
    benches: tuple[str, ...],
    repeat: int,
    scale: float,
    full: bool,
    quick: bool,
    directory: Path,
    write: bool,
    only_report: bool,
    listing: bool,
) -> None:
    """Every figure penstock states, beside this machine's own limits and its peers, in the same run."""
    if listing:
        click.echo("\n".join(all_benches.names()))
        return
    failed: list[str] = []
    if not only_report:
        signal.signal(signal.SIGTERM, _terminate)
        repeat, scale = (1, 0.1) if quick else (repeat, scale)
        failed = _run(benches or tuple(all_benches.names()), directory, repeat, scale, full, write)
    if only_report or write:
        report.write(PAGE, archive.read_all(archive.COMMITTED))
    if failed:
        raise click.ClickException(f"not measured to the end: {', '.join(failed)}; the reasons are above")


def _run(benches: tuple[str, ...], directory: Path, repeat: int, scale: float, full: bool, write: bool) -> list[str]:
    """Measure and keep; which benches ended early. One must not cost the others' results."""
    console = Console(width=None if sys.stdout.isatty() else 180, log_path=False)
    directory.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="perf-", dir=directory))
    lab = harness.Lab(place, repeat, scale, full, outcome=BUILD / "perf")
    failed = []
    try:
        for number, bench in enumerate(benches, 1):
            try:
                _measure(bench, lab, console, f"[{number} of {len(benches)}]")
            except Exception as error:
                failed.append(f"{bench} ({error})")
                console.print_exception()
            else:
                if write:
                    archive.publish(bench, lab.outcome, archive.COMMITTED)
    finally:
        shutil.rmtree(place)
    return failed


def _measure(bench: str, lab: harness.Lab, console: Console, turn: str) -> None:
    """One bench; what is measured is on disk after every row."""
    begun = time.monotonic()
    measured = Measured(bench, all_benches.about(bench), machine.facts(lab.directory))
    with console.status("starting") as status:
        rows = all_benches.rows(bench, lab)
        for result in harness.measure_all(rows, lab, lambda text: status.update(f"{turn} {bench}: {text}")):
            measured.add(result)
            measured.peers = _versions_of(measured.names_beside())
            measured.facts["minutes"] = round((time.monotonic() - begun) / 60, 1)
            archive.write(lab.outcome, measured)
            console.log(report.line(result))


def _versions_of(names: set[str]) -> dict[str, str]:
    """Of the systems and stores that stood beside a figure under these names, and of their clients."""
    there = [one for one in (*systems.every(), *every_store()) if one.name in names and not one.absent()]
    return {name: version for one in there for name, version in one.versions().items()}


if __name__ == "__main__":
    main()
