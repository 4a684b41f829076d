"""The whole demo: a broker, the stream part, the check, the verdict.

Contract: returns what was measured and the differences found; raises penstock's errors when it could not be run.
Nothing is left behind but the data directory that was asked for.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import Struct

from ..clients import Client, connect
from . import flights
from .broker import Broker
from .check import differences
from .display import Display
from .expected import Expected, expected
from .stream import Measured, Stream

TOPIC = "flights"


class Outcome(Struct, frozen=True):
    """What came of it. No differences: everything is equal."""

    flights: int
    topic: str
    data: str
    expected: Expected
    measured: list[Measured]
    differences: list[str]


def run(display: Display, *, data: Path | None = None, most: int | None = None) -> Outcome:
    """Run the demo.

    Args:
        data: the broker's data directory, kept; a temporary one without.
        most: only the first so many flights.
    """
    display.say("starting a broker, two producers, a group of three consumers and a mapped reader")
    content = flights.content()  # a missing package should be said before anything starts
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(_scratch()))
        broker = Broker(data or scratch / "data")
        stack.callback(broker.close)
        stream = Stream(flights.parse(content, most=most), scratch)
        stack.callback(stream.close)
        wanted = expected(content, most=most)
        broker.wait()
        topic = _play(stream, broker, display)
        found = [f"group of three: {line}" for line in differences(wanted, stream.group_report())]
        found += [f"mapped delivery: {line}" for line in differences(wanted, stream.mapped_report())]
        broker.drain()
    return Outcome(stream.flights, topic, str(data or ""), wanted, stream.measured, found)


def _play(stream: Stream, broker: Broker, display: Display) -> str:
    with connect(broker.unix) as client, display:
        topic = _free_name(client)
        stream.run(client, broker, topic, display)
    return topic


def _free_name(client: Client) -> str:
    """A topic that is not there yet: a directory that is kept may hold those of earlier runs."""
    taken = {topic.name for topic in client.topics()}
    names = (TOPIC if number == 1 else f"{TOPIC}-{number}" for number in range(1, len(taken) + 2))
    return next(name for name in names if name not in taken)


@contextmanager
def _scratch() -> Iterator[str]:
    directory = tempfile.mkdtemp(prefix="penstock-demo-")
    try:
        yield directory
    finally:
        shutil.rmtree(directory)
