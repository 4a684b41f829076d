"""`penstock bench`: measure a running broker from here.

Idea: the few numbers a user asks for first, on their own machine and broker, with a temporary topic. `make bench`
compares with the machine's limits and with peers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from ..storage import units
from .histogram import histogram, summary
from .options import RATE, SIZE, Invocation, with_session

if TYPE_CHECKING:
    from ..clients import Client, Consumer, Task, Worker
    from .consume import Delivery

F = TypeVar("F", bound=Callable[..., Any])
Advance = Callable[[int], None]
Commit = Literal["durable", "written"]

CHUNK = 4096


@click.group
def command() -> None:
    """Measure a running broker, on a topic of its own that is deleted afterwards."""


def _shared(function: F) -> F:
    for option in (
        click.option("--commit", type=click.Choice(["durable", "written"]), default="durable", show_default=True),
        click.option("--partitions", type=click.IntRange(1), default=1, show_default=True),
        click.option("--size", type=SIZE, default="100", show_default=True, help="Bytes per record."),
    ):
        function = option(function)
    return function


@command.command(short_help="Measure sending with one client.")
@click.option("--records", type=click.IntRange(1), default=2_000_000, show_default=True)
@_shared
@with_session
def produce(records: int, size: int, partitions: int, commit: Commit, session: Invocation) -> None:
    """Send records from one client, many at a time; done when all are committed."""
    with _topic(session, partitions, commit) as (client, topic), _progress(session, "produce", records) as advance:
        took = _send(client, topic, records, size, advance)
    _report(session, "produce", records, size, took)


@command.command(short_help="Measure reading with one client.")
@click.option("--records", type=click.IntRange(1), default=2_000_000, show_default=True)
@click.option("--delivery", type=click.Choice(["push", "mapped", "control"]), default="push", show_default=True)
@click.option("--as", "kind", type=click.Choice(["records", "arrow", "numpy"]), default="records", show_default=True)
@_shared
@with_session
def consume(
    records: int, delivery: Delivery, kind: str, size: int, partitions: int, commit: Commit, session: Invocation
) -> None:  # fmt: skip
    """Read records with one client; they are sent first, which is not measured."""
    with _topic(session, partitions, commit) as (client, topic):
        with _progress(session, "prepare", records) as advance:
            _send(client, topic, records, size, advance)
        with (
            _progress(session, "consume", records) as advance,
            client.consumer(topic, start="earliest", delivery=delivery) as consumer,
        ):
            took = _receive(consumer, kind, records, advance)
    _report(session, "consume", records, size, took)


@command.command(short_help="Measure how long one record takes.")
@click.option("--records", type=click.IntRange(1), default=2000, show_default=True)
@click.option("--rate", type=RATE, help="Records per second, on a schedule; without: one after the other.")
@_shared
@with_session
def latency(records: int, rate: float | None, size: int, partitions: int, commit: Commit, session: Invocation) -> None:
    """Send records one by one and show how long each took to be committed.

    With --rate each is timed from the moment it was due, so that waiting in line counts.
    """
    value = bytes(size)
    with _topic(session, partitions, commit) as (client, topic), client.producer(topic) as producer:
        producer.send(value)  # the first one opens connections and files
        with _progress(session, "latency", records) as advance:
            durations = _timed(lambda: producer.send(value), records, rate, advance)
    _report_latency(session, durations, size, commit)


@command.command(short_help="Measure tasks: enqueue, lease, ack.")
@click.option("--records", type=click.IntRange(1), default=200_000, show_default=True)
@click.option("--batch", type=click.IntRange(1, 100_000), default=100, show_default=True, help="Tasks of one lease.")
@click.option("--strict", is_flag=True, help="Wait for the commit of each ack before the next lease.")
@_shared
@with_session
def tasks(
    records: int, batch: int, strict: bool, size: int, partitions: int, commit: Commit, session: Invocation
) -> None:  # fmt: skip
    """Enqueue tasks and process them with one client; done when the last ack is committed.

    Without --strict a batch is acked with the request that leases the next one.
    """
    with _topic(session, partitions, commit) as (client, topic):
        with _progress(session, "enqueue", records) as advance:
            took = _send(client, topic, records, size, advance)
        _report(session, "enqueue", records, size, took)
        with _progress(session, "tasks", records) as advance, client.worker(topic, group=topic) as worker:
            took = _work_off(worker, records, batch, strict, advance)
    _report(session, "tasks", records, size, took)


# -- measuring -------------------------------------------------------------------------------------


def _send(client: Client, topic: str, records: int, size: int, advance: Advance) -> float:
    values = [bytes(size)] * CHUNK

    def all_values() -> Iterator[bytes]:
        for start in range(0, records, CHUNK):
            yield from values[: records - start]
            advance(min(CHUNK, records - start))

    with client.producer(topic) as producer:
        started = time.perf_counter()
        producer.send_many(all_values())
        return time.perf_counter() - started


def _receive(consumer: Consumer, kind: str, records: int, advance: Advance) -> float:
    """Read until all records came. The first use of a library is not measured."""
    if kind == "arrow":
        import_module("pyarrow")
    started = time.perf_counter()
    left = records
    for batch in consumer.batches(kind):  # type: ignore[call-overload]  # the three kinds of the option
        count = len(batch)
        left -= count
        advance(count)
        if left <= 0:
            break
    return time.perf_counter() - started


def _work_off(worker: Worker, records: int, batch: int, strict: bool, advance: Advance) -> float:
    started = time.perf_counter()
    left = records
    found: list[Task] = []
    while left:
        if strict:
            found = worker.fetch(batch)
            worker.ack(found)
        else:
            found = worker.ack_and_fetch(found, batch)
        left -= len(found)
        advance(len(found))
    if not strict:
        worker.ack(found)
        worker.flush()
    return time.perf_counter() - started


def _timed(send: Callable[[], Any], records: int, rate: float | None, advance: Advance) -> list[float]:
    durations = []
    started = time.perf_counter()
    for number in range(records):
        due = started + number / rate if rate else time.perf_counter()
        wait = due - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        send()
        durations.append(time.perf_counter() - due)
        advance(1)
    return durations


@contextmanager
def _topic(session: Invocation, partitions: int, commit: Commit) -> Iterator[tuple[Client, str]]:
    """A connected client and a temporary topic."""
    topic = f"bench-{time.time_ns():x}"
    with session.connect() as client:
        client.create_topic(topic, partitions=partitions, commit=commit)
        try:
            yield client, topic
        finally:
            client.delete_topic(topic)


# -- showing ---------------------------------------------------------------------------------------


def _report(session: Invocation, what: str, records: int, size: int, took: float) -> None:
    rate = records / took
    sentence = (
        f"{what}: {units.count_text(records, 'record')} of {units.size_text(size)} in {units.time_text(took)}: "
        f"{rate:,.0f} records/s, {units.size_text(rate * size)}/s, {took / records * 1e9:,.0f} ns a record"
    )
    values = {"records": records, "size": size, "seconds": took, "records_per_s": rate, "bytes_per_s": rate * size}
    session.output.say(what, sentence, **values)


def _report_latency(session: Invocation, durations: list[float], size: int, commit: Commit) -> None:
    found = summary(durations)
    if session.output.as_json:
        session.output.json({"event": "latency", "records": len(durations), "size": size, "commit": commit, **found})
        return
    for line in histogram(durations):
        session.output.line(line)
    session.output.console.print()
    session.output.fields((name, units.time_text(duration)) for name, duration in found.items())


@contextmanager
def _progress(session: Invocation, title: str, total: int) -> Iterator[Advance]:
    """A function to call with counts; moves a progress bar on a terminal."""
    if not session.output.shows_progress:
        yield lambda count: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=session.output.notes, transient=True) as bars:
        task = bars.add_task(title, total=total)
        yield lambda count: bars.advance(task, count)
