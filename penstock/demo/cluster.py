"""The demo of a cluster: the flights as streams and tasks on three nodes, of which the leader is killed over and over.

Idea: the processes of the other demo (producers, workers) work against three nodes, while a thread ends the leader
every few seconds, once by stopping it for a while. Afterwards the topic is read as a whole, and the tasks are counted,
as if nothing had happened.

Contract: as `run.py`.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from msgspec import Struct

from ..clients import Client, connect
from . import check_queue, flights
from .check import differences
from .display import Display
from .expected import Expected, expected
from .flights import Flights, share
from .late import late
from .listening import QUIET_S, all_done, listen
from .nodes import Nodes
from .producer import produce
from .queue import SETTINGS, QueueRoles, Story
from .report import Seen
from .roles import Go, Role
from .run import scratch
from .tally import Tally

TOPIC, TASKS = "flights", "late-flights"
PRODUCERS = 2
PARTITIONS = 4
CALM_S = 3.0
"""Between two ends of a leader."""

STOPPED_S = 5.0
PATIENCE_S = 60.0
FETCH = 8192

QUEUE = {**SETTINGS, "lease_s": 12.0}
"""A lease outlives a failover; what a killed worker had comes back when it runs out."""


class ClusterOutcome(Struct, frozen=True):
    """The result. No differences: nothing was lost, doubled, changed or reordered."""

    flights: int
    expected: Expected
    story: Story
    kills: int
    stops: int
    failovers: list[float]
    differences: list[str]


class Disturbing:
    """A thread that ends the leader every few seconds until `end`."""

    def __init__(self, nodes: Nodes, display: Display) -> None:
        self.kills = self.stops = 0
        self._nodes = nodes
        self._display = display
        self._failed: Exception | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._over.wait(CALM_S):
                if self.kills == 1 and not self.stops:
                    self.stops += 1
                    self._say("stopped for a while", self._nodes.pause(STOPPED_S))
                else:
                    self.kills += 1
                    self._say("killed", self._nodes.kill())
        except Exception as error:  # for the thread that waits for `end`
            self._failed = error

    def _say(self, what: str, leader: int) -> None:
        self._display.say(f"the leader was {what}: node {leader} leads {self._nodes.failovers[-1]:.2f} s later")

    def end(self) -> None:
        """Disturb no more. Raises what went wrong."""
        self._over.set()
        self._thread.join()
        if self._failed is not None:
            raise self._failed


def run(display: Display, *, data: Path | None = None, most: int | None = None) -> ClusterOutcome:
    """Run the demo. Arguments as of the other one: each node has a directory below `data`."""
    content = flights.content()
    display.say("starting three nodes of a cluster, two producers, four workers")
    with ExitStack() as stack:
        place = Path(stack.enter_context(scratch()))
        nodes = Nodes(data or place / "data")
        stack.callback(nodes.close)
        parsed = flights.parse(content, most=most)
        producers = _producers(parsed, stack)
        queue = QueueRoles(parsed, place, producers)
        stack.callback(queue.close)
        wanted, wanted_late = expected(content, most=most), late(content, most=most)
        nodes.wait()
        with connect(nodes.unix, timeout=PATIENCE_S) as client, display:
            disturbing = Disturbing(nodes, display)
            _produce(client, nodes, producers, len(parsed), display)
            story = queue.run(client, nodes, TASKS, display, QUEUE)
            disturbing.end()
            seen = _read(client, TOPIC, len(parsed))
            found = [f"three nodes: {line}" for line in differences(wanted, [seen])]
            found += [f"late flights: {line}" for line in check_queue.differences(client, TASKS, wanted_late)]
        nodes.drain()
    return ClusterOutcome(len(parsed), wanted, story, disturbing.kills + 1, disturbing.stops, nodes.failovers, found)


def _producers(parsed: Flights, stack: ExitStack) -> list[Role]:
    made: list[Role] = []
    for number in range(PRODUCERS):
        made.append(Role(f"producer {number + 1}", partial(produce, share(parsed, number, PRODUCERS)), list(made)))
        stack.callback(made[-1].end)
    return made


def _produce(client: Client, nodes: Nodes, producers: list[Role], count: int, display: Display) -> None:
    client.create_topic(TOPIC, partitions=PARTITIONS)
    display.phase("produce", "two producers over unix", count, producers)
    for role in producers:
        role.tell(Go(nodes.unix, TOPIC, count))
    listen(producers, display, lambda: all_done(producers))


def _read(client: Client, topic: str, count: int) -> Seen:
    """All records of a topic, or as many as come."""
    tally, quiet_since = Tally(), time.monotonic()
    with client.consumer(topic) as consumer:
        while len(tally) < count and time.monotonic() - quiet_since < QUIET_S:
            if records := consumer.fetch(FETCH, 1.0):
                tally.add(records)
                quiet_since = time.monotonic()
        tally.add(consumer.fetch(FETCH, 0.2))  # more than there should be
    return Seen(tally.totals, tally.trace)
