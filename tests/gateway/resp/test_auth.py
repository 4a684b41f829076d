"""A door with users: what a peer may do before it has authenticated, and as which user it goes on."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from penstock.broker import access_file

from ..conftest import NEEDS, GatewayProcess


@pytest.fixture(scope="module")
def redis() -> Any:
    for name in ("hiredis", "uvloop"):
        pytest.importorskip(name, reason=NEEDS)
    return pytest.importorskip("redis", reason=NEEDS)


@pytest.fixture(scope="module")
def file(redis, tmp_path_factory) -> str:
    path = str(tmp_path_factory.mktemp("users") / "users")
    access_file.add_password(path, "ann", "s3cret")
    access_file.add_password(path, "default", "pass word")
    return path


@pytest.fixture(scope="module")
def guarded(broker, file) -> Iterator[GatewayProcess]:
    process = GatewayProcess(broker.url, options=("--users", file))
    try:
        yield process
    finally:
        assert process.stop() == 0


@pytest.fixture
def peer(guarded) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=30) as connected:
        yield connected


def answer(peer: socket.socket, request: bytes, replies: int = 1) -> bytes:
    """What comes for a request: lines, so many."""
    peer.sendall(request)
    found = b""
    while found.count(b"\r\n") < replies and (data := peer.recv(1 << 16)):
        found += data
    return found


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize(("user", "password"), [("ann", "s3cret"), (None, "pass word"), ("default", "pass word")])
def test_redis_py_authenticates(redis, guarded, protocol, user, password, key):
    with redis.Redis(port=guarded.port, protocol=protocol, username=user, password=password) as client:
        assert client.xadd(key, {"n": 1}).endswith(b"-0")
        assert client.client_list()[0]["user"] == (user or "default")


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize(("user", "password"), [("ann", "x"), ("eve", "s3cret"), (None, "s3cret"), ("ann", "")])
def test_a_wrong_password_is_refused(redis, guarded, protocol, user, password):
    client = redis.Redis(port=guarded.port, protocol=protocol, username=user, password=password, retry=None)
    with client, pytest.raises(redis.AuthenticationError):
        client.ping()


def test_only_commands_that_authenticate_run_before(peer):
    assert answer(peer, b"PING\r\nXADD t * a b\r\nINFO\r\nNOPE\r\nMULTI\r\n", 5) == (
        b"-NOAUTH Authentication required.\r\n" * 5
    )
    assert answer(peer, b"HELLO 3\r\n").startswith(b"-NOAUTH")
    assert answer(peer, b"AUTH ann x\r\n").startswith(b"-WRONGPASS")
    assert answer(peer, b"AUTH ann s3cret\r\nPING\r\n", 2) == b"+OK\r\n+PONG\r\n"
    assert answer(peer, b"AUTH ann x\r\nPING\r\n", 2).endswith(b"+PONG\r\n")  # as before
    assert answer(peer, b"RESET\r\nPING\r\n", 2) == b"+RESET\r\n-NOAUTH Authentication required.\r\n"


@pytest.mark.parametrize(
    "request_", [b"*17\r\n", b"*2\r\n$4\r\nAUTH\r\n$16385\r\n", b"*2\r\n$4\r\nAUTH\r\n$100000000\r\n"]
)
def test_a_stranger_cannot_announce_much(peer, request_):
    assert answer(peer, request_).startswith(b"-ERR Protocol error: invalid")
    assert peer.recv(1) == b""


def test_a_peer_that_authenticated_may_send_large_commands(peer):
    assert answer(peer, b"AUTH ann s3cret\r\n") == b"+OK\r\n"
    value = b"x" * 100_000
    assert answer(peer, b"*2\r\n$4\r\nECHO\r\n$100000\r\n%b\r\n" % value, 2) == b"$100000\r\n%b\r\n" % value


def test_a_stranger_is_cut_off_in_time(connection_with_users):
    connection, transport, clock, limit = connection_with_users
    assert not connection.overdue(clock + limit - 0.1)
    connection.data_received(b"PING\r\n")
    assert connection.overdue(clock + limit)
    assert not transport.closed


@pytest.mark.parametrize("request_", [b"RESET\r\n", b"PING\r\n", b"NOPE\r\n"])
def test_nothing_gives_a_stranger_more_time(connection_with_users, monkeypatch, request_):
    connection, transport, clock, limit = connection_with_users
    monkeypatch.setattr(time, "monotonic", lambda: clock + limit - 1)
    connection.data_received(request_)
    assert transport.out.endswith(b"\r\n")
    connection.pause_writing()
    connection.resume_writing()
    assert not connection.overdue(clock + limit - 0.1)
    assert connection.overdue(clock + limit)


@pytest.fixture
def connection_with_users(monkeypatch) -> Any:
    pytest.importorskip("hiredis", reason=NEEDS)
    from penstock.gateway.resp.connection import AUTH_S

    from .connected import FakeDoor, connected_to

    class Guarded(FakeDoor):
        users = object()

    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    return *connected_to(Guarded()), 100.0, AUTH_S


def test_a_user_that_is_added_can_connect_at_once(redis, broker, tmp_path):
    """At a gateway of its own: wrong passwords of other tests may hold this address off for a while."""
    file = str(tmp_path / "users")
    access_file.add_password(file, "ann", "s3cret")
    process = GatewayProcess(broker.url, options=("--users", file))
    try:
        access_file.add_password(file, "new", "x")
        with redis.Redis(port=process.port, username="new", password="x") as client:
            assert client.ping()
    finally:
        assert process.stop() == 0


def test_a_door_does_not_open_with_users_that_cannot_be_used(broker, file, tmp_path):
    Path(tmp_path, "open").write_text(Path(file).read_text())
    Path(tmp_path, "open").chmod(0o644)
    for name, says in [("open", "chmod 600"), ("none", "cannot be read")]:
        with pytest.raises(AssertionError, match=says):
            GatewayProcess(broker.url, options=("--users", str(tmp_path / name))).stop()
