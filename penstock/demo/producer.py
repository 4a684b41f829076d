"""A producer of the demo: sends its share of the flights, keyed by carrier, in the order of the file."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ..clients import connect
from .flights import Flights
from .roles import Conductor, RoleDone

CHUNK = 4096
"""Records between two words about progress."""


def produce(flights: Flights, conductor: Conductor) -> None:
    """Send `flights` when told to go; returns when all are committed."""
    order = conductor.wait_for_go()
    if order is None:
        return
    with connect(order.url) as client, client.producer(order.topic) as producer:
        started = time.perf_counter()
        producer.send_many(_watched(conductor, flights.lines), keys=flights.carriers)
        conductor.say(RoleDone(len(flights), time.perf_counter() - started))


def _watched(conductor: Conductor, lines: list[bytes]) -> Iterator[bytes]:
    """Yield the lines and report progress to the conductor."""
    for start in range(0, len(lines), CHUNK):
        conductor.progress(start)
        yield from lines[start : start + CHUNK]
