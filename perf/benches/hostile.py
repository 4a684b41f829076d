"""The latency of one client while another fires requests at the broker, for every type of request.

A hostile connection over unix:// sends one type of request as fast as the broker takes it: with the largest allowed
arguments, then with common ones, then the largest without reading answers. Meanwhile another client does one round
after the other: a ping, and one record put in and fetched. A sample is of the way with the highest median. Three
processes share two cores, so the broker causes only part of the delay.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from penstock.storage.batch import encode
from penstock.transport import codec
from penstock.transport import messages as m
from penstock.transport.framing import framed
from penstock.transport.sockets import Sockets

from ..lab.harness import Lab
from ..lab.rows import Latency, Percentiles
from ..load import histograms, requests
from ..load.hostile import Hostile, hostile, write
from ..load.requests import KINDS, ONE, WHOLE, Subjects
from ..systems.broker import Served, serve

PARTITIONS = 300
RECORDS = 3000
SLICE_S = 0.06
"""Of a sample, for each of the ways."""
CALM_S, CALM_MOST = 0.05, 20
"""How long the broker is watched for being idle, and how often at most."""
SHOTS_BYTES = 64 << 10
"""At least so much is handed to the kernel at once."""
ANSWER_S = 30.0
QUIET = "quiet"
GOALS = {("p50", QUIET): 10.0}
MOST_US = 50_000.0
GREETING = m.Hello(1, 1, 1, "hostile")


def rows(lab: Lab) -> Iterator[Latency]:
    for kind in KINDS if lab.full else ():  # a broker of its own for each: some ten minutes
        with lab.place() as place, serve(place) as broker, Victim(broker.url) as victim:
            ways = _ways(place, victim.prepare(), kind)
            with hostile(broker.url.removeprefix("unix://")) as other:
                yield Latency(
                    "ping, produce and fetch, beside a hostile connection",
                    kind.__name__,
                    partial(_worst, broker, other, ways, victim.round),
                    limits={QUIET: partial(_timed, victim.round)},
                    goals={"p99": MOST_US},
                    ratio_goals=GOALS,
                    durability="written",
                    full=True,
                    note=f"{os.getloadavg()[0]:.1f} processes ran on this machine when it began",
                )


Way = tuple[Path, bool]


def _ways(place: Path, subjects: Subjects, kind: type) -> list[Way]:
    """The files to fire, and whether to read answers."""
    most, usual = place / f"{kind.__name__}-most", place / f"{kind.__name__}-usual"
    for path, table, batch in ((most, requests.most, WHOLE), (usual, requests.usual, ONE)):
        payload = batch if kind is m.Produce else b""
        again = b"".join(_bytes(request, payload) for request in table(subjects)[kind])
        write(path, _bytes(GREETING), again * (1 + SHOTS_BYTES // len(again)))
    return [(most, True), (usual, True), (most, False)]


def _bytes(request: m.Request, payload: bytes = b"") -> bytes:
    return b"".join(framed(codec.frames(request, payload)))


def _worst(broker: Served, other: Hostile, ways: list[Way], act: Callable[[], None]) -> Percentiles:
    found: list[Percentiles] = []
    for shots, reads in ways:
        with other.firing(shots, reads=reads):
            found.append(_timed(act))
        _calm(broker)
    return max(found, key=lambda each: each.p50)


def _calm(broker: Served) -> None:
    """Wait until the broker has finished its work."""
    for _ in range(CALM_MOST):
        before = broker.cpu_s()
        time.sleep(CALM_S)
        if broker.cpu_s() - before < CALM_S / 4:
            return


def _timed(act: Callable[[], None]) -> Percentiles:
    """Repeat an action for a while and time each."""
    ages: list[int] = []
    begun = last = time.perf_counter_ns()
    while last - begun < SLICE_S * 1e9:
        act()
        ages.append((now := time.perf_counter_ns()) - last)
        last = now
    return histograms.percentiles(histograms.histogram(np.array(ages)))


class Victim:
    """A client with one connection that sends one request at a time."""

    def __init__(self, url: str) -> None:
        self._sockets = Sockets()
        self._socket = self._sockets.client(url)
        self._request = 0
        self._own = b""

    def __enter__(self) -> Victim:
        return self

    def __exit__(self, *_: object) -> None:
        self._sockets.close()

    def ask(self, type_: Callable[..., m.Request], *fields: object, payload: bytes = b"") -> m.Answer:
        """Ask, and wait for the answer."""
        self._request += 1
        self._socket.send(codec.frames(type_(self._request, *fields), payload))
        while True:
            while (received := self._socket.receive()) is None:
                if not self._socket.poll(ANSWER_S):
                    raise TimeoutError(f"the broker has not answered {type_.__name__} within {ANSWER_S:g} s")
            answer, _ = codec.decode_answer(received)
            if getattr(answer, "request", 0) != self._request:
                continue
            if isinstance(answer, m.Failure):
                raise RuntimeError(f"{type_.__name__}: {answer.message}")
            return answer

    def round(self) -> None:
        """Time the shortest round trip, and one record put in and fetched."""
        self.ask(m.Ping)
        produced = self.ask(m.Produce, self._own, 0, payload=ONE)
        assert isinstance(produced, m.Produced)
        self.ask(m.Fetch, self._own, 0, produced.offset, -1, 1 << 20, 0)

    def prepare(self) -> Subjects:
        """Make the client's topic and the requests to be fired."""
        self.ask(m.Hello, 1, 1, "victim")
        self._own = self._topic("own", 1)
        wide, narrow, work = self._topic("wide", PARTITIONS), self._topic("narrow", 1), self._topic("work", 1)
        for topic in (narrow, work):
            self.ask(m.Produce, topic, 0, payload=bytes(encode([b"x" * 100] * RECORDS)))
        for topic in (wide, work):
            self.ask(m.SetQueue, topic, "q", {"max_attempts": 1, "backoff_s": 0})
        self.ask(m.Commit, 0, wide, "c", [m.Position(number, 0, 0) for number in range(PARTITIONS)])
        self.ask(m.SettleTasks, work, "q", [m.Settle(0, self._lease(work, 1000), 2, [])])  # dead
        joined = self.ask(m.Join, wide, "", "", "control", -1, [], 300_000, 0, 0)
        assert isinstance(joined, m.Joined)
        return Subjects(wide, narrow, work, PARTITIONS, joined.session, self._lease(work, 500))

    def _topic(self, name: str, partitions: int) -> bytes:
        made = self.ask(m.CreateTopic, name, partitions, {"commit": "written", "retention_bytes": 64 << 20})
        assert isinstance(made, m.Topics)
        return made.topics[0].topic

    def _lease(self, topic: bytes, tasks: int) -> int:
        lease = self.ask(m.Lease, topic, "q", "w", tasks)
        assert isinstance(lease, m.Leased)
        return lease.token
