"""Peers that are slow or excessive, many at a time: they are refused or cut off, and another client is served.

The short tests have few of them and look at answers; the long ones (`make soak`) wait for every time to run out, and
see how long the other client waits.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import pytest
from penstock.gateway.http import connection as http_bounds
from penstock.gateway.resp import connection as resp_bounds

from .conftest import GatewayProcess

LARGEST = b"*%d\r\n" % resp_bounds.ARGUMENTS_MAX
SLACK_S = 5.0
"""Beside a bound: the door looks once a second, and the machine is busy."""

PACE = threading.Event()
"""Never set: peers that are slow on purpose wait for it."""

PROBE_S = 1.0
"""What another client may wait for an answer, on a busy machine."""


def memory(gateway: GatewayProcess) -> int:
    """Of the process, in bytes."""
    with open(f"/proc/{gateway.process.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) << 10


def place(gateway: GatewayProcess, door: str) -> tuple[str, int]:
    return "127.0.0.1", gateway.port if door == "resp" else urlsplit(gateway.http_url).port or 0


class Probe:
    """Another client: it asks again and again, and notes how long the longest answer took."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self.longest, self.answers = 0.0, 0
        self._peer = socket.create_connection(place(gateway, "resp"), timeout=30)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> Probe:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._peer.close()

    def _ask(self) -> None:
        while not self._over.is_set():
            began = time.monotonic()
            self._peer.sendall(b"PING\r\n")
            if self._peer.recv(100) != b"+PONG\r\n":
                return
            self.longest, self.answers = max(self.longest, time.monotonic() - began), self.answers + 1


@pytest.fixture
def peers(gateway: GatewayProcess) -> Iterator[list[socket.socket]]:
    """Open sockets, which the test fills."""
    found: list[socket.socket] = []
    yield found
    for each in found:
        each.close()


def rest(peer: socket.socket) -> bytes:
    """Everything until the gateway closes."""
    found = b""
    with suppress(ConnectionError):
        while data := peer.recv(1 << 16):
            found += data
    return found


REFUSED = {
    "length": ("resp", b"*1\r\n$2147483648\r\n", b"-ERR Protocol error: invalid bulk length"),
    "array": ("resp", b"*2147483648\r\n", b"-ERR Protocol error: invalid multibulk length"),
    "inline": ("resp", b"x" * 20_000, b"-ERR Protocol error: too big inline request"),
    "http": ("resp", b"POST / HTTP/1.1\r\nHost: a\r\n\r\n", b"-ERR Protocol error: this port speaks RESP"),
    "head": ("http", b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 12_000, b"HTTP/1.1 431 "),
    "resp": ("http", b"*1\r\n$4\r\nPING\r\n", b"HTTP/1.1 400 "),
    "chunk": ("http", b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nx\r\n", b"HTTP/1.1 4"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_become_a_request_is_refused_with_a_reason(gateway, peers, resp, kind):
    door, data, says = REFUSED[kind]
    peers += [socket.create_connection(place(gateway, door), timeout=60) for _ in range(30)]
    for peer in peers:
        peer.sendall(data)
    assert resp.ping()
    for peer in peers:
        peer.shutdown(socket.SHUT_WR)
        assert rest(peer).startswith(says)


def test_many_large_arrays_are_answered_beside_others(gateway, peers, resp):
    peers += [socket.create_connection(place(gateway, "resp"), timeout=120) for _ in range(30)]
    array = LARGEST + b"$4\r\nECHO\r\n$6\r\n*99999\r\n" + b"$1\r\na\r\n" * (resp_bounds.ARGUMENTS_MAX - 2)
    for peer in peers:
        peer.sendall(array)
        assert resp.ping()
    for peer in peers:
        assert peer.recv(1000) == b"-ERR wrong number of arguments for 'echo' command\r\n"


# -- soak ------------------------------------------------------------------------------------------------------


@pytest.mark.soak
def test_floods_of_arrays_hold_up_no_other_client(gateway, peers):
    before = memory(gateway)
    peers += [socket.create_connection(place(gateway, "resp"), timeout=300) for _ in range(100)]
    array = LARGEST + b"$6\r\n*99999\r\n" + b"$1\r\na\r\n" * (resp_bounds.ARGUMENTS_MAX - 1)
    senders = [threading.Thread(target=peer.sendall, args=(array * 10,)) for peer in peers]
    with Probe(gateway) as probe:
        for sender in senders:
            sender.start()
        for peer in peers:
            answers = b""
            while answers.count(b"\r\n") < 10:
                answers += peer.recv(1 << 16)
        for sender in senders:
            sender.join()
    print(f"others waited {probe.longest:.3f} s at most, of {probe.answers} answers")
    assert probe.answers > 100
    assert probe.longest < PROBE_S
    assert memory(gateway) - before < 512 << 20


SLOW = {
    "arrays": ("resp", LARGEST, b"$1\r\na\r\n", resp_bounds.COMMAND_S),
    "inline": ("resp", b"PI", b"N", resp_bounds.COMMAND_S),
    "value": ("resp", b"*2\r\n$4\r\nECHO\r\n$1000000\r\n", b"x", resp_bounds.COMMAND_S),
    "head": ("http", b"GET / HTTP/1.1\r\n", b"a: b\r\n", http_bounds.HEAD_S),
    "body": (
        "http",
        b"POST /api/v1/queues/q/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\n"
        b"content-length: 100000\r\n\r\n",
        b"x",
        http_bounds.BODY_S,
    ),
}


@pytest.mark.soak
@pytest.mark.parametrize("kind", SLOW)
def test_slow_peers_are_cut_off_in_time_and_cost_little(gateway, peers, kind):
    door, begin, piece, bound = SLOW[kind]
    before, opened = memory(gateway), time.monotonic()
    peers += [socket.create_connection(place(gateway, door), timeout=10) for _ in range(500)]
    open_ones = set(peers)
    for peer in peers:
        peer.sendall(begin)
    with Probe(gateway) as probe:
        while open_ones and time.monotonic() - opened < bound + 2 * SLACK_S:
            for peer in list(open_ones):
                try:
                    peer.sendall(piece)
                except OSError:
                    open_ones.discard(peer)
            PACE.wait(1)  # a piece a second
    assert not open_ones
    assert time.monotonic() - opened > bound - SLACK_S
    assert probe.longest < PROBE_S
    assert memory(gateway) - before < 64 << 20


@pytest.mark.soak
@pytest.mark.parametrize("door", ["resp", "http"])
def test_idle_connections_are_cheap_up_to_the_limit(gateway, peers, door):
    """7,000 idle connections: more need more descriptors than a machine may give the test itself."""
    wanted = 7_000 if door == "resp" else 4_900
    before = memory(gateway)
    while len(peers) < wanted:
        peers.append(socket.create_connection(place(gateway, door), timeout=30))
    with Probe(gateway) as probe:
        PACE.wait(1)  # for the probe to ask a few thousand times
    assert probe.longest < PROBE_S
    each = (memory(gateway) - before) / wanted
    print(f"{door}: {each:.0f} bytes of each of {wanted} idle connections")
    assert each < 16 << 10
