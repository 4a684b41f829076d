"""A user of the gateway at its quota is refused with the time to wait, and other users feel nothing of it."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from penstock.broker import access_file
from penstock.broker.quotas import Quota
from penstock.broker.rights import Principal
from penstock.gateway import users as users_module
from penstock.gateway.users import Users

from .conftest import NEEDS, GatewayProcess

httpx = pytest.importorskip("httpx", reason=NEEDS)
redis = pytest.importorskip("redis", reason=NEEDS)

ASKED = 20

SLOW = 1_000_000
"""Bytes a second of carl."""

MANY_BYTES = b"x" * 3 * SLOW


@pytest.fixture(scope="module")
def counted(broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[GatewayProcess, dict[str, str], str]]:
    """A gateway with quotas of ann and bob, their tokens, and the file."""
    path = str(tmp_path_factory.mktemp("users") / "users")
    tokens = {}
    for name in ("ann", "bob", "carl"):
        access_file.add_password(path, name, "pw")
        tokens[name] = access_file.add_token(path, name)[0]
    access_file.set_quota(path, "*", Quota(requests_s=1))
    access_file.set_quota(path, "bob", Quota(requests_s=1_000_000, bytes_s=1 << 30, connections=5, in_flight=5))
    access_file.set_quota(path, "carl", Quota(bytes_s=SLOW))
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
    for name in ("ann", "bob"):
        token = tokens[name]
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


def test_a_connection_that_another_user_goes_on_with_is_not_counted_any_more(tmp_path: Path):
    path = str(tmp_path / "users")
    for name in ("ann", "bob"):
        access_file.add_password(path, name, "x")
    access_file.set_quota(path, "ann", Quota(connections=1))
    users = Users.load(path)
    ann, bob = (asyncio.run(users.verify(name, "x")) for name in ("ann", "bob"))
    assert ann is not None
    assert bob is not None
    assert users.admit("first", ann) is not None
    assert users.admit("first", bob) is None
    assert users.admit("second", ann) is not None


def test_a_body_counts_as_it_comes_whatever_its_head_says(counted):
    """One that is too large is not read, so it costs nothing; one without a length costs what it has."""
    process, tokens, _ = counted
    said = {"authorization": f"Bearer {tokens['carl']}", "content-type": "application/octet-stream"}
    with socket.create_connection(("127.0.0.1", int(process.http_url.rpartition(":")[2])), timeout=30) as peer:
        head = ["POST /api/v1/queues/bytes/messages HTTP/1.1", "host: localhost", "content-length: 40000000000"]
        peer.sendall("\r\n".join([*head, *(f"{name}: {value}" for name, value in said.items()), "", ""]).encode())
        assert peer.recv(1 << 16).startswith(b"HTTP/1.1 413 ")
    with httpx.Client(base_url=process.http_url, headers=said, timeout=60) as client:
        assert client.post("/api/v1/queues/bytes/messages", content=iter([MANY_BYTES])).status_code == 201
        answer = client.get("/api/v1/topics")
        assert (answer.status_code, answer.json()["code"]) == (429, "overloaded")


def test_what_a_stream_sends_counts(counted):
    process, tokens, _ = counted
    bob, carl = ({"authorization": f"Bearer {tokens[name]}"} for name in ("bob", "carl"))
    with httpx.Client(base_url=process.http_url, timeout=60) as client:
        path = "/api/v1/queues/streamed"
        for _ in range(3):
            assert client.post(f"{path}/messages", json={"value": MANY_BYTES.decode()}, headers=bob).status_code == 201
        tail = partial(client.stream, "GET", f"{path}/tail?start=earliest", headers=carl)
        with ExitStack() as opened:
            while (stream := opened.enter_context(tail())).status_code == 429:  # what other tests took is paid for
                opened.close()
            size, parts = 0, stream.iter_bytes()
            while size < len(MANY_BYTES):
                size += len(next(parts))
            assert client.get("/api/v1/topics", headers=carl).status_code == 429
            assert client.get("/api/v1/topics", headers=bob).status_code == 200


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A connection of ann, who has no quota yet, its socket, the users, ann, and the path of the file."""
    from .resp.connected import FakeDoor, connected_to

    path = str(tmp_path / "users")
    secret, _ = access_file.add_token(path, "ann")
    monkeypatch.setattr(users_module, "LOOK_S", 0.0)
    users = Users(path)
    monkeypatch.setattr(FakeDoor, "users", users)
    connection, transport = connected_to(FakeDoor())
    ann = users.verify_token(secret)
    assert ann is not None
    connection.authenticated(ann)
    return connection, transport, users, ann, path


def echo(text: bytes) -> bytes:
    return b"*2\r\n$4\r\nECHO\r\n$%d\r\n%b\r\n" % (len(text), text)


def test_a_quota_counts_nothing_of_the_time_before_it(session):
    connection, transport, users, ann, path = session
    connection.data_received(echo(MANY_BYTES[:100_000]) + b"PING\r\n")
    access_file.set_quota(path, "ann", Quota(bytes_s=1000))
    users.current(ann)  # as commands about a topic do
    connection.data_received(b"PING\r\n" * 2)
    assert transport.out.endswith(b"+PONG\r\n" * 2)
    assert users.meter(ann).debt_s(time.monotonic()) == 0.0


def test_the_last_replies_of_a_connection_count(session):
    connection, _, users, ann, path = session
    access_file.set_quota(path, "ann", Quota(bytes_s=1000))
    users.current(ann)
    connection.data_received(echo(MANY_BYTES[:50_000]))
    before_s = users.meter(ann).debt_s(time.monotonic())
    connection.connection_lost(None)
    assert 49 < users.meter(ann).debt_s(time.monotonic()) - before_s < 51
