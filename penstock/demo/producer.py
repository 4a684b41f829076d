"""A producer of the demo: sends its share of the flights, keyed by carrier, in the order of the file."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from ..clients import connect
from .flights import Flights, load, share
from .roles import Conductor, Done, Go, play

CHUNK = 4096
"""Records between two words about progress."""


def produce(conductor: Conductor) -> None:
    """Load while the broker starts, then send."""
    whole = load()
    order = conductor.wait_for_go()
    if order is None:
        return
    flights = share(Flights(whole.lines[: order.flights], whole.carriers[: order.flights]), order.number, order.of)
    started = time.perf_counter()
    _send(conductor, order, flights)
    conductor.say(Done(len(flights), time.perf_counter() - started))


def _send(conductor: Conductor, order: Go, flights: Flights) -> None:
    with connect(order.url) as client, client.producer(order.topic) as producer:
        producer.send_many(_watched(conductor, flights.lines), keys=flights.carriers)


def _watched(conductor: Conductor, lines: list[bytes]) -> Iterator[bytes]:
    """The lines; the conductor hears how many were taken."""
    for start in range(0, len(lines), CHUNK):
        conductor.progress(start)
        yield from lines[start : start + CHUNK]


if __name__ == "__main__":
    sys.exit(play(produce))
