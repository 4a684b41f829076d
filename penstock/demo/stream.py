"""The stream part of the demo: two producers over ipc, a group of three over tcp, one mapped reader.

Idea: `start` lets all processes come up while the broker does; `run` gives the orders, shows what they say, and
knows from the group's lag that everything was consumed.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from . import report
from .broker import Broker
from .display import Display
from .errors import DemoError
from .report import Seen
from .roles import Go, Role, Stop

if TYPE_CHECKING:
    from ..clients import Client

PARTITIONS = 4
PRODUCERS = 2
MEMBERS = 3
GROUP = "report"

QUIET_S = 60.0
"""No record moved for so long: something is stuck."""

LAG_S = 0.1
"""Between two looks at the group's lag."""


class Measured(Struct, frozen=True):
    """One phase: how many records in how many seconds, from its first record to its last."""

    name: str
    records: int
    seconds: float


class Stream:
    """The processes of the stream part."""

    def __init__(self, flights: int, reports: Path) -> None:
        self.flights = flights
        self.measured: list[Measured] = []
        self._reports = reports
        self.producers = [Role(f"producer {n + 1}", "producer") for n in range(PRODUCERS)]
        self.members = [Role(f"member {n + 1}", "consumer") for n in range(MEMBERS)]
        self.mapped = Role("mapped reader", "consumer")

    @property
    def roles(self) -> list[Role]:
        return [*self.producers, *self.members, self.mapped]

    def run(self, client: Client, broker: Broker, topic: str, display: Display) -> None:
        """Everything, in order. The reports are then there to be read."""
        client.create_topic(topic, partitions=PARTITIONS)
        display.phase("produce", "two producers over ipc", self.flights, self.producers)
        display.phase("group", "a group of three over tcp", self.flights, self.members)
        display.phase("mapped", "mapped delivery", self.flights, [self.mapped])
        started = time.perf_counter()
        for number, role in enumerate(self.members):
            role.tell(Go(broker.tcp, topic, self.flights, group=GROUP, report=self._report(role, number)))
        for number, role in enumerate(self.producers):
            role.tell(Go(broker.ipc, topic, self.flights, number, PRODUCERS))
        self._listen(display, self.producers, until=_all_done)
        self.measured.append(Measured("produced over ipc", self.flights, max(r.seconds for r in self.producers)))
        self._listen(display, self.members, until=lambda roles: self._is_consumed(client, topic))
        self.measured.append(Measured("consumed over tcp", self.flights, time.perf_counter() - started))
        self._stop_members(display)
        self.mapped.tell(
            Go(broker.ipc, topic, self.flights, delivery="mapped", report=self._report(self.mapped, MEMBERS))
        )
        self._listen(display, [self.mapped], until=_all_done)
        self.measured.append(Measured("consumed mapped", self.mapped.records, self.mapped.seconds))

    def group_report(self) -> list[Seen]:
        """What the members of the group saw."""
        return [report.load(Path(self._report(role, number))) for number, role in enumerate(self.members)]

    def mapped_report(self) -> list[Seen]:
        """What the mapped reader saw."""
        return [report.load(Path(self._report(self.mapped, MEMBERS)))]

    def close(self) -> None:
        for role in self.roles:
            role.end()

    def _report(self, role: Role, number: int) -> str:
        return str(self._reports / f"{number}-{role.name.replace(' ', '-')}")

    def _stop_members(self, display: Display) -> None:
        for role in self.members:
            role.tell(Stop())
        self._listen(display, self.members, until=_all_done)

    def _is_consumed(self, client: Client, topic: str) -> bool:
        """Whether the group has committed everything."""
        ends = {each.partition: each.end for each in client.topic(topic).partitions}
        return sum(ends.values()) == self.flights and client.group(topic, GROUP).lag == 0

    def _listen(self, display: Display, roles: Sequence[Role], *, until: Callable[[Sequence[Role]], bool]) -> None:
        """Hear all roles and show what they say, until `until` holds for `roles`."""
        moved, moved_at = -1, time.monotonic()
        while not until(roles):
            ready, _, _ = select.select([role for role in self.roles if not role.done], [], [], LAG_S)
            for role in ready:
                role.hear()
            display.refresh()
            total = sum(role.records for role in self.roles)
            if total != moved:
                moved, moved_at = total, time.monotonic()
            elif time.monotonic() - moved_at > QUIET_S:
                where = ", ".join(f"{role.name}: {role.records:,}" for role in self.roles)
                raise DemoError(f"no record moved for {QUIET_S:.0f} s ({where})")


def _all_done(roles: Sequence[Role]) -> bool:
    return all(role.done for role in roles)
