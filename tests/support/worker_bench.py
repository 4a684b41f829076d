"""Workers stepped by hand, over a broker in memory; both live by one clock that moves when told to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.clients.connection.connection import Connection
from penstock.clients.connection.steps import Steps
from penstock.clients.opening import open_connection
from penstock.clients.task import Task
from penstock.clients.working.core import WorkerCore
from penstock.clients.working.leases import SettleFuture
from penstock.clients.working.options import worker_options

LEASE_S = 30.0

TURNS_MAX = 200
"""Far more than any verb needs when nothing has to be waited for."""


class Bench:
    """A connection that is turned by hand, and what it sends."""

    def __init__(self, broker: Any) -> None:
        self.broker = broker
        self.connection: Connection = open_connection(
            broker.url, timeout=5.0, name="bench", clock=lambda: broker.clock().monotonic_s
        )
        self.sent: list[Any] = []
        self.cut = False  # nothing goes out or comes in
        channel = self.connection.channel
        self._send, self._receive = channel.send, channel.receive
        channel.send = self.send  # type: ignore[method-assign]
        channel.receive = self.receive  # type: ignore[method-assign]
        self.answers: dict[type, Any] = {}  # instead of what the broker says, by kind of request
        self.run(self.connection.ready(self.connection.deadline()))

    def send(self, message: Any, payload: Any = b"") -> bool:
        if self.cut:
            return False
        self.sent.append(message)
        return self._send(message, payload)

    def receive(self) -> Any:
        found = None if self.cut else self._receive()
        if found is not None and type(found[0]) in self.answers:
            return self.answers[type(found[0])](found[0]), b""
        return found

    def run(self, steps: Steps[Any]) -> Any:
        """Drive steps to their end; one that has to wait for time to pass is a mistake of the test."""
        try:
            for _ in range(TURNS_MAX):
                next(steps)
                self.connection.turn()
        except StopIteration as done:
            return done.value
        finally:
            steps.close()
        raise AssertionError(f"still waiting after {TURNS_MAX} turns; sent: {self.sent[-5:]}")

    def worker(self, **how: Any) -> WorkerCore:
        found = self.run(self.connection.find_topic("t", self.connection.deadline()))
        options = worker_options(**{
            "group": "jobs", "lease": LEASE_S, "prefetch": 0, "lease_records": 1, "start": "earliest", "name": None,
            "max_bytes": "1MB", "max_processing": 300.0, **how,
        })  # fmt: skip
        return WorkerCore(self, found, options, task=Task, future=SettleFuture)

    def do(self, call: Callable[[], Any]) -> Any:
        """As of a shell, like `run`."""
        return call()

    def fetch(self, core: WorkerCore, most: int = 10) -> list[Any]:
        """What there is now."""
        return self.run(core.fetch(most, self.connection.clock()))

    def pass_time(self, seconds: float, *, step: float = 1.0) -> None:
        """Let time pass for both sides, who look at it often."""
        for _ in range(round(seconds / step)):
            self.broker.advance(step)
            for _ in range(5):
                self.connection.turn()

    def asked(self, kind: type) -> list[Any]:
        """What was sent of a kind, and forget all that was sent."""
        found = [message for message in self.sent if type(message) is kind]
        self.sent.clear()
        return found
