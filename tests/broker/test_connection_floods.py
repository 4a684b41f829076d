"""Floods of connections at the broker's own doors: silent ones, halves of messages, and noise, again and again.

Another client is served meanwhile; afterwards the broker has the descriptors of before, and little more memory. The
short test has one round; `make soak` has many.
"""

from __future__ import annotations

import os
import random
import socket
from pathlib import Path

import pytest
from penstock.broker import ServeConfig
from penstock.transport import messages as m
from support.processes import Serving, until
from support.raw_client import RawClient

PEERS = 60
GROWTH = 64 << 20
"""What a broker may grow by over all rounds: pools of the interpreter and of libzmq."""

GREETING = b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL"
"""How a peer of ZeroMQ begins."""


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


def memory(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) << 10
    raise AssertionError("no process")


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def survive(tmp_path: Path, scheme: str, rounds: int, seed: int) -> None:
    address = "tcp://127.0.0.1:0" if scheme == "tcp" else f"{scheme}://{tmp_path}/b"
    config = ServeConfig(data=str(tmp_path / "data"), listen=(address,))
    with Serving(config) as serving, RawClient(serving.url) as good:
        pid = serving.ready["pids"]["broker"]
        topic = good.create_topic("t")
        flood(serving.url, seed)  # what is made once
        good.ask(m.Ping)
        before, resident = descriptors(pid), memory(pid)
        for number in range(rounds):
            flood(serving.url, seed + number)
            answer, _ = good.ask(lambda request: m.ListTopics(request, ["t"]))
            assert answer.topics[0].topic == topic
        assert until(lambda: descriptors(pid) <= before, serving), (before, descriptors(pid))
        assert memory(pid) - resident < GROWTH
        assert serving.ready["pids"]["broker"] == pid


@pytest.mark.parametrize("scheme", ["unix", "ipc", "tcp"])
def test_a_flood_of_connections_leaves_nothing_behind(tmp_path: Path, scheme: str, seed: int):
    survive(tmp_path, scheme, 2, seed)


@pytest.mark.soak
@pytest.mark.parametrize("scheme", ["unix", "ipc", "tcp"])
def test_many_floods_of_connections_leave_nothing_behind(tmp_path: Path, scheme: str, seed: int):
    survive(tmp_path, scheme, 500, seed)
