"""The id of a request, from clients through gateway and broker into the log of the keeper: real processes."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import penstock
import pytest
from penstock.broker import ServeConfig
from penstock.broker.diagnostics import DiagnosticOptions
from penstock.gateway.config import GatewayConfig
from support.processes import Serving

from .conftest import NEEDS

LARGE = b"x" * 200_000
"""A turn with so much is not an idle one: the keeper syncs."""


@pytest.fixture(scope="module", autouse=True)
def redis():
    for name in ("hiredis", "uvloop", "uvicorn", "starlette"):
        pytest.importorskip(name, reason=NEEDS)
    return pytest.importorskip("redis", reason=NEEDS)


@pytest.fixture(scope="module")
def serving(tmp_path_factory) -> Iterator[Serving]:
    """A broker with both doors, whose processes say everything in files."""
    at = tmp_path_factory.mktemp("followed")
    doors = ("tcp://127.0.0.1:0",)
    config = ServeConfig(
        data=str(at / "data"), listen=(f"unix://{at}/s", "tcp://127.0.0.1:0"), board_rows=64,
        gateway=GatewayConfig(url="", resp=doors, http=doors).to_json(),
        log=DiagnosticOptions(level="debug", directory=str(at / "log")),
    )  # fmt: skip
    with Serving(config) as serving, penstock.connect(serving.url) as client:
        client.create_topic("t")
        yield serving


def lines(serving: Serving, part: str, name: str, timeout_s: float = 60.0) -> str:
    """What a process has said of a request, once it has said anything."""
    path = Path(serving.ready["data"]).parent / "log" / f"{part}.log"
    deadline, found = time.monotonic() + timeout_s, ""
    while not found:
        assert time.monotonic() < deadline, f"{part} says nothing of {name}"
        found = "\n".join(line for line in path.read_text().splitlines() if f"request {name}" in line)
    return found


def test_an_id_of_http_is_found_in_gateway_and_broker(serving: Serving) -> None:
    url = "http" + serving.ready["http"][0].removeprefix("tcp")
    with httpx.Client(base_url=f"{url}/api/v1/queues", trust_env=False, timeout=60) as web:
        good = web.post("/t/messages", json={"value": "tea"}, headers={"x-request-id": "order-17"})
        bad = web.get("/nowhere/messages", headers={"x-request-id": "order-18"})
        assert web.post("/t/messages", json={"value": "no name"}).is_success
    assert (good.is_success, good.headers["x-request-id"]) == (True, "order-17")
    assert (bad.status_code, bad.headers["x-request-id"]) == (404, "order-18")
    assert "POST '/api/v1/queues/t/messages': 20" in lines(serving, "gateway", "order-17")
    assert "Produce: Produced after" in lines(serving, "broker", "order-17")
    assert ": 404" in lines(serving, "gateway", "order-18")
    assert "ListTopics: unknown_topic after" in lines(serving, "broker", "order-18")


def test_commands_of_a_connection_with_a_name_have_its_name_and_their_number(serving: Serving, redis) -> None:
    port = int(serving.ready["resp"][0].rpartition(":")[2])
    with redis.Redis(port=port, client_name="checkout", socket_timeout=60) as client:
        client.xadd("t", {"value": "tea"})
        with pytest.raises(redis.ResponseError):
            client.xadd("t", {"value": "tea"}, id="nonsense")
    with redis.Redis(port=port, socket_timeout=60) as client:
        client.xadd("t", {"value": "no name"})
    found = re.findall(r"request checkout:(\d+): Produce: Produced after", lines(serving, "broker", "checkout:"))
    assert len(found) == 1
    assert f"request checkout:{int(found[0]) + 1}: " in lines(serving, "gateway", "checkout:")


@pytest.mark.parametrize("place", [0, 1])
def test_an_id_of_a_program_is_found_in_broker_and_keeper(serving: Serving, place: int) -> None:
    name = f"job-{place}"
    with penstock.connect(serving.ready["listen"][place]) as client, client.producer("t") as producer:
        with penstock.request_id(name):
            producer.send_nowait(b"none")
            producer.flush()
            producer.send(LARGE)
            with pytest.raises(penstock.errors.UnknownTopic):
                client.topic("nowhere")
            with penstock.request_id(f"{name}-many"):
                producer.send_many([LARGE] * 3)
        client.topics()
    said = lines(serving, "broker", name + ":")
    assert said.count("Produce: Produced after") == 1
    assert said.count("ListTopics: unknown_topic after") == 1
    assert lines(serving, "broker", f"{name}-many").count("Produce: Produced after") >= 1
    assert "synced in" in lines(serving, "keeper", name)
