"""The door over TLS."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import httpx
import pytest
from penstock.gateway.errors import InvalidCertificate
from penstock.gateway.tls import server_context

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


def test_a_key_with_a_password_is_refused(certificate, tmp_path):
    locked = str(Path(tmp_path, "locked"))
    command = ["openssl", "rsa", "-aes128", "-passout", "pass:secret", "-in", certificate[1], "-out", locked]
    subprocess.run(command, check=True, capture_output=True)
    with pytest.raises(InvalidCertificate, match="password"):
        server_context(certificate[0], locked)
