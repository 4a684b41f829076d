"""The processes of an open loop: `python -m perf.agents <role> <plan>`, started and bounded by loads.py.

Idea: sender and receiver are processes of their own, so that neither takes the interpreter from the other, and the
server shares the machine with what it would in real life. An agent connects, says that it is ready, is told when the
schedule starts, runs it, and says what came out as one line of JSON.

Contract: an agent ends by itself: an alarm stops its loop at the end of the run, also inside a call of a client
library, and it waits for nothing else but its standard input, which closes with whoever started it.
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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module

from . import openloop
from .histograms import histogram
from .systems import bare
from .systems.system import System

_PR_SET_TIMERSLACK = 29


@dataclass(frozen=True)
class Plan:
    """What agents are told before they start."""

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
    """Offer the schedule; tell how late each wake-up was."""
    with find(plan.module, plan.system).sender(plan.address, plan.stream) as sender:
        schedule = _started(plan)
        with _until(schedule.end_ns + int(plan.grace_s * openloop.SECOND_NS)):
            offered = openloop.offer(sender, schedule, plan.size, time.perf_counter_ns, _sleep_until)
        _say(sent=offered.sent, lateness=histogram(offered.lateness_ns).encode().decode())
        sys.stdin.read()


def receive(plan: Plan) -> None:
    """Take what comes; tell how old it was."""
    with find(plan.module, plan.system).receiver(plan.address, plan.stream) as receiver:
        schedule = _started(plan)
        with _until(schedule.end_ns + int(plan.grace_s * openloop.SECOND_NS)):
            got = openloop.collect(receiver, plan.count, time.perf_counter_ns)
        _say_ages(openloop.ages(schedule, got, time.perf_counter_ns()))
        sys.stdin.read()


def ping(plan: Plan) -> None:
    """Both at once, over one bare socket to an echo: out when due, back as soon as it is there."""
    with bare.connected(plan.address) as connection:
        schedule = _started(plan)
        pinger = Pinger(connection, schedule, plan.size)
        with _until(schedule.end_ns + int(plan.grace_s * openloop.SECOND_NS)):
            got = openloop.collect(pinger.turn, plan.count, time.perf_counter_ns)
        _say_ages(openloop.ages(schedule, got, time.perf_counter_ns()))


class Pinger:
    """Sends what is due while it waits for what comes back."""

    def __init__(self, connection: socket.socket, schedule: openloop.Schedule, size: int) -> None:
        self._connection = connection
        self._schedule = schedule
        self._padding = bytes(size - openloop.STAMP_BYTES)
        self._frames = bare.Frames()
        self._sent = 0

    def turn(self) -> list[bytes]:
        """Wait until something came back."""
        while True:
            left_s = self._send_due()
            if select.select([self._connection], [], [], left_s)[0]:
                return self._frames.of(self._connection.recv(bare.AT_ONCE_BYTES))

    def _send_due(self) -> float | None:
        """Seconds until the next one is due; None after the last."""
        schedule, now = self._schedule, time.perf_counter_ns()
        if (due := schedule.due(now)) > self._sent:
            numbers = range(self._sent, due)
            stamps = (schedule.at(number).to_bytes(openloop.STAMP_BYTES, "little") for number in numbers)
            self._connection.sendall(bare.framed([stamp + self._padding for stamp in stamps]))
            self._sent = due
        return None if due == schedule.count else max(0, schedule.at(due) - now) / openloop.SECOND_NS


def find(module: str, name: str) -> System:
    """A system by where it stands: `SYSTEM`, or one of `SYSTEMS`."""
    found = import_module(module)
    systems = getattr(found, "SYSTEMS", None) or [found.SYSTEM]
    return next(system for system in systems if system.name == name)


def _started(plan: Plan) -> openloop.Schedule:
    """Say that everything is connected, be told when to start. What lives now is not looked at by the collector."""
    gc.collect()
    gc.freeze()
    _say(ready=True)
    return plan.schedule(int(sys.stdin.readline()))


@contextmanager
def _until(moment_ns: int) -> Iterator[None]:
    """Raise Over in the block at a moment, whatever it waits for; and again, should a library have swallowed it."""

    def over(number: int, frame: object) -> None:
        raise openloop.Over

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, max(1e-3, (moment_ns - time.perf_counter_ns()) / openloop.SECOND_NS), 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _sleep_until(moment_ns: int) -> None:
    if (left_ns := moment_ns - time.perf_counter_ns()) > 0:
        time.sleep(left_ns / openloop.SECOND_NS)


def _ask_for_exact_sleep() -> None:
    """By default the kernel may be 50 us late with every sleep, to save power; that would be in every latency."""
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


def _say_ages(ages: openloop.Ages) -> None:
    _say(latency=histogram(ages.ages_ns).encode().decode(), missing=ages.missing, growth=ages.growth)


def _say(**what: object) -> None:
    print(json.dumps(what), flush=True)


ROLES = {"send": send, "receive": receive, "ping": ping}

if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
