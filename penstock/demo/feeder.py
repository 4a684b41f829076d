"""The feeder of the demo: sends the flights day by day, a year in a few seconds.

Idea: the first day is sent at once, for readers to get ready by; the others when told to go on.
Contract: all records of a day are committed before the next day is sent, so that times in the topic are never more than
two days behind the latest. The closing record behind the last day is of the far future: from it, a reader that goes by
the time in the records learns that the year is over.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import groupby, islice

from ..clients import connect
from .flights import COLUMNS, Flights
from .roles import Conductor, Progress, RoleDone

FLIGHTS_PER_S = 56_000
"""The year takes six seconds."""
CLOSING_HOUR = "2100-01-01T00:00:00Z"
CLOSING = ",".join(CLOSING_HOUR if name == "time_hour" else "" for name in COLUMNS).encode()

_DATE = slice(COLUMNS.index("year"), COLUMNS.index("day") + 1)


def feed(flights: Flights, conductor: Conductor) -> None:
    """Send the first day when told to go, the others when told again, then the closing record; wait for the commit."""
    order = conductor.wait_for_go()
    if order is None:
        return
    with connect(order.url) as client, client.producer(order.topic) as producer:
        year = days(flights)
        sent = 0
        for lines, carriers in islice(year, 1):
            producer.send_many(lines, keys=carriers)
            sent = len(lines)
            conductor.say(Progress(sent))
        if conductor.wait_for_go() is None:
            return
        started, before = time.perf_counter(), sent
        for lines, carriers in year:
            time.sleep(max(0.0, started + (sent - before) / FLIGHTS_PER_S - time.perf_counter()))
            producer.send_many(lines, keys=carriers)
            sent += len(lines)
            conductor.progress(sent)
        producer.send(CLOSING)
        conductor.say(RoleDone(sent, time.perf_counter() - started))


def days(flights: Flights) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Lines and carriers of each day, as the year went; the file has its months in the order of their names."""
    dates = [tuple(map(int, line.split(b",", _DATE.stop)[_DATE])) for line in flights.lines]
    order = sorted(range(len(dates)), key=dates.__getitem__)
    for _, day in groupby(order, key=dates.__getitem__):
        lines = list(day)
        yield [flights.lines[at] for at in lines], [flights.carriers[at] for at in lines]
