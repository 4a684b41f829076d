"""The door over TLS."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path
from shutil import which

import httpx
import pytest
from penstock.gateway.errors import InvalidCertificate
from penstock.gateway.tls import server_context

from ..conftest import GatewayProcess


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> tuple[str, str]:
    """A certificate for localhost, and its key."""
    if which("openssl") is None:
        pytest.skip("needs the openssl command")
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = str(folder / "cert.pem"), str(folder / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


def test_clients_connect_over_tls(broker, files, key):
    settings = {"tls_certificate": files[0], "tls_key": files[1]}
    gateway = GatewayProcess(broker.url, http=("tcp://127.0.0.1:0",), settings=settings)
    try:
        url = gateway.http_url.replace("http", "https")
        context = ssl.create_default_context(cafile=files[0])
        with httpx.Client(base_url=url, verify=context, trust_env=False, timeout=60) as client:
            path = f"/api/v1/queues/{key}/messages"
            assert client.post(path, json={"value": "x" * 100_000}).status_code == 201
            assert len(client.get(path).json()["messages"][0]["value"]) == 100_000
        with pytest.raises(httpx.HTTPError):
            httpx.get(gateway.http_url, trust_env=False)
    finally:
        assert gateway.stop() == 0


def test_what_is_no_certificate_is_refused_with_the_file(files, tmp_path):
    other = tmp_path / "other"
    other.write_text("none")
    for pair, says in [
        ((files[0], ""), "both"), (("", files[1]), "both"), ((str(other), files[1]), "other"),
        ((str(tmp_path / "none"), files[1]), "cannot be read"), ((files[1], files[0]), "PEM"),
    ]:  # fmt: skip
        with pytest.raises(InvalidCertificate, match=says):
            server_context(*pair)
    assert server_context("", "") is None


def test_a_key_with_a_password_is_refused(files, tmp_path):
    locked = str(Path(tmp_path, "locked"))
    command = ["openssl", "rsa", "-aes128", "-passout", "pass:secret", "-in", files[1], "-out", locked]
    subprocess.run(command, check=True, capture_output=True)
    with pytest.raises(InvalidCertificate, match="password"):
        server_context(files[0], locked)
