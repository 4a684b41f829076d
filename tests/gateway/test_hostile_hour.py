"""All doors of one broker at once under hostile traffic: floods of connections, halves of requests and handshakes,
noise, clients that ask for much and read nothing. Others are served meanwhile, and afterwards every process has the
descriptors of before and little more memory. A second gateway speaks TLS, and an exporter is scraped. Beside them a
cluster of three nodes with a key meets the same where its leader hears the others, and peers with that key that say
what no node says.

The short test has a few rounds. `make soak` goes on for an hour, or for PENSTOCK_SOAK_S seconds.
"""

from __future__ import annotations

import os
import random
import socket
import ssl
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import penstock
import pytest
from penstock.broker import ServeConfig
from penstock.broker.peers.messages import PeerHello, frames_of
from penstock.exporter import ExporterConfig
from penstock.gateway.config import GatewayConfig
from penstock.storage.encoding import encode
from penstock.transport import codec
from penstock.transport import messages as m
from penstock.transport.framing import framed
from penstock.transport.keys import Key
from penstock.transport.zmq_connecting import ClientSocket
from penstock.transport.zmq_sockets import Context
from support.cluster import ClusterProcesses
from support.ports import port_pairs
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
CURVE = ZMTP + b"CURVE" + bytes(47)
CURVE_HELLO = b"\x04\xc8\x05HELLO\x01\x00" + bytes(72) + b"k" * 120
"""A handshake that costs the other side its sums, and fails."""


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
        "peers": CURVE + CURVE_HELLO,
        "data of peers": CURVE + CURVE_HELLO,
    }


HALVES = (
    b"",
    b"\xff",
    ZMTP[:7],
    ZMTP + b"NULL" + bytes(48),
    CURVE,
    CURVE + CURVE_HELLO[:100],
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


class Nodes:
    """Three nodes with a key, a producer of theirs, and peers that have the key and are no nodes."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        key = Key.generate()
        key.write(folder / "broker.key")
        peers = {node: f"tcp://127.0.0.1:{port}" for node, port in enumerate(port_pairs(3), 1)}
        cluster = ClusterProcesses(folder, peers=peers, broker_key=str(folder / "broker.key"))
        self.nodes = stack.enter_context(cluster).nodes
        host, _, port = peers[cluster.leader()].rpartition(":")
        self.urls = {"peers": f"{host}:{port}", "data of peers": f"{host}:{int(port) + 1}"}
        client = stack.enter_context(penstock.connect(cluster.url, timeout=SERVED_S * 3))
        client.create_topic("t", partitions=1)
        self.producer = stack.enter_context(client.producer("t"))
        self._keys = [Key(key.secret, broker=key.public), Key.generate(broker=key.public)]

    def intrude(self, chosen: random.Random) -> None:
        """Say what no node says, with the nodes' key and with another."""
        hello = PeerHello("shard", 2, 1, chosen.randbytes(16), b"", chosen.randrange(1 << 64), 1, 1)
        told = [
            [chosen.randbytes(200)], [b""] * 50, [bytes(LARGE)], frames_of(hello), [*frames_of(hello), b""],
            [bytes(frames_of(hello)[0])[:-1]],
        ]  # fmt: skip
        for key in self._keys:
            with Context(key=key) as context:
                for url in self.urls.values():
                    tell(context.client(url), chosen.choice(told))


def tell(peer: ClientSocket, frames: list[Any]) -> None:
    """Send a message once the peer is let in, until it is cut off for it; or leave."""
    deadline = time.monotonic() + SERVED_S
    while not (peer.connected or peer.refusal) and time.monotonic() < deadline:
        peer.poll(0.1)
    peer.send(frames)
    while peer.connected and peer.connections == 1 and time.monotonic() < deadline:
        peer.poll(0.1)


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
        self.nodes = Nodes(Path(tempfile.mkdtemp(dir=folder)), self._stack)
        self._asked = list(self.urls)
        self.urls |= self.nodes.urls
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
        for door in (*self._asked, "cluster"):
            began = time.monotonic()
            if door == "cluster":
                self.nodes.producer.send(b"one more")
            elif door in ("unix", "tcp"):
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
        return {role: (descriptors(pid), memory(pid)) for role, pid in self.pids().items()}

    def pids(self) -> dict[str, int]:
        """Of all processes, as they were said last."""
        found = {**self.serving.ready["pids"], "secure gateway": self.secure.ready["pids"]["gateway"]}
        for number, node in self.nodes.nodes.items():
            found |= {f"{role} of node {number}": pid for role, pid in node.ready["pids"].items()}
        return found

    def read_logs(self) -> None:
        """No other thread does, and a process waits where a pipe is full."""
        said = [each.errors() for each in (self.serving, self.secure, *self.nodes.nodes.values())]
        assert "Traceback" not in "".join(said)
        for each in (self.serving, *self.nodes.nodes.values()):
            each.watch(0.0)

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
    doors.nodes.intrude(chosen)
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
    pids, begun = doors.pids(), time.monotonic()
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
    assert doors.pids() == pids, "no process was started anew"
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
