"""Requests of web pages from elsewhere: what the door refuses, and what CORS allows."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from penstock.gateway.http.origins import check_host, check_origin, is_loopback
from penstock.gateway.http.problems import Refusal

from ..conftest import GatewayProcess

PAGE = "https://page.example"


def foreign_origin(method: str, origin: bytes | None, *allowed: str, host: bytes = b"localhost:80") -> bool:
    headers = {b"host": host} | ({} if origin is None else {b"origin": origin})
    try:
        check_origin(method, "http", headers, allowed)
    except Refusal as refusal:
        return refusal.status == 403
    return False


def test_a_page_from_elsewhere_may_change_nothing():
    assert foreign_origin("POST", b"https://page.example")
    assert foreign_origin("DELETE", b"null")
    assert foreign_origin("POST", b"https://localhost:80")
    assert foreign_origin("POST", b"https://page.example", "https://other.example")
    assert not foreign_origin("GET", b"https://page.example")
    assert not foreign_origin("POST", b"http://localhost:80")
    assert not foreign_origin("POST", b"https://page.example", "https://page.example")
    assert not foreign_origin("POST", b"https://page.example", "*")
    assert not foreign_origin("POST", None)


@pytest.mark.parametrize(
    ("address", "host", "refused"),
    [
        ("127.0.0.1", b"page.example:80", True),
        ("127.0.0.1", b"localhost.page.example", True),
        ("127.0.0.1", b"localhost:8080", False),
        ("127.0.0.1", b"LOCALHOST", False),
        ("127.0.0.1", b"127.0.0.1:1", False),
        ("127.9.9.9", b"app.localhost:80", False),
        ("::1", b"[::1]:80", False),
        ("::1", b"page.example", True),
        ("10.0.0.1", b"page.example", False),
        ("127.0.0.1", None, False),
    ],
)
def test_a_page_cannot_take_a_name_for_loopback(address, host, refused):
    headers = {} if host is None else {b"host": host}
    if refused:
        with pytest.raises(Refusal, match="localhost"):
            check_host(address, headers)
    else:
        check_host(address, headers)
    assert is_loopback(address) == (address != "10.0.0.1")


@pytest.fixture(scope="module")
def shared(broker) -> Iterator[httpx.Client]:
    """The door of a gateway that lets one page in."""
    process = GatewayProcess(broker.url, http=("tcp://127.0.0.1:0",), settings={"cors": PAGE})
    try:
        with httpx.Client(base_url=process.http_url, trust_env=False, timeout=60) as client:
            yield client
    finally:
        assert process.stop() == 0


def test_an_allowed_page_reads_and_writes(shared, key):
    path = f"/api/v1/queues/{key}/messages"
    asked = {"origin": PAGE, "access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    answer = shared.options(path, headers=asked)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, PAGE)
    answer = shared.post(path, json={"value": "x"}, headers={"origin": PAGE})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (201, PAGE)
    exposed = shared.get(path, headers={"origin": PAGE}).headers["access-control-expose-headers"]
    assert "Penstock-Next" in exposed


def test_another_page_does_not(shared, key):
    path, other = f"/api/v1/queues/{key}/messages", {"origin": "https://other.example"}
    answer = shared.post(path, json={"value": "x"}, headers=other)
    assert (answer.status_code, answer.json()["code"]) == (403, "foreign_origin")
    assert "access-control-allow-origin" not in answer.headers
    assert shared.get("/health", headers=other).headers.get("access-control-allow-origin") is None


def test_a_name_from_elsewhere_is_refused(shared, key):
    answer = shared.get("/api/v1/queues", headers={"host": "page.example"})
    assert (answer.status_code, answer.json()["code"]) == (403, "foreign_host")
