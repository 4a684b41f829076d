"""`penstock log`: verify, repair and dump logs on disk, without a broker.

Idea: reading is safe beside a running broker; repair takes the writer's lock of each log and is refused while another
process holds it. log_places.py finds the logs, and the missing ones.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from ..storage import units
from ..storage.aside import NO_FILE, is_spareable
from ..storage.errors import Corrupt
from ..storage.files import Files
from . import exits
from .log_places import Places, places
from .options import with_output
from .output import Output, json_line
from .progress import progress
from .standard_streams import binary_stdout

if TYPE_CHECKING:
    from ..storage.repair import Repaired
    from ..storage.scan import Bad
    from ..storage.verify import Report
    from .log_places import Place

_PATHS = click.argument("paths", nargs=-1, type=click.Path(path_type=Path))


@click.group
def command() -> None:
    """Verify, repair and dump the logs of a data directory.

    Without a path: the data directory of the configuration.
    """


@command.command(short_help="Report damage.")
@_PATHS
@with_output
def verify(paths: tuple[Path, ...], output: Output) -> int:
    """Read everything in the logs at PATHS and report damage. Exit code 5 if there is any."""
    from ..storage.verify import verify as verify_log

    found = places(paths)
    reports = []
    with progress(output) as watch:
        for log in found.logs:
            reports.append((log, verify_log(Files(), log.path, progress=watch(log.title))))
    if output.as_json:
        for log, report in reports:
            output.json({**msgspec.to_builtins(report), **log.topic_fields, "ok": report.ok, "clean": report.clean})
    else:
        _show(output, reports)
    return _exit_code(output, found, all(report.ok for _, report in reports))


@command.command(short_help="Repair logs as far as possible.")
@_PATHS
@click.option("--accept-loss", is_flag=True, help="Give up damaged records for good: readers warn and pass them.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@with_output
def repair(paths: tuple[Path, ...], accept_loss: bool, dry_run: bool, output: Output) -> int:
    """Repair the logs at PATHS as far as possible: indexes, snapshots, torn ends.

    Damage to records stays, and is exit code 5, unless --accept-loss. Logs of a member of a cluster are refused.
    """
    from ..storage.repair import repair as repair_log

    found = places(paths)
    found.check_alone()
    whole = True
    for log in found.logs:
        now_us = time.time_ns() // 1000
        try:
            done = repair_log(Files(), log.path, now_us=now_us, accept_loss=accept_loss, dry_run=dry_run)
        except Corrupt as error:  # of this log; others can be repaired
            whole = False
            found.problems[log.path] = error
            continue
        ok = (done.before if dry_run else done.after).ok
        whole = whole and ok
        if output.as_json:
            where = {"path": log.path, **log.topic_fields}
            output.json({**msgspec.to_builtins(done), **where, "ok": ok, "dry_run": dry_run})
        else:
            _tell(output, log, done, dry_run=dry_run)
    return _exit_code(output, found, whole)


@command.command(short_help="Write logs as JSON lines.")
@_PATHS
@click.option("--records", "with_records", is_flag=True, help="One line per record too.")
@click.option("--from", "start", type=int, default=0, metavar="OFFSET", help="Skip what ends before this offset.")
def dump(paths: tuple[Path, ...], with_records: bool, start: int) -> None:
    """Write the logs at PATHS as JSON lines: one per segment, batch and damaged range.

    What stands in the files, of a node of a cluster also batches that no majority has.
    """
    from ..storage.dump import dump as dump_log

    stdout = binary_stdout()
    for log in places(paths).logs:
        stdout.write(json_line({"type": "log", "path": log.path, **log.topic_fields}))
        for line in dump_log(Files(), log.path, with_records=with_records, start=start):
            stdout.write(json_line(line))
    stdout.flush()


def _exit_code(output: Output, found: Places, whole: bool) -> int:
    """Report the problems of data directories; they decide the exit code if no log is damaged."""
    for path, error in found.problems.items():
        if output.as_json:
            output.json({"path": path, "ok": False, "problem": error.message})
        else:
            output.line(f"{path} cannot be opened: {error.message}")
    return exits.DAMAGED if not whole else max(map(exits.of, found.problems.values()), default=exits.OK)


def _tell(output: Output, log: Place, done: Repaired, *, dry_run: bool) -> None:
    from ..storage.opening import way_out

    name = log.title
    for action in done.actions:
        output.line(f"{name}: {'would ' if dry_run else ''}{action}")
    if not done.actions:
        output.line(f"{name}: nothing to repair")
    for bad in done.after.unaccepted:
        output.line(f"{name}: still damaged: {_lost(bad)}; {way_out(log.path)}")


def _show(output: Output, reports: list[tuple[Place, Report]]) -> None:
    output.table(
        ["log", ">batches", ">records", ">first", ">end", ">size", "state", "directory"],
        [
            (
                log.title,
                r.batches,
                r.records,
                r.first_offset,
                r.end_offset,
                _size(r),
                _state(r),
                log.name,
            )
            for log, r in reports
        ],
    )
    for _, report in reports:
        for line in _findings(report):
            output.line(line)


def _size(report: Report) -> str:
    return units.size_text(sum(segment.batch_bytes for segment in report.segments))


def _state(report: Report) -> str:
    if not report.ok:
        return "damaged"
    return "ok" if report.clean else "ok after a repair or the next start"


def _findings(report: Report) -> Iterator[str]:
    """Details of one log, beyond its row."""
    for bad in report.damage:
        accepted = "" if bad in report.unaccepted else " (accepted)"
        yield f"{_lost(bad)}{accepted}"
    for segment in report.segments:
        if segment.index != "ok":
            yield f"{segment.file}: its index: {segment.index}; it will be rebuilt"
    for snapshot in report.snapshots:
        if snapshot.problem:
            yield f"{snapshot.file}: {snapshot.problem}; the one before will serve"
    if report.tail is not None and report.tail.reason:
        yield f"{report.tail.file}: position {report.tail.position}: {report.tail.reason}: never durable, will be cut"
    for path in report.strangers:
        way_out = "a repair sets it aside" if is_spareable(os.path.basename(path)) else "move it away"
        yield f"{path}: {NO_FILE}; {way_out}"
    yield from (f"{problem}; the next start writes them again" for problem in report.finals)
    yield from (f"{problem}; nothing of it is changed: look at the disk" for problem in report.unread)
    if report.poison:
        yield f"{report.path}: poisoned: {report.poison}; the next start cuts at the mark and goes on"


def _lost(bad: Bad) -> str:
    if bad.next_offset is None:
        records = f"everything from offset {bad.offset} on is lost"
    elif bad.next_offset == bad.offset:
        records = "no record is lost"
    else:
        records = f"offsets {bad.offset} to {bad.next_offset - 1} are lost"
    return f"{bad.file}: position {bad.position}: {bad.reason}: {records}"
