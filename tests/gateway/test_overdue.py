"""Records whose broker does not answer, or whose disk is full: each client hears of it in time, and in order."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import penstock
import pytest
from penstock.broker import ServeConfig
from support.processes import Serving

from .conftest import NEEDS, GatewayProcess

PATH = "/api/v1/queues/t/messages"
UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


@pytest.fixture
def own(tmp_path_factory, folder):
    """A broker of this test."""
    data = tmp_path_factory.mktemp("data")
    with Serving(ServeConfig(data=str(data), listen=(f"unix://{folder}/own",), board_rows=64)) as serving:
        yield serving


@pytest.fixture
def doors(own):
    """A gateway of little patience that knows a topic, and a client of each door."""
    for name in ("hiredis", "uvloop", "starlette", "uvicorn"):
        pytest.importorskip(name, reason=NEEDS)
    httpx, redis = pytest.importorskip("httpx", reason=NEEDS), pytest.importorskip("redis", reason=NEEDS)
    gateway = GatewayProcess(
        own.url, "tcp://127.0.0.1:0", http=("tcp://127.0.0.1:0",), options=("--set", "timeout_s=0.5s")
    )
    with httpx.Client(base_url=gateway.http_url, timeout=60, trust_env=False) as http:
        client = redis.Redis(port=gateway.port, retry=None)
        client.xadd("t", {"value": b"resp"})
        assert http.post(PATH, json={"value": "http"}).status_code == 201
        yield client, http
        client.close()
    assert gateway.stop() == 0


@contextmanager
def stopped(own: Serving) -> Iterator[None]:
    os.kill(own.pid("broker"), signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(own.pid("broker"), signal.SIGCONT)


@contextmanager
def without_room(own: Serving) -> Iterator[None]:
    """No write of the broker finds room."""
    resource.prlimit(own.pid("broker"), resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.prlimit(own.pid("broker"), resource.RLIMIT_FSIZE, UNLIMITED)


def values(own: Serving) -> list[bytes | None]:
    with penstock.connect(own.url) as client:
        return [record.value for record in client.read("t", 0, 0)]


@pytest.mark.parametrize(("trouble", "code"), [(stopped, "timed_out"), (without_room, "still_full")])
def test_a_record_without_an_outcome_is_answered_in_time_and_in_order(own, doors, trouble, code):
    client, http = doors
    with trouble(own):
        pipeline = client.pipeline(transaction=False)
        pipeline.echo("a").xadd("t", {"value": b"1"}).echo("b").execute_command("ENQUEUE", "t", "2")
        pipeline.xadd("t", {"value": b"3"}, maxlen=100, approximate=False).echo("c")
        found = pipeline.execute(raise_on_error=False)
        assert [each for each in found if isinstance(each, bytes)] == [b"a", b"b", b"c"]
        errors = [each for each in found if not isinstance(each, bytes)]
        assert {type(each).__name__ for each in errors} == {"TryAgainError"}, errors
        assert all(str(each).endswith(f"is not known [{code}]") for each in errors), errors
        for path, body in ((PATH, {"value": "4"}), (PATH, [{"value": "5"}]), ("/tasks", {"queue": "t", "value": "6"})):
            answer = http.post(path, json=body)
            assert (answer.status_code, answer.json()["code"], answer.json()["retryable"]) == (503, code, True)
            assert answer.json()["message"].endswith("is not known")
        health = http.get("/health")
        assert (health.status_code, health.json()["ready"]) == (503, False)
        assert ("storage_full" in health.json()["reasons"][0]) == (code == "still_full")
    for _ in range(10_000):  # the producer tries again after a back-off, which may be longer than the patience here
        if client.xlen("t") == 8:
            break
    assert client.xadd("t", {"value": b"7"})
    assert http.get("/health").status_code == 200
    assert values(own) == [b"resp", b"http", *(b"%d" % number for number in range(1, 8))]
