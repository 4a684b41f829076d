"""All doors of one broker at once under hostile traffic: floods of connections, halves of requests and handshakes,
noise, clients that ask for much and read nothing. Others are served meanwhile, and afterwards every process has the
descriptors of before and little more memory. A second gateway speaks TLS, and an exporter is scraped.

The short test has a few rounds. `make soak` goes on for an hour, or for PENSTOCK_SOAK_S seconds.
"""

from __future__ import annotations

import os
import random
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import penstock
import pytest
from penstock.broker import ServeConfig
from penstock.exporter import ExporterConfig
from penstock.gateway.config import GatewayConfig
from penstock.storage.encoding import encode
from penstock.transport import codec
from penstock.transport import messages as m
from penstock.transport.framing import framed
from support.processes import Serving, until
from support.raw_client import RawClient

from .conftest import NEEDS, GatewayProcess

PEERS = 24
"""Connections of each door in a round."""

GROWTH = 96 << 20
"""Of one process, over all rounds: pools of the interpreter, of libzmq and of malloc."""

SERVED_S = 10.0
"""What another client waits at most, on a busy machine."""

SOAK_S = float(os.environ.get("PENSTOCK_SOAK_S", "3600"))
"""Read before a test runs, which sees no variables of penstock."""

WARM = 3
"""Rounds before descriptors and memory are noted."""

LARGE = 1 << 20

ZMTP = b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00"
READY = b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"


def zmtp(frames: list[bytes]) -> bytes:
    """A message as ZeroMQ frames it."""
    heads = [bytes([2 | (index < len(frames) - 1)]) + len(each).to_bytes(8, "big") for index, each in enumerate(frames)]
    return b"".join(head + each for head, each in zip(heads, frames, strict=True))


def greedy(topic: bytes) -> dict[str, bytes]:
    """By door: many requests for a large answer."""
    asked = [list(codec.frames(m.Fetch(number, topic, 0, 0, -1, LARGE * 4, 0))) for number in range(20)]
    greeting = ZMTP + b"NULL" + bytes(48) + READY
    http = b"GET /api/v1/queues/large/messages?max_messages=1 HTTP/1.1\r\nhost: localhost\r\n\r\n"
    return {
        "unix": b"".join(bytes(piece) for frames in asked for piece in framed(frames)),
        "tcp": greeting + b"".join(zmtp([bytes(frame) for frame in frames]) for frames in asked),
        "resp": b"XRANGE large - +\r\n" * 20,
        "http": http * 20,
        "metrics": b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n" * 20,
    }


HALVES = (
    b"",
    b"\xff",
    ZMTP[:7],
    ZMTP + b"NULL" + bytes(48),
    ZMTP + b"CURVE" + bytes(47),
    b"GET / HTTP/1.1\r\nhost: a",
    b"POST /api/v1/queues/t/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\nx",
    b"POST /api/v1/queues/t/messages HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n5\r\nx",
    b"*1000000\r\n$1\r\nx\r\n",
    b"*3\r\n$4\r\nXADD\r\n$100000000\r\nx",
    b"*1\r\n$4\r\nPING\r\n" * 100,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"\xff\xff\xff\xff" * 16,
)


ANY = "tcp://127.0.0.1:0"
OVER_TLS = " over TLS"


class Doors:
    """A broker with all of its doors, a gateway that speaks TLS, and clients of each door that behave."""

    def __init__(self, folder: Path, data: Path, certificate: tuple[str, str]) -> None:
        self._stack = ExitStack()
        gateway = GatewayConfig(url="", resp=(ANY,), http=(ANY,)).to_json()
        exporter = ExporterConfig(url="", metrics=(ANY,), data=str(data)).to_json()
        listen = (f"unix://{folder}/s", ANY)
        config = ServeConfig(data=str(data), listen=listen, gateway=gateway, exporter=exporter, board_rows=64)
        self.serving = self._stack.enter_context(Serving(config))
        ready = self.serving.ready
        self.urls = {"unix": ready["listen"][0], "tcp": ready["listen"][1]}
        self.urls |= {door: ready[door][0] for door in ("resp", "http", "metrics")}
        settings = {"tls_certificate": certificate[0], "tls_key": certificate[1]}
        secure = GatewayProcess(ready["listen"][0], "tls://127.0.0.1:0", http=("tls://127.0.0.1:0",), settings=settings)
        self.secure = secure
        self._stack.callback(self._stop)
        self.urls |= {door + OVER_TLS: secure.ready[door][0] for door in ("resp", "http")}
        self._tls = ssl.create_default_context(cafile=certificate[0])
        self.topic = self._prepare()
        self.longest_s = 0.0

    def _stop(self) -> None:
        assert self.secure.stop() == 0

    def _prepare(self) -> bytes:
        with RawClient(self.urls["unix"]) as client:
            topic = client.create_topic("large")
            client.produce(topic, bytes(encode([bytes(LARGE)])))
            client.create_topic("t")
        return topic

    def open(self, door: str) -> socket.socket:
        """A connection that may send requests."""
        peer = self.dial(door)
        return self.shake_hands(peer) if door.endswith(OVER_TLS) else peer

    def shake_hands(self, peer: socket.socket) -> socket.socket:
        return self._tls.wrap_socket(peer, server_hostname="localhost")

    def dial(self, door: str) -> socket.socket:
        """A connection, without the handshake of TLS."""
        scheme, _, place = self.urls[door].partition("://")
        if scheme == "unix":
            peer = socket.socket(socket.AF_UNIX)
            peer.settimeout(30)
            peer.connect(place)
            return peer
        host, _, port = place.rpartition(":")
        return socket.create_connection((host, int(port)), timeout=30)

    def ask(self) -> None:
        """As others do, at each door; notes how long the slowest waited."""
        for door in self.urls:
            began = time.monotonic()
            if door in ("unix", "tcp"):
                with penstock.connect(self.urls[door], timeout=SERVED_S * 3) as client:
                    client.topics()
            else:
                path = b"/metrics" if door == "metrics" else b"/health"
                question = b"GET %b HTTP/1.0\r\nhost: localhost\r\n\r\n" % path
                with self.open(door) as peer:
                    peer.sendall(b"PING\r\n" if door.startswith("resp") else question)
                    assert peer.recv(1000)
            self.longest_s = max(self.longest_s, time.monotonic() - began)

    def uses(self) -> dict[str, tuple[int, int]]:
        """Descriptors and memory of each process."""
        pids = {**self.serving.ready["pids"], "secure gateway": self.secure.ready["pids"]["gateway"]}
        return {role: (descriptors(pid), memory(pid)) for role, pid in pids.items()}

    def read_logs(self) -> None:
        """No other thread does, and a process waits where a pipe is full."""
        assert "Traceback" not in self.serving.errors() + self.secure.errors()

    def close(self) -> None:
        self._stack.close()


