"""The whole demo: a broker, the stream part, the doors part, the queue part, the Spark part, the checks, the verdict.

Contract: returns the measurements and the differences found; raises penstock's errors if it could not be run. Leaves
nothing behind but a requested data directory.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import Struct

from ..clients import Client, connect
from . import check_queue, doors, flights, live
from .broker import Broker
from .check import differences
from .display import Display
from .doors import DoorRoles
from .expected import Expected, expected
from .hours import Delays, Hour, delays
from .late import Late, late
from .live import Live, LiveStory
from .queue import QueueRoles, Story
from .stream import Measured, StreamRoles

TOPIC = "flights"
TASKS = "late-flights"
LIVE = "live-flights"
DELAYS = "delays"


class Outcome(Struct, frozen=True):
    """The result of the demo. No differences: all is equal."""

    flights: int
    topic: str
    data: str
    expected: Expected
    measured: list[Measured]
    story: Story
    live: LiveStory | None  # without Spark there is none
    differences: list[str]


def run(display: Display, *, data: Path | None = None, most: int | None = None, spark: bool = True) -> Outcome:
    """Run the demo.

    Args:
        data: the broker's data directory, kept; a temporary one without.
        most: only the first so many flights.
        spark: with the Spark part.
    """
    content = flights.content()  # what is missing should be said before anything starts
    doors.check()
    if spark:
        live.check()
    started = "starting a broker with a gateway, two producers, a group of three, a mapped reader, four workers"
    display.say(f"{started}, Spark" if spark else started)
    with ExitStack() as stack:
        place = Path(stack.enter_context(scratch()))
        broker = Broker(data or place / "data")
        stack.callback(broker.close)
        parsed = flights.parse(content, most=most)
        stream = StreamRoles(parsed, place)
        stack.callback(stream.close)
        outside = DoorRoles(len(parsed), place, stream.roles)
        stack.callback(outside.close)
        queue = QueueRoles(parsed, place, [*stream.roles, *outside.roles])
        stack.callback(queue.close)
        streaming = Live(parsed, place, [*stream.roles, *outside.roles, *queue.workers]) if spark else None
        if streaming:
            stack.callback(streaming.close)
        wanted, wanted_late = expected(content, most=most), late(content, most=most)
        broker.wait()
        with connect(broker.unix) as client:
            topic = _free_name(client, TOPIC)
            with display:
                stream.run(client, broker, topic, display)
                if streaming:
                    streaming.begin(client, broker, _free_name(client, LIVE), _free_name(client, DELAYS))
                measured = [*stream.measured, *outside.run(broker, topic, display)]
                story, lost = _work(client, broker, queue, wanted_late, display)
                told, wrong = None, []
                if streaming:
                    told, wrong = _follow(client, streaming, wanted, delays(content, most=most), display)
        found = [f"group of three: {line}" for line in differences(wanted, stream.group_report())]
        found += [f"mapped delivery: {line}" for line in differences(wanted, stream.mapped_report())]
        for name, seen in outside.reports().items():
            found += [f"{name}: {line}" for line in differences(wanted, [seen])]
        broker.drain()
    found += lost + wrong
    return Outcome(stream.flights, topic, str(data or ""), wanted, measured, story, told, found)


def _work(client: Client, broker: Broker, queue: QueueRoles, wanted: Late, display: Display) -> tuple[Story, list[str]]:
    """Run the queue part. Returns its results and differences."""
    topic = _free_name(client, TASKS)
    story = queue.run(client, broker, topic, display)
    return story, [f"late flights: {line}" for line in check_queue.differences(client, topic, wanted)]


def _follow(
    client: Client, streaming: Live, wanted: Expected, hours: Mapping[Hour, Delays], display: Display
) -> tuple[LiveStory, list[str]]:
    """Run the Spark part. Returns its results and differences."""
    story = streaming.run(client, display)
    return story, [f"Spark: {line}" for line in streaming.differences(client, hours, wanted)]


def _free_name(client: Client, wanted: str) -> str:
    """A topic name not in use: a directory that is kept may hold topics of earlier runs."""
    taken = {topic.name for topic in client.topics()}
    names = (wanted if number == 1 else f"{wanted}-{number}" for number in range(1, len(taken) + 2))
    return next(name for name in names if name not in taken)


@contextmanager
def scratch() -> Iterator[str]:
    """A directory that is removed at the end."""
    directory = tempfile.mkdtemp(prefix="penstock-demo-")
    try:
        yield directory
    finally:
        shutil.rmtree(directory)
