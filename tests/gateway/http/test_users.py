"""A door with users: each request says who it is from, and what is open stays so."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import httpx
import pytest
from penstock.broker import access_file
from penstock.gateway.http.authenticating import credentials

from ..conftest import GatewayProcess

SECRETS: list[str] = []
"""Tokens: a valid one, and one that has expired."""


@pytest.fixture(scope="module")
def guarded(broker, tmp_path_factory) -> Iterator[GatewayProcess]:
    path = str(tmp_path_factory.mktemp("users") / "users")
    access_file.add_password(path, "ann", "s3c:ret ä")
    SECRETS[:] = [access_file.add_token(path, "robot")[0], access_file.add_token(path, "robot", 1)[0]]
    process = GatewayProcess(broker.url, http=("tcp://127.0.0.1:0",), options=("--users", path))
    try:
        yield process
    finally:
        assert process.stop() == 0


def test_a_user_sends_a_password_with_each_request(guarded, key):
    path = f"/api/v1/queues/{key}/messages"
    with httpx.Client(base_url=guarded.http_url, trust_env=False, timeout=60) as client:
        for auth in (None, ("ann", "wrong"), ("bob", "s3c:ret ä"), ("", "")):
            answer = client.post(path, json={"value": "x"}, auth=auth)
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
            assert answer.headers["www-authenticate"].startswith("Basic ")
        right = httpx.BasicAuth(b"ann", "s3c:ret ä".encode())
        assert client.post(path, json={"value": "x"}, auth=right).status_code == 201
        assert client.get(path, auth=right).json()["messages"][0]["value"] == "x"
        assert client.get(path).status_code == 401


def test_a_program_sends_a_token_with_each_request(guarded, key):
    path = f"/api/v1/queues/{key}/messages"
    with httpx.Client(base_url=guarded.http_url, trust_env=False, timeout=60) as client:
        for scheme in ("Bearer", "bearer "):
            headers = {"authorization": f"{scheme} {SECRETS[0]}"}
            assert client.post(path, json={"value": "x"}, headers=headers).status_code == 201
        for wrong in ("x", SECRETS[1], SECRETS[0] + " x", "\u00e9"):
            answer = client.post(
                path, json={"value": "x"}, headers={"authorization": f"Bearer {wrong}".encode("latin-1")}
            )
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
            assert "Bearer realm=" in answer.headers["www-authenticate"]
        assert client.post(path, json={"value": "x"}, auth=("robot", SECRETS[0])).status_code == 401


def test_what_probes_and_people_look_at_is_open(guarded):
    for path in ("/health", "/health/live", "/docs", "/openapi.json"):
        assert httpx.get(guarded.http_url + path, trust_env=False).status_code == 200


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (b"Basic " + base64.b64encode(b"a:b:c"), ("a", "b:c")),
        (b"basic  " + base64.b64encode("ä:ö".encode()), ("ä", "ö")),
        (b"Basic " + base64.b64encode(b"ab"), None),
        (b"Basic " + base64.b64encode(b"\xff:b"), None),
        (b"Basic %%%", None),
        (b"Basic", None),
        (b"", None),
        (b"Bearer YTpi", None),
    ],
)
def test_names_and_passwords_are_read_strictly(header, found):
    assert credentials(header) == found
