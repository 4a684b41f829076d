"""The HTTP door in its process: killed, restarted, drained; its broker killed under it; clients that leave."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from http.client import HTTPConnection
from pathlib import Path

import httpx
import penstock
import pytest
from penstock.broker import ServeConfig
from penstock.gateway.config import GatewayConfig
from support.processes import Serving

from ..conftest import LIBRARIES, NEEDS, GatewayProcess

PLACE = ("tcp://127.0.0.1:0",)
PATH = "/api/v1/queues/t/messages"


@pytest.fixture(scope="module", autouse=True)
def libraries():
    for name in LIBRARIES:
        pytest.importorskip(name, reason=NEEDS)


@pytest.fixture
def own(tmp_path_factory, folder):
    """A broker of this test."""
    data = tmp_path_factory.mktemp("data")
    with Serving(ServeConfig(data=str(data), listen=(f"unix://{folder}/ownhttp",), board_rows=64)) as serving:
        yield serving


def client_of(gateway: GatewayProcess) -> httpx.Client:
    return httpx.Client(base_url=gateway.http_url, timeout=60, trust_env=False)


def acknowledged(url: str, told: dict[int, bytes]) -> None:
    """Send numbered messages until the gateway is gone; note which were acknowledged, by offset."""
    try:
        with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
            for number in range(1_000_000):
                answer = client.post(PATH, content=b"%d" % number, headers={"content-type": "application/octet-stream"})
                assert answer.status_code == 201, answer.text
                told[answer.json()["runs"][0]["offset"]] = b"%d" % number
    except httpx.HTTPError:
        pass  # killed


def test_nothing_acknowledged_is_lost_when_the_gateway_is_killed(own):
    told: dict[int, bytes] = {}
    for _ in range(3):
        gateway, before = GatewayProcess(own.url, http=PLACE), len(told)
        writers = [threading.Thread(target=acknowledged, args=(gateway.http_url, told)) for _ in range(4)]
        for writer in writers:
            writer.start()
        while len(told) < before + 50:
            writers[0].join(0.01)
        gateway.kill()
        for writer in writers:
            writer.join(30)
        gateway.stop()
    with penstock.connect(own.url) as client:
        stored = {record.offset: record.value for record in client.read("t", 0, 0, max_records=1_000_000)}
    assert len(told) >= 150
    assert {offset: stored.get(offset) for offset in told} == told


def test_the_broker_may_be_killed_under_it(own):
    gateway = GatewayProcess(own.url, http=PLACE)
    try:
        with client_of(gateway) as client:
            assert client.post(PATH, json={"value": "1"}).json()["runs"][0]["offset"] == 0
            own.kill_broker()
            assert client.post(PATH, json={"value": "2"}).json()["runs"][0]["offset"] == 1
            assert client.get("/health").status_code == 200
    finally:
        assert gateway.stop() == 0


def test_it_is_not_ready_without_its_broker_but_alive(own):
    gateway = GatewayProcess(own.url, http=PLACE)
    try:
        with client_of(gateway) as client:
            os.kill(own.pid("broker"), signal.SIGSTOP)
            found = client.get("/health")
            assert (found.status_code, found.json()["ready"], len(found.json()["reasons"])) == (503, False, 1)
            assert client.get("/health/live").status_code == 200
            os.kill(own.pid("broker"), signal.SIGCONT)
            assert client.get("/health").status_code == 200
    finally:
        os.kill(own.pid("broker"), signal.SIGCONT)
        assert gateway.stop() == 0


def alive(connection: socket.socket) -> bool:
    """Ask over a connection that is kept. Reads the answer to its end."""
    asking = HTTPConnection("a")
    asking.sock = connection
    asking.request("GET", "/health/live")
    answer = asking.getresponse()
    answer.read()
    return answer.status == 200


def test_sigterm_answers_what_waits_and_removes_the_socket(own, folder):
    path = Path(folder, "hdrained")
    gateway = GatewayProcess(own.url, http=(f"unix://{path}",))
    with penstock.connect(own.url) as client:
        client.create_topic("t")
    with socket.socket(socket.AF_UNIX) as idle, socket.socket(socket.AF_UNIX) as waiting:
        idle.connect(str(path))
        waiting.connect(str(path))
        for each in (idle, waiting):  # the gateway listens to both from here on
            assert alive(each)
        waiting.sendall(f"GET {PATH}?timeout_ms=60000 HTTP/1.1\r\nhost: a\r\n\r\n".encode())
        assert alive(idle)  # the one before has arrived
        gateway.process.send_signal(signal.SIGTERM)
        answer = b""
        while data := waiting.recv(1000):
            answer += data
    head, _, body = answer.partition(b"\r\n\r\n")
    assert (head.split()[1], json.loads(body)) == (b"200", {"messages": [], "next": {"0": 0}})
    assert b"connection: close" in head
    assert gateway.stop() == 0
    assert not path.exists()


def test_clients_that_leave_while_they_wait_are_forgotten(own):
    gateway = GatewayProcess(own.url, http=PLACE)
    try:
        with penstock.connect(own.url) as client:
            client.create_topic("t")
        place = ("127.0.0.1", int(gateway.http_url.rpartition(":")[2]))
        for _ in range(20):
            with socket.create_connection(place) as peer:
                peer.sendall(f"GET {PATH}?timeout_ms=60000 HTTP/1.1\r\nhost: a\r\n\r\n".encode())
        with client_of(gateway) as client:
            assert client.post(PATH, json={"value": "x"}).status_code == 201
    finally:
        assert gateway.stop() == 0


def test_topics_are_made_only_where_that_is_allowed(own):
    gateway = GatewayProcess(own.url, http=PLACE, options=("--no-create",))
    try:
        with client_of(gateway) as client:
            answer = client.post(PATH, json={"value": "x"})
            assert (answer.status_code, answer.json()["code"]) == (404, "unknown_topic")
            assert client.post("/api/v1/topics", json={"name": "t"}).status_code == 201
            assert client.post(PATH, json={"value": "x"}).status_code == 201
    finally:
        assert gateway.stop() == 0


def test_one_beside_the_broker_is_started_again_at_the_same_address(tmp_path, folder):
    settings = GatewayConfig(url="", http=PLACE, resp=PLACE).to_json()
    config = ServeConfig(
        data=str(tmp_path / "data"), listen=(f"unix://{folder}/hs",), gateway=settings, board_rows=64,
        restart_most_s=0.2,
    )  # fmt: skip
    with Serving(config) as serving:
        before = serving.ready
        url = before["http"][0].replace("tcp", "http")
        assert httpx.post(url + PATH, json={"value": "1"}, trust_env=False).status_code == 201
        os.kill(serving.pid("gateway"), signal.SIGKILL)
        after = serving.wait_ready(other_than=before)
        assert (after["http"], after["resp"]) == (before["http"], before["resp"])
        assert httpx.get(url + PATH, trust_env=False).json()["messages"][0]["value"] == "1"
