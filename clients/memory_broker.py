"""For tests of programs that use penstock: a broker in memory, and its clock.

    def test_my_worker(penstock_broker):
        with penstock_broker.connect() as client:       # or penstock.connect(penstock_broker.url)
            client.create_topic("jobs")
            ...
            with client.worker("jobs", group="g") as worker: ...
        penstock_broker.advance(3600)                   # an hour later; nothing slept

Time passes at the broker only: leases run out, delays and back-offs pass, schedules fire. Clients in the test keep real
time, so a worker that holds a task over an `advance` past its lease finds it lost, as one that hung would.

A broker in memory runs the same rules as a real one. The pytest fixtures are in testing.py; this needs no pytest.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..broker.engine import Now
    from .client import Client

START_US = 1_700_000_000_000_000
STEP_S = 0.25

_numbers = itertools.count(1)


class FakeClock:
    """A clock that moves only when told to, from `start_us` on; the time of a broker in memory."""

    def __init__(self, start_us: int = START_US) -> None:
        self._wall_us = start_us
        self._monotonic_s = 1000.0

    def __call__(self) -> Now:
        """Both clocks, as the engine reads them."""
        from ..broker.engine import Now

        return Now(self._wall_us, self._monotonic_s)

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass."""
        self._wall_us += round(seconds * 1e6)
        self._monotonic_s += seconds


class MemoryBroker:
    """A broker in this process's memory, under a `mem://` address of its own and a `clock` that stands still."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        from .embedded.local import memory_broker

        self.clock = clock or FakeClock()
        self.name = f"testing-{next(_numbers)}"
        self._broker = memory_broker(self.name, self.clock)

    @property
    def url(self) -> str:
        """The address to connect to from this process."""
        return f"mem://{self.name}"

    def connect(self, timeout: float = 5.0) -> Client:
        """A client of this broker, whose verbs wait for `timeout` seconds."""
        from .client import connect

        return connect(self.url, timeout=timeout)

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass at the broker: retention, expiry, leases, delays, schedules, fetches. Silence counts.

        It passes in small steps, as a running broker sees it, so members that send no heartbeat meanwhile are
        taken for dead when their session timeout is over.
        """
        while seconds > 0:
            step = min(STEP_S, seconds)
            self.clock.advance(step)
            self._broker.drive(None)
            seconds -= step

    def close(self) -> None:
        """Drop the broker and all it holds."""
        from .embedded.local import forget

        forget(self.name)

    def __enter__(self) -> MemoryBroker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
