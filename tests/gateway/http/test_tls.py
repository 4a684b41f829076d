"""The door over TLS."""

from __future__ import annotations

import json
import os
import socket
import ssl

import httpx
import pytest
from penstock.gateway.errors import InvalidCertificate
from penstock.gateway.lingering import LINGER_S
from penstock.gateway.tls import server_context
from support.certificates import make_certificate

from ..conftest import GatewayProcess


def test_clients_connect_over_tls(broker, certificate, key):
    settings = {"tls_certificate": certificate[0], "tls_key": certificate[1]}
    gateway = GatewayProcess(broker.url, http=("tcp://127.0.0.1:0",), settings=settings)
    try:
        url = gateway.http_url.replace("http", "https")
        context = ssl.create_default_context(cafile=certificate[0])
        with httpx.Client(base_url=url, verify=context, trust_env=False, timeout=60) as client:
            path = f"/api/v1/queues/{key}/messages"
            assert client.post(path, json={"value": "x" * 100_000}).status_code == 201
            assert len(client.get(path).json()["messages"][0]["value"]) == 100_000
        with pytest.raises(httpx.HTTPError):
            httpx.get(gateway.http_url, trust_env=False)
    finally:
        assert gateway.stop() == 0


@pytest.mark.parametrize("size", [1, 3_000_000], ids=["small", "large"])
def test_a_connection_that_the_client_wants_closed_is_closed_once_it_is_answered(broker, certificate, key, size):
    """And not when it has lingered, which is for peers that still send."""
    settings = {"tls_certificate": certificate[0], "tls_key": certificate[1]}
    gateway = GatewayProcess(broker.url, http=("tcp://127.0.0.1:0",), settings=settings)
    try:
        host, port = gateway.http_url.removeprefix("http://").split(":")
        context = ssl.create_default_context(cafile=certificate[0])
        path = f"/api/v1/queues/{key}/messages"
        base_url = gateway.http_url.replace("http", "https")
        with httpx.Client(base_url=base_url, verify=context, trust_env=False, timeout=60) as client:
            assert client.post(path, json={"value": "x" * size}).status_code == 201
        plain = socket.create_connection((host, int(port)))
        with plain, context.wrap_socket(plain, server_hostname=host) as tls:
            tls.settimeout(LINGER_S * 0.9)
            tls.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            answer = b"".join(iter(lambda: tls.recv(1 << 20), b""))
        assert len(json.loads(answer.partition(b"\r\n\r\n")[2])["messages"][0]["value"]) == size
    finally:
        assert gateway.stop() == 0


def test_what_is_no_certificate_is_refused_with_the_file(certificate, tmp_path):
    other = tmp_path / "other"
    other.write_text("none")
    for pair, says in [
        ((certificate[0], ""), "both"), (("", certificate[1]), "both"), ((str(other), certificate[1]), "other"),
        ((str(tmp_path / "none"), certificate[1]), "cannot be read"), ((certificate[1], certificate[0]), "PEM"),
    ]:  # fmt: skip
        with pytest.raises(InvalidCertificate, match=says):
            server_context(*pair)
    assert server_context("", "") is None


def test_a_key_that_all_users_can_read_is_refused_and_one_of_a_group_is_not(tmp_path):
    path, key = make_certificate(tmp_path)
    for mode in (0o400, 0o600, 0o640, 0o660):
        os.chmod(key, mode)
        assert server_context(path, key) is not None, mode
    for mode in (0o604, 0o644, 0o404):
        os.chmod(key, mode)
        with pytest.raises(InvalidCertificate, match=f"key {key} is open to all users.*: chmod o= {key}$"):
            server_context(path, key)


def test_a_key_with_a_password_is_refused(tmp_path):
    with pytest.raises(InvalidCertificate, match="password"):
        server_context(*make_certificate(tmp_path, password="secret"))
