"""The Spark part of the demo: flights that stream in, and Spark that reads them meanwhile.

Idea: two processes, made with those of the other parts. `begin` has Spark start and read the first day, while the
tasks are processed, and the broker restarted, beside it; then `run` has the rest of the year stream in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ..spark import java
from ..storage.errors import Error
from . import check_delays
from .broker import Broker
from .delays import ARCHIVE, Driven, drive
from .display import Display
from .expected import Expected
from .feeder import feed
from .flights import Flights
from .hours import Delays, Hour
from .listening import listen
from .roles import Go, Role, Stop

if TYPE_CHECKING:
    from ..clients import Client

PARTITIONS = 4
TARGET_PARTITIONS = 2
QUIET_S = 300.0
"""A JVM and its first query take a few seconds, and minutes on a machine that has others to serve."""


class LiveStory(Struct, frozen=True):
    """The results of the Spark part."""

    flights: int
    seconds: float  # from the second day until all were read
    delays: int  # records written back
    driven: Driven


def check() -> None:
    """Raise the error that says what Spark misses here, and how to do without it."""
    try:
        java.check()
    except Error as error:
        raise type(error)(f"{error.message}; penstock demo --no-spark leaves Spark out") from None


class Live:
    """The processes of the Spark part. Making it forks them: before any thread, socket or ZeroMQ context."""

    def __init__(self, flights: Flights, workspace: Path, siblings: Sequence[Role]) -> None:
        self._flights = len(flights)
        self._workspace = workspace
        self._report = workspace / "driven"
        self._order = Go("", "", 0)
        self.feeder = Role("feeder", lambda conductor: feed(flights, conductor), siblings)
        self.driver = Role("spark driver", drive, [*siblings, self.feeder])
        self.roles = [self.feeder, self.driver]

    def begin(self, client: Client, broker: Broker, topic: str, target: str) -> None:
        """Make the topics and start the driver, which takes some seconds in the background."""
        client.create_topic(topic, partitions=PARTITIONS)
        client.create_topic(target, partitions=TARGET_PARTITIONS)
        place, report = str(self._workspace), str(self._report)
        self._order = Go(broker.unix, topic, self._flights, target=target, place=place, report=report)
        for role in self.roles:
            role.tell(self._order)

    def run(self, client: Client, display: Display) -> LiveStory:
        """Run the rest, in order."""
        display.phase("fed", "a year of flights streaming in", self._flights, [self.feeder])
        display.phase("spark", "Spark reading them meanwhile", self._flights, [self.driver])
        self._listen(display, lambda: self.driver.records > 0)
        started = time.perf_counter()
        self.feeder.tell(self._order)
        self._listen(display, lambda: self.feeder.done)
        self.driver.tell(Stop())
        self._listen(display, lambda: self.driver.records == self._flights)
        seconds = time.perf_counter() - started
        self._listen(display, lambda: self.driver.done)
        driven = msgspec.msgpack.decode(self._report.read_bytes(), type=Driven)
        written = sum(partition.end for partition in client.topic(self._order.target).partitions)
        return LiveStory(self._flights, seconds, written, driven)

    def differences(self, client: Client, wanted: Mapping[Hour, Delays], flights: Expected) -> list[str]:
        """The differences between the file and Spark's results."""
        topics = self._order.topic, self._order.target
        return check_delays.differences(client, topics, self._workspace / ARCHIVE, wanted, flights)

    def _listen(self, display: Display, until: Callable[[], bool]) -> None:
        listen(self.roles, display, until, quiet_s=QUIET_S)

    def close(self) -> None:
        """Leave no process behind."""
        for role in self.roles:
            role.end()
