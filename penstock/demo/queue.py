"""The queue part of the demo: late flights as tasks, a killed worker, a killed broker, and every task accounted for.

Idea: the workers are forked with the processes of the stream part. When a third is done one of them is killed, when two
thirds are done the broker is, and its supervisor starts another; what a killed worker had comes back when its lease has
run out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from .broker import Broker
from .display import Display
from .flights import Flights
from .late import ATTEMPTS, minutes_late
from .listening import all_done, listen
from .roles import Go, Role, Stop
from .worker import Worked, work

if TYPE_CHECKING:
    from ..clients import Client
    from .nodes import Nodes

WORKERS = 4
PARTITIONS = 4
GROUP = "delays"
SETTINGS = {"lease_s": 4.0, "max_attempts": ATTEMPTS, "backoff_s": 0.2, "backoff_max_s": 0.4}
"""A killed worker's leases expire within the demo, yet the others keep theirs over a restart of the broker;
what fails each time has waited for less than two seconds when it is dead."""


class Story(Struct, frozen=True):
    """The results, as reported by the surviving workers."""

    tasks: int
    completed: int
    dead_lettered: int
    failures: int
    killed_at: int  # tasks completed when a worker was killed
    restarted_at: int  # tasks completed when the broker was
    seconds: float


class QueueRoles:
    """The processes of the queue part. Making it forks them: before any thread, socket or ZeroMQ context."""

    def __init__(self, flights: Flights, reports: Path, siblings: Sequence[Role]) -> None:
        late = [at for at, line in enumerate(flights.lines) if minutes_late(line)]
        self._lines = [flights.lines[at] for at in late]
        self._carriers = [flights.carriers[at] for at in late]
        self._reports = reports
        self.workers: list[Role] = []
        for number in range(1, WORKERS + 1):
            self.workers.append(Role(f"worker {number}", work, [*siblings, *self.workers]))

    def run(
        self, client: Client, broker: Broker | Nodes, topic: str, display: Display,
        settings: Mapping[str, Any] = SETTINGS,
    ) -> Story:  # fmt: skip
        """Run the part, in order. `settings`: of the queue."""
        client.create_topic(topic, partitions=PARTITIONS)
        client.set_queue(topic, GROUP, **settings)
        tasks, started = len(self._lines), time.perf_counter()
        display.phase("queue", "late flights as tasks", tasks, self.workers)
        for role in self.workers:
            role.tell(Go(broker.unix, topic, tasks, group=GROUP, report=str(self._report(role))))
        with client.producer(topic) as producer:
            producer.send_many(self._lines, keys=self._carriers)
        killed_at = self._when(display, tasks // 3, self.workers[0].kill)
        restarted_at = self._when(display, 2 * tasks // 3, broker.kill)
        listen(self.workers, display, lambda: is_worked_off(client, topic))
        seconds = time.perf_counter() - started
        worked = self._stop(display)
        dead = client.queue(topic, GROUP).dead_lettered
        failures = sum(each.failed for each in worked)
        return Story(tasks, tasks - dead, dead, failures, killed_at, restarted_at, seconds)

    def close(self) -> None:
        """Leave no process behind."""
        for role in self.workers:
            role.end()

    def _when(self, display: Display, completed: int, act: Callable[[], object]) -> int:
        """Act once so many tasks are completed. Returns how many were completed then."""
        listen(self.workers, display, lambda: self._completed() >= completed)
        act()
        return self._completed()

    def _completed(self) -> int:
        return sum(role.records for role in self.workers)

    def _stop(self, display: Display) -> list[Worked]:
        """Stop the surviving workers and return their counts."""
        living = [role for role in self.workers if not role.done]
        for role in living:
            role.tell(Stop())
        listen(self.workers, display, lambda: all_done(living))
        return [msgspec.msgpack.decode(self._report(role).read_bytes(), type=Worked) for role in living]

    def _report(self, role: Role) -> Path:
        return self._reports / role.name.replace(" ", "-")


def is_worked_off(client: Client, topic: str) -> bool:
    """Whether no task is left to try."""
    return not client.queue(topic, GROUP).depth
