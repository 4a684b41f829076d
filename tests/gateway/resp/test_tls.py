"""Redis clients over TLS."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress

import pytest
import redis
from penstock.gateway import handshakes


@pytest.fixture
def context(certificate) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=certificate[0])


@pytest.fixture
def peer(secure, context) -> Iterator[ssl.SSLSocket]:
    plain = socket.create_connection(("127.0.0.1", secure.port), timeout=30)
    with context.wrap_socket(plain, server_hostname="localhost") as peer:
        yield peer


def test_redis_py_connects(secure, certificate, key):
    assert [url.partition("://")[0] for url in (*secure.ready["resp"], *secure.ready["http"])] == ["tls", "tls"]
    address = f"rediss://127.0.0.1:{secure.port}"
    with redis.Redis.from_url(address, ssl_ca_certs=certificate[0], protocol=3) as client:
        client.xadd(key, {"value": "x" * 300_000})
        assert len(client.xrange(key)[0][1][b"value"]) == 300_000
    with redis.Redis.from_url(address) as client, pytest.raises(redis.ConnectionError, match="certificate"):
        client.ping()


def test_a_plain_client_is_not_answered(secure):
    with socket.create_connection(("127.0.0.1", secure.port), timeout=30) as plain:
        plain.sendall(b"PING\r\n" * 10)
        found = []
        with suppress(ConnectionResetError):
            while data := plain.recv(1 << 16):
                found.append(data)
        assert b"PONG" not in b"".join(found)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_older_versions_than_1_2_are_refused(secure, context):
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    plain = socket.create_connection(("127.0.0.1", secure.port), timeout=30)
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        context.wrap_socket(plain, server_hostname="localhost")
    plain.close()


def test_a_peer_that_still_sends_reads_the_last_reply(peer):
    peer.sendall(b"*1\r\n$99999999\r\n")
    for _ in range(20):
        peer.sendall(bytes(1 << 20))
    assert peer.recv(1 << 16).startswith(b"-ERR Protocol error: invalid bulk length")


@pytest.mark.soak
def test_a_handshake_has_to_be_over_in_time(secure):
    assert handshakes.HANDSHAKE_S == 10
    with socket.create_connection(("127.0.0.1", secure.port), timeout=30) as silent:
        silent.sendall(b"\x16\x03\x01\x02\x00")  # the beginning of a hello
        with suppress(ConnectionResetError):
            assert silent.recv(100) == b""
