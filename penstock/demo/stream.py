"""The stream part of the demo: two producers over unix, a group of three over tcp, one mapped reader.

Idea: the processes are made while the broker starts; `run` gives the orders, displays their messages, and knows from
the group's lag that everything was consumed.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from . import report
from .broker import Broker
from .consumer import consume
from .display import Display
from .flights import Flights, share
from .listening import all_done, listen
from .producer import produce
from .report import Seen
from .roles import Go, Part, Role, Stop

if TYPE_CHECKING:
    from ..clients import Client

PARTITIONS = 4
PRODUCERS = 2
MEMBERS = 3
GROUP = "report"


class Measured(Struct, frozen=True):
    """Records and seconds of one phase, from its first record to its last."""

    name: str
    records: int
    seconds: float


class StreamRoles:
    """The processes of the stream part. Making it forks them: before any thread, socket or ZeroMQ context."""

    def __init__(self, flights: Flights, reports: Path) -> None:
        self.flights = len(flights)
        self.measured: list[Measured] = []
        self.roles: list[Role] = []
        self._reports = reports
        parts = [share(flights, number, PRODUCERS) for number in range(PRODUCERS)]
        self.producers = [self._fork(f"producer {n}", partial(produce, part)) for n, part in enumerate(parts, 1)]
        self.members = [self._fork(f"member {n + 1}", consume) for n in range(MEMBERS)]
        self.mapped = self._fork("mapped reader", consume)

    def _fork(self, name: str, part: Part) -> Role:
        role = Role(name, part, self.roles)
        self.roles.append(role)
        return role

    def run(self, client: Client, broker: Broker, topic: str, display: Display) -> None:
        """Run the part, in order. The reports can then be read."""
        client.create_topic(topic, partitions=PARTITIONS)
        display.phase("produce", "two producers over unix", self.flights, self.producers)
        display.phase("group", "a group of three over tcp", self.flights, self.members)
        display.phase("mapped", "mapped delivery", self.flights, [self.mapped])
        started = time.perf_counter()
        for role in self.members:
            role.tell(Go(broker.tcp, topic, self.flights, group=GROUP, delivery="push", report=str(self._report(role))))
        for role in self.producers:
            role.tell(Go(broker.unix, topic, self.flights))
        listen(self.roles, display, lambda: all_done(self.producers))
        self.measured.append(Measured("produced over unix", self.flights, max(r.seconds for r in self.producers)))
        listen(self.roles, display, lambda: is_consumed(client, topic, self.flights))
        self.measured.append(Measured("consumed over tcp", self.flights, time.perf_counter() - started))
        self._stop_members(display)
        report_to = str(self._report(self.mapped))
        self.mapped.tell(Go(broker.unix, topic, self.flights, delivery="mapped", report=report_to))
        listen(self.roles, display, lambda: self.mapped.done)
        self.measured.append(Measured("consumed mapped", self.mapped.records, self.mapped.seconds))

    def group_report(self) -> list[Seen]:
        """The records that the members of the group saw."""
        return [report.load(self._report(role)) for role in self.members]

    def mapped_report(self) -> list[Seen]:
        """The records that the mapped reader saw."""
        return [report.load(self._report(self.mapped))]

    def close(self) -> None:
        for role in self.roles:
            role.end()

    def _report(self, role: Role) -> Path:
        return self._reports / role.name.replace(" ", "-")

    def _stop_members(self, display: Display) -> None:
        for role in self.members:
            role.tell(Stop())
        listen(self.roles, display, lambda: all_done(self.members))


def is_consumed(client: Client, topic: str, flights: int) -> bool:
    """Whether the group has committed everything; the producers may finish before its first member joins."""
    end = sum(partition.end for partition in client.topic(topic).partitions)
    return end == flights and [group.lag for group in client.groups(topic) if group.name == GROUP] == [0]
