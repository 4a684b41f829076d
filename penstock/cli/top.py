"""`penstock top`: what a broker does now, live: rates and latencies, topics, groups and queues.

Idea: two looks at the counters make rates. `summary` works out what is shown, from two samples; rich, which the command
line has anyway, draws it. Keys would need a library for terminals: ^C ends it.

Contract for programs: `--json` prints one object for each look. Rates are over the time between two looks; the first
look has none. On a pipe each look is printed below the one before.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ..storage.histogram import lately, quantile
from .options import SOME_TIME, Invocation, with_session

if TYPE_CHECKING:
    from ..clients import Client, Group, Topic
    from ..clients.queues.descriptions import Queue

ROWS = 12
"""Topics, groups and queues shown: those with the most to say."""

_RATES = {
    "requests": "requests", "failures": "failures", "records in": "produce.records", "bytes in": "produce.bytes",
    "records appended directly": "lending.records", "bytes out": "sent.bytes", "deliveries": "deliveries",
    "turns": "turns",
}  # fmt: skip
_LATENCIES = {
    "turn": "turns.us", "sync": "sync.us", "keeper's round": "keeper.round_us", "delivery age": "deliver.age_us",
}  # fmt: skip
_STATES = (
    "topics", "partitions", "partitions.poisoned", "partitions.damaged", "sessions.open", "sessions.out_of_credit",
    "lending.lent", "batches.in_flight", "fetch.waiting", "lease.waiting", "outbox.stuck", "stages.stuck",
)  # fmt: skip


class Sample(NamedTuple):
    """One look at a broker."""

    at_s: float  # monotonic
    wall: datetime
    stats: Mapping[str, Any]
    topics: Sequence[Topic]
    groups: Sequence[Group]
    queues: Sequence[Queue]


@click.command
@click.option("--every", type=SOME_TIME, metavar="TIME", default="2s", help="Time between two looks. Default: 2s.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after so many looks.")
@with_session
def command(every: float, count: int | None, session: Invocation) -> None:
    """Show what the broker does, until ^C."""
    output = session.output
    with session.connect() as client, _screen(session) as live:
        before, looks = None, 0
        while looks != count:
            if before is not None:
                time.sleep(every)
            now = look(client)
            found = summary(now, before)
            if output.as_json:
                output.json(found)
            elif live is None:
                output.console.print(*drawn(found), sep="\n")
            else:
                live.update(_stacked(drawn(found)), refresh=True)
            before, looks = now, looks + 1


def look(client: Client) -> Sample:
    """Ask the broker."""
    stats, topics = client.stats(), client.topics()
    return Sample(time.monotonic(), datetime.now(UTC), stats, topics, client.groups(), client.queues())


def summary(now: Sample, before: Sample | None) -> dict[str, Any]:
    """What is shown. Latencies are bounds of what came since the look before, in microseconds."""
    old: Mapping[str, Any] = before.stats if before is not None else {}
    passed_s = max(now.at_s - before.at_s, 1e-9) if before is not None else 0.0
    stats, rated = now.stats, {name: each for name, each in _RATES.items() if each in now.stats and each in old}
    return {
        "per_second": {name: (stats[counter] - old[counter]) / passed_s for name, counter in rated.items()},
        "latencies_us": _latencies(stats, old),
        "now": {name: stats[name] for name in _STATES if name in stats},
        "topics": _topics(now, before, passed_s),
        "groups": _first([_group_row(each, now) for each in now.groups], "lag"),
        "queues": _first([_queue_row(each, now) for each in now.queues], "ready"),
    }


def _latencies(stats: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Of the broker's own work, and of requests by kind."""
    named = {name: counter for name, counter in _LATENCIES.items() if counter in stats}
    own = {name: _quantiles(stats[counter], old.get(counter)) for name, counter in named.items()}
    kinds, before = stats.get("requests.us", {}), old.get("requests.us", {})
    return own | {kind: _quantiles(values, before.get(kind)) for kind, values in kinds.items()}


def _group_row(each: Group, now: Sample) -> dict[str, Any]:
    row = {"topic": each.topic, "group": each.name, "members": len(each.members), "lag": each.lag}
    return {**row, "oldest_s": _oldest_s(each, now)}


def _queue_row(each: Queue, now: Sample) -> dict[str, Any]:
    row = {"topic": each.topic, "group": each.name, "ready": each.ready, "in_flight": each.in_flight}
    later = {"delayed": each.delayed, "retrying": each.retrying, "dead": each.dead_lettered}
    return {**row, **later, "oldest_s": _oldest_s(each, now)}


def _oldest_s(each: Group | Queue, now: Sample) -> float:
    from ..clients.descriptions import age_s

    return age_s(each.oldest, now.wall) or 0.0


def drawn(found: Mapping[str, Any]) -> list[Any]:
    """Tables of rich."""
    from rich.table import Table

    def table(*columns: str) -> Table:
        made = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
        for name in columns:
            made.add_column(name, justify="right" if name.startswith(">") else "left", header_style="bold")
            made.columns[-1].header = name.removeprefix(">")
        return made

    tables = []
    rates = table("rate", ">per second")
    for name, value in found["per_second"].items():
        rates.add_row(name, f"{value:,.0f}")
    latencies = table("latency, us", ">p50 below", ">p99 below")
    for name, (p50, p99) in sorted(found["latencies_us"].items()):
        latencies.add_row(name, f"{p50:,}", f"{p99:,}")
    states = table("now", ">")
    for name, value in found["now"].items():
        states.add_row(name, f"{value:,}")
    tables += [each for each in (rates, latencies, states) if each.row_count]
    for kind in ("topics", "groups", "queues"):
        rows = found[kind]
        if rows:
            names = list(rows[0])
            listed = table(*(name if isinstance(rows[0][name], str) else f">{name}" for name in names))
            for row in rows:
                listed.add_row(*(_cell(row[name]) for name in names))
            tables.append(listed)
    return tables


def _topics(now: Sample, before: Sample | None, passed_s: float) -> list[dict[str, Any]]:
    ends = {each.id: each.appended for each in before.topics} if before is not None else {}
    rows = [
        {"topic": each.name, "records": each.records, "bytes": each.size_bytes,
         "per_second": (each.appended - ends[each.id]) / passed_s if each.id in ends else 0.0}
        for each in now.topics
    ]  # fmt: skip
    return _first(rows, "per_second")


def _first(rows: list[dict[str, Any]], by: str) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: -row[by])[:ROWS]


def _quantiles(values: Sequence[int], before: Sequence[int] | None) -> tuple[int, int]:
    """Bounds of half and of 99 % of what came since; of all, where nothing did or there is no look before."""
    chosen = lately(values, before)
    return quantile(chosen, 0.5), quantile(chosen, 0.99)


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value.replace("[", "\\[")
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"


def _screen(session: Invocation) -> Any:
    """A live screen on a terminal; None elsewhere."""
    if session.output.as_json or not session.output.console.is_terminal:
        return nullcontext()
    from rich.live import Live

    return Live(console=session.output.console, screen=True, auto_refresh=False)


def _stacked(tables: list[Any]) -> Any:
    from rich.console import Group as Stack

    return Stack(*tables)