def memory(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) << 10


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def attack(doors: Doors, chosen: random.Random) -> list[socket.socket]:
    """One round. Returns connections that stay open."""
    asked = greedy(doors.topic)
    peers: list[socket.socket] = []
    for door in doors.urls:
        for number in range(PEERS):
            greed = asked[door.removesuffix(OVER_TLS)]
            noise = (*HALVES, chosen.randbytes(200), greed, greed)
            peer = doors.dial(door)
            peer.settimeout(1.0)
            with suppress(OSError):  # cut off, or not heard
                if door.endswith(OVER_TLS) and chosen.random() < 0.7:
                    peer = doors.shake_hands(peer)
                peer.sendall(noise[number % len(noise)])
            peers.append(peer)
    chosen.shuffle(peers)
    return peers


@pytest.fixture
def doors(folder: Path, tmp_path: Path, certificate: tuple[str, str]) -> Iterator[Doors]:
    for name in ("hiredis", "uvloop", "uvicorn", "starlette"):
        pytest.importorskip(name, reason=NEEDS)
    made = Doors(folder, tmp_path / "data", certificate)
    yield made
    made.close()


def survive(doors: Doors, chosen: random.Random, rounds: int, seconds: float) -> None:
    pids, begun = dict(doors.serving.ready["pids"]), time.monotonic()
    staying: list[socket.socket] = []
    number, before, minutes = 0, {}, 0
    while number < rounds or time.monotonic() - begun < seconds:
        if number == WARM:
            while staying:
                staying.pop().close()
            assert until(lambda: steady(doors), doors.serving)
            before = doors.uses()
        found = attack(doors, chosen)
        doors.ask()
        for peer in staying:
            peer.close()
        staying, leaving = found[::3], [peer for index, peer in enumerate(found) if index % 3]
        for peer in leaving:
            peer.close()
        number += 1
        doors.read_logs()
        if time.monotonic() - begun >= minutes * 60:
            print(f"minute {minutes}, round {number}: {told(doors.uses())}", flush=True)
            minutes += 1
    for peer in staying:
        peer.close()
    doors.ask()
    checked: dict[str, Any] = {}

    def is_as_before() -> bool:
        checked.update(doors.uses())
        return all(checked[role][0] <= before[role][0] for role in before)

    assert until(is_as_before, doors.serving, 150), (before, checked)
    print(f"{number} rounds; others waited {doors.longest_s:.2f} s at most; before {before}, after {checked}")
    assert all(checked[role][1] - before[role][1] < GROWTH for role in before), (before, checked)
    assert doors.serving.ready["pids"] == pids, "no process was started anew"
    assert doors.longest_s < SERVED_S


def told(uses: dict[str, tuple[int, int]]) -> str:
    """Descriptors and memory, for a person who watches an hour of it."""
    return ", ".join(f"{role} {files} files {size >> 20} MiB" for role, (files, size) in uses.items())


def steady(doors: Doors) -> bool:
    """Connections that were left are closed by the other side, too."""
    used = [each[0] for each in doors.uses().values()]
    doors.ask()
    return used == [each[0] for each in doors.uses().values()]


def test_hostile_traffic_at_all_doors_leaves_nothing_behind(doors: Doors, seed: int):
    survive(doors, random.Random(seed), WARM + 2, 0.0)


@pytest.mark.soak
@pytest.mark.timeout(5400)
def test_an_hour_of_hostile_traffic_at_all_doors_leaves_nothing_behind(doors: Doors, seed: int):
    survive(doors, random.Random(seed), 2 * WARM, SOAK_S)
