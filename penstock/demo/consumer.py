"""A consumer of the demo: a member of the group, or a reader on its own; counts what it gets and reports."""

from __future__ import annotations

import time
from pathlib import Path

from ..clients import connect
from .report import Seen, save
from .roles import Conductor, Go, RoleDone
from .tally import Tally

MOST = 8192
"""Records per fetch."""

WAIT_S = 0.02
"""How long a fetch waits for the first record: a Stop is looked for in between."""

COMMIT_S = 0.1
"""Between two commits, which is how the conductor sees the group catch up."""


def consume(conductor: Conductor) -> None:
    """Read until told to stop, then write the report."""
    order = conductor.wait_for_go()
    if order is None:
        return
    tally = Tally()
    seconds = _read(conductor, order, tally)
    save(Seen(tally.totals, tally.trace), Path(order.report))
    conductor.say(RoleDone(len(tally), seconds))


def _read(conductor: Conductor, order: Go, tally: Tally) -> float:
    """Fill the tally. Returns seconds from the first record to the last."""
    started = last = 0.0
    with connect(order.url) as client, client.consumer(
        order.topic, group=order.group or None, delivery=order.delivery, auto_commit=COMMIT_S if order.group else None
    ) as consumer:  # fmt: skip
        while not (len(tally) == order.flights or conductor.should_stop()):
            records = consumer.fetch(MOST, WAIT_S)
            if records:
                started = started or time.perf_counter()
                tally.add(records)
                last = time.perf_counter()
                conductor.progress(len(tally))
    return last - started
