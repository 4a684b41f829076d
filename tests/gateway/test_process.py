"""The gateway process: killed, restarted, drained; and its broker killed under it."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import penstock
import pytest
from penstock.broker import ServeConfig
from penstock.cli import exits
from support.processes import Serving, spawn

from .conftest import NEEDS, GatewayProcess


@pytest.fixture(scope="module", autouse=True)
def redis():
    for name in ("hiredis", "uvloop"):
        pytest.importorskip(name, reason=NEEDS)
    return pytest.importorskip("redis", reason=NEEDS)


@pytest.fixture
def own(tmp_path_factory, folder):
    """A broker of this test."""
    data = tmp_path_factory.mktemp("data")
    with Serving(ServeConfig(data=str(data), listen=(f"unix://{folder}/own",), board_rows=64)) as serving:
        yield serving


def acknowledged(port: int, redis, key: str, stop: threading.Event, told: dict[int, bytes]) -> None:
    """Add numbered entries until the gateway is gone; note which were acknowledged, by offset."""
    client = redis.Redis(port=port, retry=None)
    number = 0
    try:
        while not stop.is_set():
            pipeline = client.pipeline(transaction=False)
            values = [b"%d" % (number + each) for each in range(50)]
            for value in values:
                pipeline.xadd(key, {"value": value})
            for value, id_ in zip(values, pipeline.execute(), strict=True):
                told[int(id_.split(b"-")[1])] = value
            number += len(values)
    except redis.RedisError:
        pass  # killed


def test_nothing_acknowledged_is_lost_when_the_gateway_is_killed(own, redis, folder):
    told: dict[int, bytes] = {}
    for _ in range(3):
        gateway, before = GatewayProcess(own.url), len(told)
        writer = threading.Thread(target=acknowledged, args=(gateway.port, redis, "t", threading.Event(), told))
        writer.start()
        while len(told) < before + 100:
            writer.join(0.01)
        gateway.kill()
        writer.join(30)
        gateway.stop()
    with penstock.connect(own.url) as client:
        stored = {record.offset: record.value for record in client.read("t", 0, 0, max_records=1_000_000)}
    assert len(told) >= 300
    assert {offset: stored.get(offset) for offset in told} == told


def test_it_may_be_ended_while_it_waits_for_a_broker(folder):
    path = f"{folder}/silent"
    command = [sys.executable, "-m", "penstock", "gateway", "--url", f"unix://{path}", "--resp", "tcp://127.0.0.1:0"]
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(path)
        silent.listen()
        waiting = spawn([*command, "--set", "timeout_s=1h"], signal.SIGTERM, stderr=subprocess.PIPE)
        with silent.accept()[0]:
            waiting.send_signal(signal.SIGTERM)
            _, errors = waiting.communicate(timeout=30)
    assert waiting.returncode == exits.FAILED
    assert errors.splitlines() == [b"penstock: told to stop before a broker was there"]


def test_one_that_runs_apart_takes_its_settings_from_everywhere(own, tmp_path):
    httpx = pytest.importorskip("httpx", reason=NEEDS)
    settings = {"insecure": "yes", "log_level": "info", "log_dir": str(tmp_path / "logs")}
    gateway = GatewayProcess(own.url, http=("tcp://0.0.0.0:0",), settings=settings)
    url = gateway.http_url.replace("0.0.0.0", "127.0.0.1")
    assert httpx.get(f"{url}/api/v1/queues/none", headers={"X-Request-Id": "check-1"}).status_code == 404
    assert gateway.stop() == 0
    assert "request check-1: GET '/api/v1/queues/none': 404" in (tmp_path / "logs" / "gateway.log").read_text()


def test_the_broker_may_be_killed_under_it(own, redis):
    gateway = GatewayProcess(own.url)
    try:
        client = redis.Redis(port=gateway.port, socket_timeout=60)
        assert client.xadd("t", {"n": 1}).endswith(b"-0")
        own.kill_broker()
        assert client.xadd("t", {"n": 2}).endswith(b"-1")
        assert client.xlen("t") == 2
        client.close()
    finally:
        assert gateway.stop() == 0


def test_sigterm_answers_what_has_arrived_and_removes_the_socket(own, folder):
    path = Path(folder, "drained")
    gateway = GatewayProcess(own.url, f"unix://{path}")
    blocked = socket.socket(socket.AF_UNIX)
    blocked.connect(str(path))
    blocked.sendall(b"PING\r\nXREAD BLOCK 0 STREAMS t $\r\n")
    assert blocked.recv(100) == b"+PONG\r\n"
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(path))
        peer.sendall(b"PING\r\n")
        assert peer.recv(100) == b"+PONG\r\n"
        peer.sendall(b"ENQUEUE t x\r\n" * 3)
        found = peer.recv(4)  # they have arrived
        gateway.process.send_signal(signal.SIGTERM)
        while data := peer.recv(100):
            found += data
    assert found == b":0\r\n:1\r\n:2\r\n"
    assert blocked.recv(100) == b"*-1\r\n"
    blocked.close()
    assert gateway.stop() == 0
    assert not path.exists()


def test_sigterm_again_and_again_changes_nothing(own):
    gateway = GatewayProcess(own.url)
    while gateway.process.poll() is None:
        gateway.process.send_signal(signal.SIGTERM)
    assert gateway.stop() == 0


def test_an_address_in_use_is_one_sentence(own, folder):
    gateway = GatewayProcess(own.url, f"unix://{folder}/taken", "tcp://127.0.0.1:0")
    try:
        for place in gateway.ready["resp"]:
            with pytest.raises(AssertionError, match=r"(already listens|address already in use)"):
                GatewayProcess(own.url, place).stop()
    finally:
        assert gateway.stop() == 0
    assert os.path.exists(folder)


def test_topics_are_made_only_where_that_is_allowed(own, redis):
    gateway = GatewayProcess(own.url, options=("--no-create",))
    try:
        client = redis.Redis(port=gateway.port)
        with pytest.raises(redis.ResponseError, match="makes none"):
            client.xadd("t", {"n": 1})
        assert client.execute_command("CREATE", "t") == b"OK"
        assert client.xadd("t", {"n": 1}).endswith(b"-0")
        client.close()
    finally:
        assert gateway.stop() == 0


def test_the_command_line_says_at_once_that_a_door_is_no_broker(gateway, monkeypatch):
    from penstock.cli.app import run

    said = io.StringIO()
    monkeypatch.setattr("sys.stderr", said)
    for url, option in ((f"tcp://127.0.0.1:{gateway.port}", "--resp"), (gateway.http_url, "--http")):
        assert run(["topic", "list", "--url", url.replace("http", "tcp")]) == exits.UNAVAILABLE
        assert f"({option}), not the broker: give an address of its --listen" in said.getvalue()
