"""`python -m perf [bench ...]`: measure, show, keep. `make bench` runs all of it; `--list` says what there is."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console

from . import harness, machine, report

HERE = Path(__file__).parent
BUILD = HERE.parent / "build"


def _terminate(signum: int, _frame: object) -> None:
    sys.exit(128 + signum)  # runs every finally: brokers are stopped, directories removed


@click.command()
@click.argument("benches", nargs=-1, type=click.Choice(harness.names()))
@click.option("--repeat", default=5, show_default=True, help="Samples per figure; the median is reported.")
@click.option("--scale", default=1.0, show_default=True, help="Amount of work, in parts of the stated one.")
@click.option("--quick", is_flag=True, help="A look, not a result: --repeat 1 --scale 0.1.")
@click.option("--directory", type=click.Path(path_type=Path), default=BUILD, help="On the disk to be measured.")
@click.option("--write", is_flag=True, help="Put the results into perf/README.md and perf/results.json.")
@click.option("--list", "listing", is_flag=True, help="List the benches and end.")
def main(
    benches: tuple[str, ...], repeat: int, scale: float, quick: bool, directory: Path, write: bool, listing: bool
) -> None:
    """Every figure penstock states, beside this machine's own limits in the same run."""
    if listing:
        click.echo("\n".join(harness.names()))
        return
    signal.signal(signal.SIGTERM, _terminate)
    directory.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="perf-", dir=directory))
    try:
        lab = harness.Lab(place, 1 if quick else repeat, 0.1 if quick else scale)
        results, failed = _run(benches or tuple(harness.names()), lab)
        facts = machine.facts(place)
    finally:
        shutil.rmtree(place)
    report.write_json(BUILD / "perf.json", results, facts)
    if write:
        report.write_json(HERE / "results.json", results, facts)
        report.write_readme(HERE / "README.md", results, facts)
    if failed:
        raise click.ClickException(f"not measured to the end: {', '.join(failed)}; the reasons are above")


def _run(benches: tuple[str, ...], lab: harness.Lab) -> tuple[list[harness.Result], list[str]]:
    """Everything that could be measured, and the benches that ended early: one must not cost the others' results."""
    console = Console(width=None if sys.stdout.isatty() else 180)
    results: list[harness.Result] = []
    failed: list[str] = []
    with console.status("starting") as status:
        for bench in benches:
            try:
                for result in harness.run(bench, lab, status.update):
                    results.append(result)
                    console.log(*report.cells(result), sep="  ")
            except Exception as error:
                failed.append(f"{bench} ({error})")
                console.print_exception()
    console.print(report.table(results))
    return results, failed


if __name__ == "__main__":
    main()
