"""What the doors of a gateway refuse is counted, and `/metrics` of the exporter beside it has it."""

from __future__ import annotations

import os
import re
import signal
import socket
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest
from penstock.broker import ServeConfig, access_file
from penstock.broker.quotas import Quota
from penstock.exporter import ExporterConfig
from penstock.gateway.config import GatewayConfig
from penstock.gateway.connections import AllConnections, Connections
from penstock.gateway.holding import LEAST, HeldBytes
from penstock.gateway.refused import REASONS, RefusedCounts
from support.processes import Serving, until
from support.sources import ROOT

from .conftest import LIBRARIES, NEEDS

ANY = "tcp://127.0.0.1:0"
LARGE = 1 << 30


# -- the counts -------------------------------------------------------------------------------------------------


def test_one_counts_and_another_reads():
    page = os.memfd_create("page")
    os.ftruncate(page, 4096)
    gateway, exporter = RefusedCounts(page), RefusedCounts(page)
    os.close(page)
    for number, reason in enumerate(REASONS):
        for _ in range(number):
            gateway.add(reason)
    assert exporter.by_reason() == {reason: number for number, reason in enumerate(REASONS)}
    assert RefusedCounts().by_reason() == dict.fromkeys(REASONS, 0)


class Peer:
    """A connection that does as it is told."""

    late = False

    def overdue(self, now: float) -> bool:
        return self.late

    def held(self) -> int:
        return 2 * LEAST

    def shed(self) -> bool:
        return True

    def cut(self) -> None: ...

    drain = cut


def test_connections_that_find_no_place_and_slow_ones_count():
    refused = RefusedCounts()
    doors: Connections[Peer] = Connections(2, AllConnections(9, refused), b"", 1)
    peers = [Peer(), Peer()]
    for peer in peers:
        doors.accept(lambda peer=peer: peer)
        doors.opened(peer)
    counted = refused.by_reason()
    assert counted["connections"] == 1, "the second stranger took the place of the first"
    doors.accept(Peer)
    peers[0].late = True
    doors.look()
    assert {**counted, "connections": 2, "slow": 1} == refused.by_reason()


def test_what_finds_no_memory_counts():
    refused = RefusedCounts()
    held = HeldBytes(LEAST, refused)
    assert held.take(LEAST)
    assert refused.by_reason()["memory"] == 0
    assert not held.take(1)
    held.holds(Peer(), 2 * LEAST)
    assert refused.by_reason()["memory"] == 2


# -- processes ----------------------------------------------------------------------------------------------------


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    for name in LIBRARIES:
        pytest.importorskip(name, reason=NEEDS)
    path = str(tmp_path / "access")
    for name in ("ann", "bob"):
        access_file.add_password(path, name, "right")
    access_file.add_grant(path, "ann", access_file.Grant(False, frozenset(["see"]), "node"))
    access_file.set_quota(path, "bob", Quota(requests_s=1))
    config = ServeConfig(
        data=str(tmp_path / "data"), board_rows=64, restart_most_s=0.2,
        gateway=GatewayConfig(url="", resp=(ANY,), http=(ANY,), users=path, grants=True).to_json(),
        exporter=ExporterConfig(url="", metrics=(ANY,)).to_json(),
    )  # fmt: skip
    with Serving(config) as started:
        yield started


def port(serving: Serving, door: str) -> int:
    return int(serving.ready[door][0].rpartition(":")[2])


def status(serving: Serving, user: str = "", password: str = "", *, announced: int = 0) -> int:
    """Of an answer of the HTTP door to a question, or to a message of which so many bytes are only announced."""
    headers = {"content-type": "application/json", "content-length": str(announced)} if announced else {}
    if user:
        headers["authorization"] = "Basic " + b64encode(f"{user}:{password}".encode()).decode()
    with closing(HTTPConnection("127.0.0.1", port(serving, "http"), timeout=60)) as peer:
        peer.putrequest(*(("POST", "/api/v1/queues/t/messages") if announced else ("GET", "/stats")))
        for name, value in headers.items():
            peer.putheader(name, value)
        peer.endheaders()
        return peer.getresponse().status


def answers(serving: Serving, *commands: str) -> list[str]:
    """Of the RESP door."""
    with socket.create_connection(("127.0.0.1", port(serving, "resp")), 60) as peer, peer.makefile("rb") as lines:
        found = []
        for command in commands:
            peer.sendall(command.encode() + b"\r\n")
            found.append(lines.readline().decode().split()[0])
        return found


def counted(serving: Serving) -> dict[str, int]:
    """As Prometheus sees it; an answer is a second old at most."""
    with closing(HTTPConnection("127.0.0.1", port(serving, "metrics"), timeout=60)) as peer:
        peer.request("GET", "/metrics")
        text = peer.getresponse().read().decode()
    found = re.findall(r'^penstock_gateway_refused_total\{reason="(\w+)"\} (\d+)$', text, re.MULTILINE)
    return {reason: int(count) for reason, count in found if count != "0"}


def test_refusals_of_both_doors_are_metrics_also_after_a_restart_of_the_gateway(serving: Serving):
    assert status(serving) == 401, "a browser begins so, and nothing was shown"
    assert status(serving, "ann", "wrong") == 401
    assert answers(serving, "AUTH ann wrong", "AUTH bob wrong", "XLEN t") == ["-WRONGPASS", "-WRONGPASS", "-NOAUTH"]
    assert status(serving, "ann", "right") == 200
    assert answers(serving, "AUTH ann right", "XLEN t") == ["+OK", "-NOPERM"]
    assert status(serving, "ann", "right", announced=LARGE) == 413
    assert answers(serving, "*1\r\nx") == ["-ERR"]
    wanted = {"credentials": 3, "grants": 1, "size": 1, "protocol": 1}
    assert until(lambda: counted(serving) == wanted, serving), counted(serving)
    before = serving.ready
    os.kill(serving.pid("gateway"), signal.SIGKILL)
    serving.wait_ready(other_than=before)
    assert answers(serving, "AUTH bob wrong") == ["-WRONGPASS"]
    wanted["credentials"] += 1
    assert until(lambda: counted(serving) == wanted, serving), "it goes on where the one before was"


def test_a_user_over_its_quota_counts(serving: Serving):
    refused = 1
    while status(serving, "bob", "right") != 429:
        pass
    refused += answers(serving, "AUTH bob right", *["PING"] * 20).count("-TRYAGAIN")
    assert refused > 1
    assert until(lambda: counted(serving).get("quota") == refused, serving), (refused, counted(serving))


def test_the_page_says_what_each_reason_is():
    page = (ROOT / "docs" / "seeing.md").read_text()
    table = page.partition("### What the gateway refuses")[2]
    assert re.findall(r"^\| `(\w+)` \| .*\|$", table, re.MULTILINE)[: len(REASONS)] == list(REASONS)
