"""A loss that an operator accepted is passed at every door, and holds no consumer up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from penstock.broker import ServeConfig
from support.lossy import HEADER, VALUE, lossy
from support.processes import Serving

from .conftest import LIBRARIES, NEEDS, GatewayProcess

LEFT = [b"before", b"behind", b"last"]


@pytest.fixture(scope="module", params=[HEADER, VALUE], ids=["header", "value"])
def at(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """Both doors of a broker whose topic t has lost the second of its four records."""
    for name in LIBRARIES:
        pytest.importorskip(name, reason=NEEDS)
    folder = tmp_path_factory.mktemp("lossy")
    lossy(folder / "data", request.param)
    with Serving(ServeConfig(data=f"{folder}/data", listen=(f"unix://{folder}/b",))) as serving:
        gateway = GatewayProcess(serving.url, "tcp://127.0.0.1:0", http=("tcp://127.0.0.1:0",))
        try:
            yield gateway
        finally:
            assert gateway.stop() == 0


@pytest.fixture
def resp(at: GatewayProcess) -> Iterator[Any]:
    import redis

    with redis.Redis(port=at.port, protocol=2) as client:
        yield client


@pytest.fixture
def http(at: GatewayProcess) -> Iterator[Any]:
    import httpx

    with httpx.Client(base_url=at.http_url, timeout=60, trust_env=False) as client:
        yield client


def values(entries: Any) -> list[bytes]:
    return [fields[b"value"] for _, fields in entries]


def test_entries_around_it_are_read(resp):
    entries = resp.xrange("t")
    assert values(entries) == LEFT
    assert values(resp.xrange("t", count=2)) == LEFT[:2]
    assert values(resp.xrevrange("t")) == LEFT[::-1]
    ((_, behind),) = resp.xread({"t": entries[0][0]}, count=1)
    assert values(behind) == [b"behind"]


def test_a_consumer_of_redis_goes_on_behind_it(resp):
    found = [resp.execute_command("LISTEN", "t", "c", 1, "AUTO") for _ in range(4)]
    assert found == [[b"before"], [b"behind"], [b"last"], []]


def test_a_consumer_of_http_goes_on_behind_it(http):
    found: list[str] = []
    for _ in range(4):
        answer = http.get("/api/v1/queues/t/consumers/h/messages").raise_for_status().json()
        found += [each["value"] for each in answer["messages"]]
        http.post("/api/v1/queues/t/consumers/h/commit", json={"next": answer["next"]}).raise_for_status()
    assert found == ["before", "behind", "last"]


def test_a_stream_of_events_passes_it(http):
    with http.stream("GET", "/api/v1/queues/t/tail", params={"start": "earliest"}) as stream:
        lines = (line for line in stream.iter_lines() if line.startswith("data: "))
        found = [next(lines) for _ in range(3)]
    assert [f'"value":"{value.decode()}"' in line for value, line in zip(LEFT, found, strict=True)] == [True] * 3


def test_the_console_shows_what_is_left(http):
    page = http.get("/console/topics/t/messages").raise_for_status().text
    assert [value.decode() in page for value in LEFT] == [True] * 3
    assert http.get("/console/topics/t/messages/0/1").status_code == 404
