"""The id of a request: what a client sends comes back, and what fails has one that the log has, too."""

from __future__ import annotations

import asyncio
import logging
import re
from types import SimpleNamespace
from typing import cast

import pytest
from penstock.gateway.holding import HeldBytes
from penstock.gateway.http.app import application
from penstock.gateway.http.operation import JSON, HttpCall, HttpGateway, HttpOperation, Reply

NAME = "x-request-id"
OURS = re.compile(r"[0-9a-f]{32}")


def test_the_id_of_a_client_comes_back(http, key):
    sent = {NAME: "order-17/a!~"}
    for path, status in (("/api/v1/queues", 200), (f"/api/v1/queues/{key}", 404), ("/nowhere", 404)):
        answer = http.get(path, headers=sent)
        assert (answer.status_code, answer.headers[NAME]) == (status, sent[NAME])


def test_what_succeeds_without_an_id_has_none_and_what_fails_has_its_own(http, key):
    assert NAME not in http.get("/api/v1/queues").headers
    made = [http.get(path).headers[NAME] for path in (f"/api/v1/queues/{key}", "/nowhere") * 2]
    assert all(map(OURS.fullmatch, made))
    assert len(set(made)) == 4


@pytest.mark.parametrize("wrong", ["", "a b", "a\tb", "x" * 129, "\xe9"])
def test_what_cannot_be_an_id_counts_as_none(http, key, wrong):
    sent = {NAME: wrong.encode("latin-1")}
    assert OURS.fullmatch(http.get(f"/api/v1/queues/{key}", headers=sent).headers[NAME])
    assert NAME not in http.get("/api/v1/queues", headers=sent).headers


def test_a_stream_has_it_too(http, key):
    http.put(f"/api/v1/queues/{key}")
    http.post(f"/api/v1/queues/{key}/messages", json={"value": "a"})
    with http.stream("GET", f"/api/v1/queues/{key}/tail?start=earliest", headers={NAME: "x" * 128}) as answer:
        assert answer.headers[NAME] == "x" * 128


async def asked(row: HttpOperation, headers: list[tuple[bytes, bytes]]) -> list[dict]:
    door = cast("HttpGateway", SimpleNamespace(origins=(), users=None, ending=None))
    sent: list[dict] = []

    async def receive() -> dict:
        return {"type": "http.request", "body": b"{}"}

    async def send(event: dict) -> None:
        sent.append(event)

    scope = {
        "type": "http", "method": "POST", "path": "/", "headers": [(b"content-type", JSON.encode()), *headers],
        "query_string": b"", "scheme": "http", "server": None,
    }  # fmt: skip
    await application(door, [row], 1000, HeldBytes(1000))(scope, receive, send)
    return sent


def test_the_log_has_the_id_of_what_failed_inside(caplog):
    async def fail(call: HttpCall) -> Reply:
        raise OSError("no disk")

    row = HttpOperation(
        method="POST", path="/", name="fail", tag="topics", handler=fail, summary="", takes=(JSON,), open=True
    )
    caplog.set_level(logging.INFO, "penstock.gateway")
    start, _ = asyncio.run(asked(row, [(NAME.encode(), b"order-17")]))
    assert (start["status"], dict(start["headers"])[NAME.encode()]) == (500, b"order-17")
    said = [(each.levelname, each.getMessage()) for each in caplog.records]
    assert said == [
        ("ERROR", "request order-17 failed inside the gateway"), ("INFO", "request order-17: POST '/': 500"),
    ]  # fmt: skip
