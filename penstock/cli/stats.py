"""`penstock stats`: the broker's counters."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import click

from ..storage.errors import Error
from ..storage.histogram import quantile
from .options import SOME_TIME, Invocation, with_session

ALONE_S = 2.0
"""For so long is a node asked that did not let us in."""


class UnknownCounter(Error):
    """No counter has this name."""

    code = "unknown_counter"


@click.command
@click.option("--every", type=SOME_TIME, metavar="TIME", help="Repeat, with the change per second beside each number.")
@click.argument("prefix", default="")
@with_session
def command(prefix: str, every: float | None, session: Invocation) -> None:
    """Show the broker's counters, or those whose name starts with PREFIX. Any node of a cluster shows its own."""
    before: dict[str, Any] = {}
    for counters in _looks(session):
        values = _chosen(counters, prefix)
        _show(session, values, before, every)
        if every is None:
            return
        before = values
        time.sleep(every)


def _looks(session: Invocation) -> Iterator[dict[str, Any]]:
    """The counters, as often as they are asked for."""
    from ..broker.errors import NoLeader, NotLeader
    from ..clients.errors import TimedOut

    wait_s = session.config.timeout_s
    try:
        with session.connect() as client:
            while True:
                yield client.stats()
    except (NotLeader, NoLeader):
        pass
    except TimedOut:  # of a node that knows no leader, or leads and takes nothing now; or no node is there
        wait_s = min(wait_s, ALONE_S)
    from ..clients.cluster import node_stats

    while True:
        yield node_stats(session.url, wait_s)


def _chosen(counters: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The counters whose names start with `prefix`. Raises UnknownCounter if there are none."""
    values = {name: value for name, value in counters.items() if name.startswith(prefix)}
    if not values:
        areas = ", ".join(sorted({name.partition(".")[0] for name in counters}))
        raise UnknownCounter(f"no counter's name starts with {prefix!r}: they start with {areas}")
    return values


def _show(session: Invocation, values: dict[str, Any], before: dict[str, Any], every: float | None) -> None:
    if session.output.as_json:
        session.output.json(values)
        return
    columns = ["counter", ">value"] + ([">per second"] if before and every else [])
    now, then = _singly(values), _singly(before)
    rows = [(name, _text(value), *_rate(name, value, then, every)) for name, value in sorted(now.items())]
    session.output.table(columns, rows)
    if every is not None:
        session.output.console.print()


def _singly(values: dict[str, Any]) -> dict[str, Any]:
    """The counters, and each kind of those that count by kind, as "requests.by_kind: Produce"."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= {f"{name}: {kind}": each for kind, each in value.items()} if isinstance(value, dict) else {name: value}
    return found


def _text(value: Any) -> Any:
    if isinstance(value, list):
        return f"{sum(value[1:])}, p50 {quantile(value, 0.5)}, p99 {quantile(value, 0.99)}"
    return f"{value:.6g}" if isinstance(value, float) else value


def _rate(name: str, value: Any, before: dict[str, Any], every: float | None) -> tuple[str, ...]:
    if not before or not every:
        return ()
    if not isinstance(value, int | float) or not isinstance(before.get(name), int | float):
        return ("",)
    return (f"{(value - before[name]) / every:,.0f}",)
