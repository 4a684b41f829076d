"""The latency of a client while Prometheus scrapes, far more often than it does.

A scraper asks the exporter again as soon as it has an answer. The exporter asks the broker once a second at most, so
the client should feel one question a second. Broker, keeper, exporter, scraper and client share the machine.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import penstock

from ..lab.harness import Lab
from ..lab.rows import Latency, Percentiles
from ..load import histograms
from ..systems.broker import serve

QUIET = "no scrapes"
TOPICS, PINGS = 200, 3_000

_SCRAPER = """
import socket, sys
print("begun", flush=True)
while True:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(sys.argv[1])
        peer.sendall(b"GET /metrics HTTP/1.1\\r\\nhost: localhost\\r\\nconnection: close\\r\\n\\r\\n")
        while peer.recv(1 << 20):
            pass
"""


def rows(lab: Lab) -> Iterator[Latency]:
    with lab.place() as place:
        door = place / "m"
        with serve(place, settings={"metrics": f"unix://{door}"}) as broker, penstock.connect(broker.url) as client:
            for number in range(TOPICS):
                client.create_topic(f"topic-{number}", commit="written")
            yield Latency(
                "ping, beside a scraper that never rests", f"{TOPICS} topics", partial(_beside, str(door), client),
                limits={QUIET: partial(_pings, client)}, ratio_goals={("p50", QUIET): 1.5}, durability="written",
            )  # fmt: skip


def _beside(door: str, client: penstock.Client) -> Percentiles:
    with _scraper(door):
        return _pings(client)


@contextmanager
def _scraper(door: str) -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", _SCRAPER, door], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            process.stdout.readline()
            yield
        finally:
            process.kill()


def _pings(client: penstock.Client) -> Percentiles:
    ages = [client.ping() * 1e9 for _ in range(PINGS)]
    return histograms.percentiles(histograms.histogram(np.array(ages, np.int64)))
