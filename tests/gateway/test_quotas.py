"""A user of the gateway at its quota is refused with the time to wait, and other users feel nothing of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from penstock.broker import access_file
from penstock.broker.quotas import Quota
from penstock.broker.rights import Principal
from penstock.gateway.users import Users

from .conftest import NEEDS, GatewayProcess

httpx = pytest.importorskip("httpx", reason=NEEDS)
redis = pytest.importorskip("redis", reason=NEEDS)

ASKED = 20


@pytest.fixture(scope="module")
def counted(broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[GatewayProcess, dict[str, str], str]]:
    """A gateway with quotas of ann and bob, their tokens, and the file."""
    path = str(tmp_path_factory.mktemp("users") / "users")
    tokens = {}
    for name in ("ann", "bob"):
        access_file.add_password(path, name, "pw")
        tokens[name] = access_file.add_token(path, name)[0]
    access_file.set_quota(path, "*", Quota(requests_s=1))
    access_file.set_quota(path, "bob", Quota(requests_s=1_000_000, bytes_s=1 << 30, connections=5, in_flight=5))
    process = GatewayProcess(
        broker.url, "tcp://127.0.0.1:0", http=("tcp://127.0.0.1:0",), options=("--users", path)
    )  # fmt: skip
    try:
        yield process, tokens, path
    finally:
        assert process.stop() == 0


def test_http_says_when_to_ask_again(counted):
    process, tokens, _ = counted
    said = {}
    for name, token in tokens.items():
        with httpx.Client(base_url=process.http_url, headers={"authorization": f"Bearer {token}"}) as client:
            said[name] = [client.get("/api/v1/topics") for _ in range(ASKED)]
    assert {answer.status_code for answer in said["bob"]} == {200}
    assert [answer.status_code for answer in said["ann"][:2]] == [200, 200]
    refused = [answer for answer in said["ann"] if answer.status_code == 429]
    assert refused
    assert refused[0].json()["code"] == "overloaded"
    assert refused[0].json()["retryable"]
    assert "user ann is over its quota of 1 requests/s: ask again in" in refused[0].json()["message"]
    assert int(refused[0].headers["retry-after"]) >= 1


def test_commands_of_redis_are_refused_each_and_runs_of_them_too(counted):
    process, _, _ = counted
    said = {}
    for name in ("ann", "bob"):
        client = redis.Redis(port=process.port, username=name, password="pw", retry=None)
        pipeline = client.pipeline(transaction=False)
        for _ in range(ASKED):
            pipeline.xadd("quotas", {"value": "x"})
        said[name] = pipeline.execute(raise_on_error=False)
        said[name] += client.pipeline(transaction=False).xlen("quotas").xlen("quotas").execute(raise_on_error=False)
        client.close()
    refused = [each for each in said["ann"] if isinstance(each, redis.ResponseError)]
    assert refused
    assert isinstance(refused[0], redis.exceptions.TryAgainError), "its first word is TRYAGAIN"
    assert str(refused[0]).startswith("user ann is over its quota")
    assert str(refused[0]).endswith("[overloaded]")
    assert not [each for each in said["bob"] if isinstance(each, Exception)]
    assert len(said["ann"]) == len(said["bob"]) == ASKED + 2


def test_connections_of_a_user_are_bounded(counted):
    process, _, _ = counted
    clients = [redis.Redis(port=process.port, username="bob", password="pw", retry=None) for _ in range(6)]
    for client in clients[:5]:
        assert client.exists("quotas") in (0, 1)
    with pytest.raises(redis.ResponseError, match="5 connections"):
        clients[5].exists("quotas")
    for client in clients:
        client.close()


def test_a_meter_is_of_users_with_a_quota_alone_and_follows_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = str(tmp_path / "users")
    secret, _ = access_file.add_token(path, "ann")
    for enforced in (True, False):
        users = Users(path, enforced=enforced)
        ann = users.verify_token(secret)
        assert ann is not None
        assert users.meter(ann) is None
    access_file.set_quota(path, "ann", Quota(requests_s=3))
    for enforced in (True, False):
        users = Users(path, enforced=enforced)
        ann = users.verify_token(secret)
        assert ann is not None
        meter = users.meter(ann)
        assert meter is not None
        assert meter.quota == Quota(requests_s=3)
        assert users.meter(ann) is meter
        assert users.meter(Principal("eve")) is None
