"""`penstock log`: verify, repair and dump logs on disk, with no broker in between.

Idea: a path is one log, or a data directory with many. Reading is safe beside a running broker; repair takes the
writer's lock of each log and is refused while another process holds it. Directories of topics are named by ids: where
the catalogue beside them can be read, the topic's name is said as well.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from msgspec import Struct

from .. import config as configuration
from ..storage import units
from ..storage.errors import Error
from . import exits
from .options import with_output
from .output import Output, binary_stdout

if TYPE_CHECKING:
    from ..storage.repair import Repaired
    from ..storage.scan import Bad
    from ..storage.verify import Report

_PATHS = click.argument("paths", nargs=-1, type=click.Path(path_type=Path))


class NoLog(Error):
    """A path without a log."""

    code = "no_log"


@click.group
def command() -> None:
    """Verify, repair and dump the logs of a data directory.

    Without a path: the data directory of the configuration.
    """


@command.command(short_help="Say what is damaged.")
@_PATHS
@with_output
def verify(paths: tuple[Path, ...], output: Output) -> int:
    """Read everything in the logs at PATHS and say what is damaged. Exit code 5 when something is."""
    from ..storage.files import Files
    from ..storage.verify import verify as verify_log

    reports = []
    with _progress(output) as watch:
        for log in _logs(paths):
            reports.append((log, verify_log(Files(), log.path, progress=watch(log.title))))
    if output.as_json:
        for log, report in reports:
            output.json({**msgspec.to_builtins(report), **log.topic_fields, "ok": report.ok, "clean": report.clean})
    else:
        _show(output, reports)
    return exits.OK if all(report.ok for _, report in reports) else exits.DAMAGED


@command.command(short_help="Put right what can be put right.")
@_PATHS
@click.option("--accept-loss", is_flag=True, help="Give up damaged records for good: readers warn and pass them.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@with_output
def repair(paths: tuple[Path, ...], accept_loss: bool, dry_run: bool, output: Output) -> int:
    """Put right what can be put right in the logs at PATHS: indexes, snapshots, torn ends.

    Damage to records stays, and is exit code 5, unless --accept-loss.
    """
    from ..storage.files import Files
    from ..storage.repair import repair as repair_log

    whole = True
    for log in _logs(paths):
        now_us = time.time_ns() // 1000
        done = repair_log(Files(), log.path, now_us=now_us, accept_loss=accept_loss, dry_run=dry_run)
        whole = whole and done.after.ok
        if output.as_json:
            where = {"path": log.path, **log.topic_fields}
            output.json({**msgspec.to_builtins(done), **where, "ok": done.after.ok, "dry_run": dry_run})
        else:
            _tell(output, log.title, done, accept_loss=accept_loss, dry_run=dry_run)
    return exits.OK if whole else exits.DAMAGED


@command.command(short_help="Write logs as JSON lines.")
@_PATHS
@click.option("--records", "with_records", is_flag=True, help="One line per record too.")
@click.option("--from", "start", type=int, default=0, metavar="OFFSET", help="Leave out what ends before this offset.")
def dump(paths: tuple[Path, ...], with_records: bool, start: int) -> None:
    """Write the logs at PATHS as JSON lines: one per segment, batch and damaged range."""
    from ..storage.dump import dump_json
    from ..storage.files import Files

    stdout = binary_stdout()
    for log in _logs(paths):
        stdout.write(msgspec.json.encode({"type": "log", "path": log.path, **log.topic_fields}) + b"\n")
        for line in dump_json(Files(), log.path, with_records=with_records, start=start):
            stdout.write(line)
    stdout.flush()


def _tell(output: Output, name: str, done: Repaired, *, accept_loss: bool, dry_run: bool) -> None:
    for action in done.actions:
        output.console.print(f"{name}: {'would ' if dry_run else ''}{action}", markup=False, soft_wrap=True)
    if not done.actions:
        output.console.print(f"{name}: nothing to repair", markup=False)
    if accept_loss and dry_run:
        return  # the actions say what would be accepted
    for bad in done.after.unaccepted:
        sentence = f"{name}: still damaged: {_lost(bad)}; --accept-loss goes on without"
        output.console.print(sentence, markup=False, soft_wrap=True)


class _Log(Struct, frozen=True):
    """One log that was found."""

    path: str
    name: str  # below the path that was given
    topic: str | None  # None: no topic's, or of one that is not known

    @property
    def title(self) -> str:
        """For people: the topic and partition, or where it is."""
        return self.name if self.topic is None else f"{self.topic}/{os.path.basename(self.path)}"

    @property
    def topic_fields(self) -> dict[str, Any]:
        """For programs."""
        return {} if self.topic is None else {"topic": self.topic, "partition": int(os.path.basename(self.path))}


def _logs(paths: tuple[Path, ...]) -> list[_Log]:
    """Every log at `paths`. Raises NoLog where there is none."""
    found = []
    known: dict[Path, dict[str, str]] = {}
    for given in paths or (configuration.load().config.data,):
        root = Path(given).absolute()
        logs = sorted(_below(root))
        if not logs:
            raise NoLog(f"there is no log in {root}: name a data directory or a log's own directory")
        for log in logs:
            data = log.parent.parent.parent  # of a topic's log: DATA/topics/ID/PARTITION
            if data not in known:
                known[data] = _topic_names(data)
            name = str(log) if log == root else str(log.relative_to(root))
            found.append(_Log(str(log), name, known[data].get(log.parent.name)))
    return found


def _topic_names(data: Path) -> dict[str, str]:
    """Names of topics by their directories; none where the catalogue cannot be read, which its own log's row says."""
    from ..clients.embedded.peek import Peek
    from ..storage.files import Files

    peek = Peek(str(data), Files())
    try:
        return {id_.hex(): name for id_, name in peek.names().items()}
    except (Error, OSError):
        return {}
    finally:
        peek.close()


def _below(root: Path) -> Iterator[Path]:
    for directory, names, files in os.walk(root):
        if any(name.endswith(".segment") for name in files):
            names.clear()
            yield Path(directory)
        if "trash" in names:
            names.remove("trash")


def _show(output: Output, reports: list[tuple[_Log, Report]]) -> None:
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
            output.console.print(line, markup=False, soft_wrap=True)


def _size(report: Report) -> str:
    return units.size_text(sum(segment.batch_bytes for segment in report.segments))


def _state(report: Report) -> str:
    if not report.ok:
        return "damaged"
    return "ok" if report.clean else "ok after a repair or the next start"


def _findings(report: Report) -> Iterator[str]:
    """What there is to say about one log beyond its row."""
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


@contextmanager
def _progress(output: Output) -> Iterator[Any]:
    """A function that gives, for one log's name, what `verify` is to call as it goes."""
    if not output.shows_progress:
        yield lambda name: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=output.notes, transient=True) as bars:

        def watch(name: str) -> Any:
            task = bars.add_task(name)
            return lambda done, total: bars.update(task, completed=done, total=total)

        yield watch
