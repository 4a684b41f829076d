"""Clients that do not authenticate are in the gateway's log, without what they sent. So is what grants forbid."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from penstock.broker import access_file
from penstock.gateway.users import Users
from support.processes import Serving

from .conftest import NEEDS, GatewayProcess

httpx = pytest.importorskip("httpx", reason=NEEDS)
redis = pytest.importorskip("redis", reason=NEEDS)


def test_wrong_passwords_and_tokens_are_logged_with_their_source_and_without_the_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("penstock.gateway.telling.PERIOD_S", 0.01)
    path = str(tmp_path / "users")
    access_file.add_password(path, "ann", "right")
    expired = access_file.add_token(path, "robot", 1)[0]

    async def refuse() -> None:
        users = Users.load(path)
        assert await users.verify("ann", "right", "1.2.3.4") is not None
        assert users.refusals.count == 0
        for name, source in (("ann", "1.2.3.4"), ("secret-as-name\n", "")):
            assert await users.verify(name, "s3cret", source) is None
        assert users.verify_token("t0ken", "5.6.7.8") is None
        assert users.verify_token(expired, "5.6.7.8") is None
        users.refusals._due_s = 0.0  # a second later
        told, tell = asyncio.Event(), users.refusals._tell
        users.refusals._tell = lambda sentence: (tell(sentence), told.set())[0]
        await told.wait()
        assert users.refusals.count == 4

    asyncio.run(asyncio.wait_for(refuse(), 30))
    first, *rest = caplog.messages
    assert first == "refused clients: 1, the last: user 'ann' with a wrong password, from 1.2.3.4"
    assert sum(int(said.split()[2].rstrip(",")) for said in rest) == 3
    assert rest[-1].endswith("robot has expired, from 5.6.7.8")
    for secret in ("s3cret", "t0ken", expired, "secret-as-name"):
        assert secret not in caplog.text


def test_what_grants_forbid_is_logged_with_user_and_resource(broker: Serving, tmp_path: Path):
    path = str(tmp_path / "access")
    access_file.add_password(path, "ann", "x")
    secret, _ = access_file.add_token(path, "robot")
    process = GatewayProcess(broker.url, "tcp://127.0.0.1:0", http=("tcp://127.0.0.1:0",), options=("--access", path))
    with redis.Redis(port=process.port, username="ann", password="x") as client:
        with pytest.raises(redis.ResponseError, match="no permission"):
            client.xlen("orders")
        assert client.keys("*") == [], "what is not shown was not asked for"
    headers = {"authorization": f"Bearer {secret}"}
    assert httpx.get(f"{process.http_url}/stats", headers=headers, trust_env=False).status_code == 403
    assert process.process.stderr is not None
    lines = [process.process.stderr.readline().decode() for _ in range(2)]  # the second comes a second later
    assert process.stop() == 0
    assert lines == [
        "penstock gateway: forbidden requests: 1, the last: user ann has no permission to read topic:orders\n",
        "penstock gateway: forbidden requests: 1, the last: user robot has no permission to see node\n",
    ]


def test_a_gateway_that_runs_apart_shows_its_count_at_its_http_door(broker: Serving, tmp_path: Path):
    path = str(tmp_path / "users")
    access_file.add_password(path, "ann", "x")
    process = GatewayProcess(broker.url, "tcp://127.0.0.1:0", http=("tcp://127.0.0.1:0",), options=("--users", path))
    with pytest.raises(redis.AuthenticationError):
        redis.Redis(port=process.port, username="ann", password="y", retry=None).ping()
    answer = httpx.get(f"{process.http_url}/metrics", auth=("ann", "x"), trust_env=False)
    assert httpx.get(f"{process.http_url}/metrics", trust_env=False).status_code == 401
    assert process.stop() == 0
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert {line for line in answer.text.splitlines() if not line.endswith(" 0")} == {
        "# HELP penstock_gateway_refused_total Refused by the gateway's doors.",
        "# TYPE penstock_gateway_refused_total counter",
        'penstock_gateway_refused_total{reason="credentials"} 1',
    }
