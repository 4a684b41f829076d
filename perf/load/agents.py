"""The processes of an open loop: `python -m perf.load.agents <role> <plan>`, started and bounded by loads.py.

Idea: sender and receiver are separate processes, so that neither takes the interpreter from the other, and the server
shares the machine with the clients as in production. An agent connects and says that it is ready; a few messages go
through; it is told when the schedule starts, runs it, and prints its results as one line of JSON.

Contract: an agent ends by itself: an alarm stops its loop at the end of the run, also inside a call of a client
library, and it waits for nothing else but its standard input, which closes when its parent ends.
"""

from __future__ import annotations

import ctypes
import gc
import json
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import ParamSpec, TypeVar

from ..systems import bare
from ..systems.system import System
from . import openloop
from .histograms import histogram

P = ParamSpec("P")
T = TypeVar("T")

PROBES = 10
"""Messages that go through before the schedule starts: whatever a client sets up for its first ones is set up then."""
PROBE_S = 30.0
_PR_SET_TIMERSLACK = 29


@dataclass(frozen=True)
class Plan:
    """The plan of an agent."""

    module: str  # of the system: "perf.systems.bare"
    system: str  # its name there
    address: str
    stream: str
    rate: int
    count: int
    warm: int
    size: int
    grace_s: float  # how long after the last message was due the run still waits

    def schedule(self, start_ns: int) -> openloop.Schedule:
        return openloop.Schedule(start_ns, self.rate, self.count, self.warm)


def main(role: str, plan: str) -> None:
    _ask_for_exact_sleep()
    ROLES[role](Plan(**json.loads(plan)))
    sys.stdin.read()  # leaving closes connections, which must not disturb a run that is not over


def send(plan: Plan) -> None:
    """Offer the schedule, and report how late each wake-up was."""
    with find(plan.module, plan.system).sender(plan.address, plan.stream) as sender:
        _say(ready=True)
        sys.stdin.readline()
        sender([bytes(plan.size)] * PROBES)
        schedule = _started(plan)
        with _until(_end_ns(plan, schedule)) as ending:
            offered = openloop.offer(ending(sender), schedule, plan.size, time.perf_counter_ns, _sleep_until)
        _say(sent=offered.sent, lateness=histogram(offered.lateness_ns).encode().decode())
        sys.stdin.read()


def receive(plan: Plan) -> None:
    """Receive messages, and report how old they were."""
    with find(plan.module, plan.system).receiver(plan.address, plan.stream) as receiver:
        _say(ready=True)
        with _until(time.perf_counter_ns() + int(PROBE_S * openloop.SECOND_NS)) as ending:
            arrived = openloop.collect(ending(receiver), PROBES, time.perf_counter_ns)
        if len(arrived.stamps) < PROBES:
            raise RuntimeError(f"of {PROBES} messages before the run {len(arrived.stamps)} came within {PROBE_S:.0f} s")
        schedule = _started(plan)
        with _until(_end_ns(plan, schedule)) as ending:
            got = openloop.collect(ending(receiver), plan.count, time.perf_counter_ns)
        _say_ages(openloop.ages(schedule, got, time.perf_counter_ns()))
        sys.stdin.read()


def ping(plan: Plan) -> None:
    """Send and receive over one bare socket to an echo: each message when it is due, and its echo at once."""
    with bare.connected(plan.address) as connection:
        schedule = _started(plan)
        pinger = Pinger(connection, schedule, plan.size)
        with _until(_end_ns(plan, schedule)) as ending:
            got = openloop.collect(ending(pinger.turn), plan.count, time.perf_counter_ns)
        _say_ages(openloop.ages(schedule, got, time.perf_counter_ns()))


class Pinger:
    """Sends due messages while it waits for echoes, and reads while it cannot send; so does the echo."""

    def __init__(self, connection: socket.socket, schedule: openloop.Schedule, size: int) -> None:
        self._connection = connection
        self._schedule = schedule
        self._padding = bytes(size - openloop.STAMP_BYTES)
        self._frames = bare.Frames()
        self._sent = 0  # with those that wait in `_unsent`
        self._unsent = bytearray()

    def turn(self) -> list[bytes]:
        """Wait for echoes."""
        connection = self._connection
        while True:
            left_s = self._send_due()
            readable, _, _ = select.select([connection], [connection] if self._unsent else [], [], left_s)
            if readable:
                return self._frames.of(connection.recv(bare.AT_ONCE_BYTES))

    def _send_due(self) -> float | None:
        """Send due messages. Returns seconds until the next one; None after the last."""
        schedule, now = self._schedule, time.perf_counter_ns()
        due = min(schedule.due(now), self._sent + openloop.AT_ONCE)
        if due > self._sent:
            numbers = range(self._sent, due)
            stamps = (schedule.at(number).to_bytes(openloop.STAMP_BYTES, "little") for number in numbers)
            self._unsent += bare.framed([stamp + self._padding for stamp in stamps])
            self._sent = due
        if self._unsent:
            with suppress(BlockingIOError):
                del self._unsent[: self._connection.send(self._unsent, socket.MSG_DONTWAIT)]
        return None if due == schedule.count else max(0, schedule.at(due) - now) / openloop.SECOND_NS


def find(module: str, name: str) -> System:
    """Find a system in a module: its `SYSTEM`, or one of its `SYSTEMS`."""
    found = import_module(module)
    systems = getattr(found, "SYSTEMS", None) or [found.SYSTEM]
    return next(system for system in systems if system.name == name)


def _started(plan: Plan) -> openloop.Schedule:
    """Report ready, and wait for the start. The collector ignores all objects that live now."""
    gc.collect()
    gc.freeze()
    _say(started=True)
    if not (start_ns := sys.stdin.readline()):
        sys.exit("the process that started this agent is gone")
    return plan.schedule(int(start_ns))


def _end_ns(plan: Plan, schedule: openloop.Schedule) -> int:
    return schedule.end_ns + int(plan.grace_s * openloop.SECOND_NS)


@contextmanager
def _until(moment_ns: int) -> Iterator[Callable[[Callable[P, T]], Callable[P, T]]]:
    """Raise Over in the block at a moment, and again, should a library have swallowed it.

    Gives what to wrap calls of libraries in: whatever they make of an interrupted wait, after that moment it is Over.
    """

    def over(number: int, frame: object) -> None:
        raise openloop.Over

    def ending(call: Callable[P, T]) -> Callable[P, T]:
        def called(*arguments: P.args, **options: P.kwargs) -> T:
            try:
                came = call(*arguments, **options)
            except Exception as error:
                if time.perf_counter_ns() >= moment_ns:
                    raise openloop.Over from error
                raise
            if time.perf_counter_ns() >= moment_ns:
                raise openloop.Over  # a library may lose what a handler raises: posix_ipc does
            return came

        return called

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, max(1e-3, (moment_ns - time.perf_counter_ns()) / openloop.SECOND_NS), 1.0)
    try:
        yield ending
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _sleep_until(moment_ns: int) -> None:
    if (left_ns := moment_ns - time.perf_counter_ns()) > 0:
        time.sleep(left_ns / openloop.SECOND_NS)


def _ask_for_exact_sleep() -> None:
    """Set the timer slack to 1 ns: by default, each sleep may end 50 us late, which every latency would include."""
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


def _say_ages(ages: openloop.Ages) -> None:
    _say(latency=histogram(ages.ages_ns).encode().decode(), missing=ages.missing, growth=ages.growth)


def _say(**what: object) -> None:
    print(json.dumps(what), flush=True)


ROLES = {"send": send, "receive": receive, "ping": ping}

if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
