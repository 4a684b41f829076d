"""`penstock demo`: the main job, shown and judged."""

from __future__ import annotations

import logging
import shlex
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from . import exits
from .options import with_output
from .output import Output, complain

if TYPE_CHECKING:
    from ..demo.display import Display
    from ..demo.live import LiveStory
    from ..demo.queue import Story
    from ..demo.run import Outcome


@click.command
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="Keep the broker's data here.")
@click.option("--flights", "most", type=click.IntRange(1), help="Only the first N flights.")
@click.option("--cluster", is_flag=True, help="Three nodes instead, of which the leader is killed every few seconds.")
@click.option("--spark/--no-spark", default=True, show_default=True, help="Include the Spark part.")
@with_output
def command(data: Path | None, most: int | None, cluster: bool, spark: bool, output: Output) -> int:
    """Stream 336,776 real flights through a broker and check every one.

    Two producers over unix, a group of three consumers over tcp, and once more by mapped delivery; then count, order
    per carrier and totals are compared with what numpy computes from the file. redis-py and curl read all of them
    through the gateway, and are judged the same way. Then every late flight is a task: some fail, a worker and the
    broker are killed, and in the end each must be completed or dead-lettered, as the file says. At last Spark reads
    the flights while they stream in, writes delays per carrier and hour to a topic, each once though it is stopped in
    the middle, and archives both topics as Parquet.
    With --cluster, three nodes hold the flights and the tasks, and the leader is killed every few seconds, and once
    stopped for a while: in the end all is there once, in order, and every task is accounted for.
    Exit code 5 when anything differs.
    """
    from ..demo.display import Display

    # The demo kills brokers and workers: what clients log of it is expected, and would be printed as warnings.
    logging.getLogger("penstock.clients").addHandler(logging.NullHandler())
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    display = Display(output.notes, live=output.shows_progress, quiet=output.as_json)
    place = data and data.absolute()
    found = _cluster(display, place, most, output) if cluster else _single(display, place, most, spark, output)
    for difference in found[:20]:
        complain("differences", difference, as_json=output.as_json)
    return exits.DAMAGED if found else exits.OK


def _single(display: Display, data: Path | None, most: int | None, spark: bool, output: Output) -> list[str]:
    """The demo of one broker. Returns what differs."""
    from ..demo.run import run

    started = time.perf_counter()
    outcome = run(display, data=data, most=most, spark=spark)
    took = time.perf_counter() - started
    if output.as_json:
        _as_json(output, outcome, took)
    else:
        _show(output, outcome, took)
    return outcome.differences


def _cluster(display: Display, data: Path | None, most: int | None, output: Output) -> list[str]:
    """The demo of three nodes. Returns what differs."""
    from ..demo import cluster

    started = time.perf_counter()
    outcome = cluster.run(display, data=data, most=most)
    took = time.perf_counter() - started
    waits = sorted(outcome.failovers)
    if output.as_json:
        output.json({
            "event": "demo", "equal": not outcome.differences, "flights": outcome.flights, "tasks": outcome.story,
            "kills": outcome.kills, "stops": outcome.stops, "failovers": outcome.failovers,
            "differences": outcome.differences, "seconds": took,
        })  # fmt: skip
    else:
        for line in (
            f"the leader was killed {outcome.kills} times and stopped {outcome.stops} times; another one led "
            f"{waits[0]:.2f} to {waits[-1]:.2f} s later",
            f"{outcome.flights:,} flights and {outcome.story.tasks:,} tasks: {outcome.story.completed:,} completed, "
            f"{outcome.story.dead_lettered:,} dead-lettered, in {took:.1f} s",
        ):
            output.line(line)
        if not outcome.differences:
            output.console.print(
                "[green]nothing was lost, doubled or reordered, and every task is accounted for[/green]"
            )
    return outcome.differences


def _end(number: int, frame: object) -> NoReturn:
    """Exit cleanly, as after ^C, leaving no process behind."""
    raise SystemExit(128 + number)


def _as_json(output: Output, outcome: Outcome, took: float) -> None:
    output.json(
        {
            "event": "demo",
            "equal": not outcome.differences,
            "flights": outcome.flights,
            "topic": outcome.topic,
            "carriers": outcome.expected.totals,
            "measured": outcome.measured,
            "tasks": outcome.story,
            "spark": outcome.live,
            "differences": outcome.differences,
            "seconds": took,
        }
    )


def _show(output: Output, outcome: Outcome, took: float) -> None:
    carriers = sorted(outcome.expected.totals.items(), key=lambda item: -item[1].flights)
    output.console.print()
    output.table(
        ["carrier", ">flights", ">cancelled", ">mean delay", ">miles"],
        [
            (name, t.flights, t.flights - t.departed, f"{t.delay_minutes / max(t.departed, 1):.1f} min", t.miles)
            for name, t in carriers
        ],
    )
    output.console.print()
    output.table(
        ["", ">records", ">seconds", ">records/s"],
        [(m.name, m.records, f"{m.seconds:.2f}", f"{m.records / max(m.seconds, 1e-9):,.0f}") for m in outcome.measured],
    )
    output.console.print()
    _tell(output, outcome.story)
    if outcome.live:
        _tell_of_spark(output, outcome.live)
    output.console.print()
    if not outcome.differences:
        found = [f"count, order per carrier and totals of {outcome.flights:,} flights are equal, however read"]
        found += ["every late flight is completed or dead-lettered, as the file says"]
        found += ["every delay that Spark wrote is there once, and all is archived"] if outcome.live else []
        for sentence in found:
            output.console.print(f"[green]{sentence}[/green]")
        output.console.print(f"{took:.1f} s in all")
    if outcome.data:
        _tell_where(output, outcome.topic, outcome.data)


def _tell(output: Output, story: Story) -> None:
    """Report the tasks."""
    from ..demo.late import ATTEMPTS

    for line in (
        f"{story.tasks:,} late flights as tasks, processed by four workers in {story.seconds:.1f} s",
        f"a worker was killed when {story.killed_at:,} were completed, the broker when {story.restarted_at:,} were",
        f"{story.completed:,} completed, {story.dead_lettered:,} dead-lettered after {ATTEMPTS} attempts; "
        f"{story.failures:,} failures were injected and retried",
    ):
        output.line(line)


def _tell_where(output: Output, topic: str, data: str) -> None:
    """Say how to read the topic that is kept."""
    from ..demo.doors import commands

    doors = "tcp://127.0.0.1:6380", "tcp://127.0.0.1:8080"
    lines = [f"penstock serve --data {shlex.quote(data)} --resp {doors[0]} --http {doors[1]} &"]
    lines += [*commands(*doors, topic, 3), f"penstock consume {topic} --until-end --count 3"]
    for line in (f"topic {topic} is kept in {data}; to read it:", *lines):
        output.line(line)


def _tell_of_spark(output: Output, story: LiveStory) -> None:
    """Report the Spark part."""
    driven = story.driven
    for line in (
        f"{story.flights:,} flights streamed in and Spark read them: {driven.batches} batches, {story.seconds:.1f} s",
        f"the query was stopped when {driven.stopped_at:,} were read, and its last batch was done again",
        f"{story.delays:,} delays per carrier and hour written back, each once; "
        f"{driven.archived:,} records archived as Parquet, {driven.archived_bytes / 1e6:.1f} MB",
    ):
        output.line(line)
