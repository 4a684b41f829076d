"""One open-loop run against a system: starts its agents, gives them a schedule, and merges their results.

Contract: bounded in time. A system that cannot keep up gives an outcome in which latency grows and messages are
missing; an agent that does not answer within its time is stopped and raises. Every run has its own stream, so that
leftovers of an earlier one delay nothing.
"""

from __future__ import annotations

import dataclasses
import json
import re
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from ..lab.children import child
from ..lab.harness import Lab
from ..lab.rows import Percentiles
from ..systems.system import System
from . import histograms
from .agents import Plan
from .openloop import SECOND_NS

if TYPE_CHECKING:
    from hdrh.histogram import HdrHistogram

START_S = 60.0
"""How long an agent may take to connect."""
PATIENCE_S = 20.0
"""How long an agent may take to say what came out, and to leave."""
LEAD_S = 0.1
"""Between telling the agents when to start and the start."""
GRACE_S = 2.0

_streams = count()


@dataclass(frozen=True)
class Load:
    """The rate, duration and size of messages to offer."""

    rate: int  # messages per second
    seconds: float
    size: int = 100
    warm_s: float = 0.5  # at the same rate, before what is counted


@dataclass(frozen=True)
class Outcome:
    """The result of one run."""

    load: Load
    latency: HdrHistogram
    lateness: HdrHistogram | None  # of the sender, which is part of the latency; None where sender and receiver are one
    missing: int  # not received when the run ended
    growth: float  # seconds of latency gained per second
    stream: str = ""

    @property
    def percentiles(self) -> Percentiles:
        return histograms.percentiles(self.latency)


class Runs:
    """Keeps the histograms of runs beside the results: a file for each kind of run, and one for its sender."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._logs: dict[str, histograms.Log] = {}

    def kept(self, about: str, outcome: Outcome) -> Percentiles:
        """Keep a run's histograms and return its latency. `about` names the kind of run."""
        self._log(about).add(outcome.latency, outcome.load.seconds)
        if outcome.lateness is not None:
            self._log(f"{about}, how late the sender was").add(outcome.lateness, outcome.load.seconds)
        return histograms.percentiles(outcome.latency)

    def _log(self, about: str) -> histograms.Log:
        if about not in self._logs:
            name = re.sub(r"[^a-z0-9]+", "-", about.lower()).strip("-")
            self._logs[about] = histograms.Log(self._lab.kept(f"{name}.hlog"), about)
        return self._logs[about]


def run(system: System, address: str, load: Load) -> Outcome:
    """Run one load between two agents, on a fresh stream."""
    stream = f"load-{next(_streams)}"
    system.create(address, stream)
    plan = _plan(type(system).__module__, system.name, address, stream, load)
    with _agent("receive", plan) as receiver, _agent("send", plan) as sender:
        receiver.hear(START_S)
        sender.hear(START_S)
        sender.tell("probe")
        _start(receiver, sender)
        offered, received = sender.result(plan), receiver.result(plan)
    lateness = histograms.decoded(offered["lateness"])
    return Outcome(load, _latency(received), lateness, received["missing"], received["growth"], stream)


def ping_pong(address: str, load: Load) -> Outcome:
    """Run one bare socket's ping-pong against the echo of systems/bare.py at `address`."""
    plan = _plan("perf.systems.bare", "", address, "", load)
    with _agent("ping", plan) as pinger:
        _start(pinger)
        received = pinger.result(plan)
    return Outcome(load, _latency(received), None, received["missing"], received["growth"])


class Agent:
    """A running agent, as its starter sees it."""

    def __init__(self, role: str, process: subprocess.Popen[str]) -> None:
        self.role = role
        self.process = process

    def hear(self, seconds: float) -> dict[str, Any]:
        """The agent's next line. Raises when the agent ends before or is silent too long."""
        assert self.process.stdout
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            raise TimeoutError(f"the agent that should {self.role} said nothing for {seconds:.0f} s")
        if not (line := self.process.stdout.readline()):
            raise RuntimeError(f"the agent that should {self.role} ended early; its reason is above")
        return json.loads(line)

    def tell(self, text: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def result(self, plan: Plan) -> dict[str, Any]:
        """Wait for the run's result and return it."""
        return self.hear(plan.count / plan.rate + plan.grace_s + PATIENCE_S)


@contextmanager
def _agent(role: str, plan: Plan) -> Iterator[Agent]:
    with child("perf.load.agents", role, json.dumps(dataclasses.asdict(plan))) as process:
        yield Agent(role, process)
        _dismiss(process)


def _dismiss(process: subprocess.Popen[str]) -> None:
    """Let an agent close its connections; kill it if that takes too long, as after an overload."""
    assert process.stdin
    with process.stdin:
        pass
    try:
        process.wait(PATIENCE_S / 4)
    except subprocess.TimeoutExpired:
        process.kill()


def _start(*agents: Agent) -> None:
    """Start all agents once values can go through all of them."""
    for agent in agents:
        agent.hear(START_S)
    start_ns = time.perf_counter_ns() + int(LEAD_S * SECOND_NS)
    for agent in agents:
        agent.tell(str(start_ns))


def _plan(module: str, system: str, address: str, stream: str, load: Load) -> Plan:
    warm = int(load.rate * load.warm_s)
    total = warm + max(1, int(load.rate * load.seconds))
    return Plan(module, system, address, stream, load.rate, total, warm, load.size, GRACE_S)


def _latency(received: dict[str, Any]) -> HdrHistogram:
    return histograms.decoded(received["latency"])
