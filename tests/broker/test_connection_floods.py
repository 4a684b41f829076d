"""Floods of connections at the broker's own doors: silent ones, halves of messages and of handshakes, keys
that are none, and noise, again and again.

Another client is served meanwhile; afterwards the broker has the descriptors of before, and little more memory. The
short test has one round; `make soak` has many.
"""

from __future__ import annotations

import os
import random
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from penstock import Key
from penstock.broker import ServeConfig, access_file
from penstock.broker.rights import OPERATIONS, Grant
from penstock.transport import messages as m
from penstock.transport.zmq_connecting import ClientSocket
from penstock.transport.zmq_sockets import Context
from support.processes import Serving, until
from support.raw_client import RawClient

PEERS = 60
STRANGERS = 5
GROWTH = 64 << 20
"""What a broker may grow by over all rounds: pools of the interpreter and of libzmq."""

GREETING = b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL"
"""How a peer of ZeroMQ begins."""

CURVE = GREETING.replace(b"NULL", b"CURVE") + bytes(15) + b"\x00" + bytes(31)
HELLO = b"\x04\xc8\x05HELLO\x01\x00" + bytes(72) + b"k" * 32 + bytes(8) + b"b" * 80
"""The same for a peer with a key, and its first command, which opens with no key."""


def opened(url: str) -> socket.socket:
    scheme, _, place = url.partition("://")
    if scheme == "tcp":
        host, _, port = place.rpartition(":")
        return socket.create_connection((host, int(port)), timeout=30)
    peer = socket.socket(socket.AF_UNIX)
    peer.settimeout(30)
    peer.connect(place)
    return peer


def flood(url: str, seed: int) -> None:
    """Peers that connect, send what is none or half of a message, and leave without a word."""
    chosen = random.Random(seed)
    beginnings = (
        b"",
        GREETING[:7],
        GREETING,
        CURVE[:40],
        CURVE,
        CURVE + HELLO[:100],
        CURVE + HELLO,
        b"\x00" * 64,
        chosen.randbytes(300),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" * 9,
    )
    peers = []
    for number in range(PEERS):
        peer = opened(url)
        peers.append(peer)
        try:
            peer.sendall(beginnings[number % len(beginnings)])
        except OSError:
            continue  # it was cut off already
    for peer in peers:
        peer.close()


def knock(url: str, broker: Key) -> None:
    """Peers with keys that the broker does not know, which ask to be let in."""
    for _ in range(STRANGERS):
        with Context(key=Key.generate(broker=broker.public)) as context:
            stranger = context.client(url)
            assert until_refused(stranger)


def until_refused(stranger: ClientSocket) -> bool:
    deadline = time.monotonic() + 30
    while not stranger.refusal and time.monotonic() < deadline:
        stranger.poll(0.1)
    return stranger.refusal != ""


def memory(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) << 10
    raise AssertionError("no process")


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def guarded(tmp_path: Path, broker: Key, ann: Key) -> dict[str, str]:
    """Settings of a broker that ann alone may use."""
    broker.write(tmp_path / "key")
    access_file.add_key(str(tmp_path / "access"), "ann", ann.public)
    access_file.add_grant(str(tmp_path / "access"), "ann", Grant(False, frozenset(OPERATIONS), "*"))
    return {"access": str(tmp_path / "access"), "broker_key": str(tmp_path / "key")}


def survive(tmp_path: Path, scheme: str, rounds: int, seed: int) -> None:
    broker = Key.generate()
    ann = Key.generate(broker=broker.public)
    with_keys = scheme == "curve"
    address = "tcp://127.0.0.1:0" if scheme in ("tcp", "curve") else f"{scheme}://{tmp_path}/b"
    settings: dict[str, Any] = guarded(tmp_path, broker, ann) if with_keys else {}
    config = ServeConfig(data=str(tmp_path / "data"), listen=(address,), **settings)
    with Serving(config) as serving, RawClient(serving.url, ann if with_keys else None) as good:
        pid = serving.ready["pids"]["broker"]
        topic = good.create_topic("t")
        flood(serving.url, seed)  # what is made once
        good.ask(m.Ping)
        before, resident = descriptors(pid), memory(pid)
        for number in range(rounds):
            flood(serving.url, seed + number)
            if with_keys:
                knock(serving.url, broker)
            answer, _ = good.ask(lambda request: m.ListTopics(request, ["t"]))
            assert answer.topics[0].topic == topic
        assert until(lambda: descriptors(pid) <= before, serving), (before, descriptors(pid))
        assert memory(pid) - resident < GROWTH
        assert serving.ready["pids"]["broker"] == pid


@pytest.mark.parametrize("scheme", ["unix", "ipc", "tcp", "curve"])
def test_a_flood_of_connections_leaves_nothing_behind(tmp_path: Path, scheme: str, seed: int):
    survive(tmp_path, scheme, 2, seed)


@pytest.mark.soak
@pytest.mark.parametrize("scheme", ["unix", "ipc", "tcp", "curve"])
def test_many_floods_of_connections_leave_nothing_behind(tmp_path: Path, scheme: str, seed: int):
    survive(tmp_path, scheme, 500, seed)
