"""What the door refuses: each status means one thing, and every error says what to do."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import cast
from urllib.parse import urlsplit

import pytest
from penstock.broker import errors as broker_errors
from penstock.clients import errors as client_errors
from penstock.gateway.holding import HeldBytes
from penstock.gateway.http.app import _failed, application
from penstock.gateway.http.operation import JSON, HttpCall, HttpGateway, HttpOperation, Reply
from penstock.gateway.http.problems import PHRASES, Problem, problem_of, status_of
from penstock.storage import errors
from penstock.transport import errors as transport_errors

JSON_BODY = {"content-type": "application/json"}


def refused(answer, status: int, code: str, *, retryable: bool = False) -> str:
    found = answer.json()
    assert (answer.status_code, found["code"], found["retryable"]) == (status, code, retryable), answer.text
    assert answer.headers["content-type"] == "application/json"
    assert set(found) == {"code", "message", "retryable"}
    return found["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"1", b'{"value": 1}', b"{}", b'{"value": "a", "json": 1}', b'{"value": "a", "other": 1}',
        b'{"value": "a", "value_base64": "YQ=="}', b'{"value_base64": "%"}', b'{"value": "\xff"}', b'{"json": {}',
        b'{"value": "a", "key": "a", "key_base64": "YQ=="}', b'{"value": "\\ud800"}', b'[{"value": "a"}, {}]',
        b'{"value": "a", "headers": {"a": "1"}, "headers_base64": {"a": "YQ=="}}', b'{"value": "a", "headers": 1}',
        b'{"value_base64": "YQ==", "json": 1}', b'{"value": "a", "partition": -1}',
        b'{"value": "a", "timestamp": 1e300}',
        b'{"json": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", b"[[]," * 100_000,
    ],
)  # fmt: skip
def test_a_malformed_message_is_400(http, key, body):
    assert http.post(f"/api/v1/queues/{key}/messages", content=body, headers=JSON_BODY).status_code == 400
    assert http.get(f"/api/v1/queues/{key}").status_code == 404


def test_an_error_of_a_body_says_what_it_may_hold(http, key):
    message = refused(http.post("/api/v1/topics", json={"name": key, "sise": 1}), 400, "invalid_request")
    assert message.endswith("`sise`; createTopic takes name, partitions, if_missing, settings")
    message = refused(http.post(f"/api/v1/queues/{key}/messages", json={"valu": 1}), 400, "invalid_request")
    assert "takes value, value_base64, json, key" in message
    nested = {"name": key, "settings": 1}
    assert "takes" not in refused(http.post("/api/v1/topics", json=nested), 400, "invalid_request")
    message = refused(http.post(f"/tasks/{key}-0-0/ack"), 415, "unsupported_media_type")
    assert message.endswith("takes application/json: say so in Content-Type")
    trim = f"/api/v1/topics/{key}/trim"
    assert "before_offset" in refused(http.post(trim, json={}), 400, "invalid_argument")
    assert "give partition" in refused(http.post(trim, json={"before_offset": 3}), 400, "invalid_argument")


def test_other_malformed_requests_are_400(http, key):
    http.post(f"/api/v1/queues/{key}/messages", json={"value": "x"})
    path, own = f"/api/v1/queues/{key}/messages", f"/api/v1/queues/{key}/consumers/me"
    for query in ("max_messages=0", "max_messages=10001", "timeout_ms=60001", "timeout_ms=x", "typo=1", "offset=-1"):
        refused(http.get(f"{path}?{query}"), 400, "invalid_request")
    refused(http.get(path, params={"a": ["1"] * 200}), 400, "invalid_request")
    refused(http.post(f"{own}/commit", json={"next": {"0": 2}}), 400, "invalid_argument")
    refused(http.post(f"{own}/commit", json={"next": {}}), 400, "invalid_request")
    refused(http.post(f"{own}/seek", json={"to": "yesterday"}), 400, "invalid_argument")
    assert "zone" in refused(http.post(f"{own}/seek", json={"to": "2026-01-01T00:00:00"}), 400, "invalid_argument")
    refused(http.post("/api/v1/topics", json={"name": "a b"}), 400, "invalid_topic")
    refused(http.post("/api/v1/topics", json={"name": key + "s", "settings": {"no": 1}}), 400, "invalid_settings")
    refused(http.get(path, params={"partition": 1}), 404, "unknown_partition")


def test_what_has_one_value_is_given_once(http, key):
    path, own = f"/api/v1/queues/{key}/messages", f"/api/v1/queues/{key}/consumers/me"
    http.post(path, json=[{"value": "x"}] * 3)
    assert "query" in refused(http.get(path + "?offset=1&offset=2"), 400, "invalid_request")
    assert "query" in refused(http.get(path + "?offset=1&%6fffset=1"), 400, "invalid_request")
    for place, body in [
        (path, b'{"value": "a", "value": "b"}'), (path, b'{"value": "a", "v\\u0061lue": "b"}'),
        (path, b'[{"value": "a"}, {"value": "a", "key": "1", "key": "1"}]'),
        (path, b'{"value": "a", "headers": {"a": "1", "a": "2"}}'),
        (f"{own}/commit", b'{"next": {"0": 1, "0": 2}}'), (f"{own}/commit", b'{"next": {"0": 1}, "next": {"0": 1}}'),
    ]:  # fmt: skip
        assert "two fields" in refused(http.post(place, content=body, headers=JSON_BODY), 400, "invalid_request")
    lines = {"content-type": "application/x-ndjson"}
    refused(http.post(path, content=b'{"value": "a", "value": "b"}\n', headers=lines), 400, "invalid_request")
    twice = [("content-type", "text/plain"), ("penstock-header-a", "1"), ("Penstock-Header-A", "2")]
    assert "header" in refused(http.post(path, content=b"x", headers=twice), 400, "invalid_request")
    assert http.get(path + "?max_messages=10").json()["next"] == {"0": 3}


def test_a_value_of_the_clients_own_may_repeat_fields(http, key):
    path = f"/api/v1/queues/{key}/messages"
    for body in (
        b'{"json": {"a": 1, "a": 2}, "key": "k"}',
        b'{"json": [{"a": 1, "a": %s}], "key": "k"}' % (b"9" * 5000),
    ):
        assert http.post(path, content=body, headers=JSON_BODY).status_code == 201
    assert http.get(path).json()["messages"][0]["value"] == '{"a": 1, "a": 2}'


def test_a_body_that_is_encoded_is_415(http, key):
    path = f"/api/v1/queues/{key}/messages"
    for encoding in ("gzip", "deflate", "br", "identity, gzip", "x"):
        headers = {**JSON_BODY, "content-encoding": encoding}
        refused(http.post(path, content=b"{}", headers=headers), 415, "unsupported_encoding")
    headers = {**JSON_BODY, "content-encoding": "Identity"}
    assert http.post(path, json={"value": "x"}, headers=headers).status_code == 201


def test_what_is_not_there_is_404(http, key):
    refused(http.get(f"/api/v1/queues/{key}"), 404, "unknown_topic")
    refused(http.get(f"/api/v1/queues/{key}/messages"), 404, "unknown_topic")
    refused(http.post(f"/api/v1/queues/{key}/consumers/me/commit", json={"next": {"0": 0}}), 404, "unknown_topic")
    refused(http.get("/nowhere"), 404, "no_such_path")
    http.post(f"/api/v1/queues/{key}/messages", json={"value": "x"})
    refused(http.get(f"/api/v1/queues/{key}/consumers/me"), 404, "unknown_group")
    refused(http.get(f"/api/v1/queues/{key}/messages", params={"offset": 9}), 404, "out_of_bounds")
    refused(http.post(f"/api/v1/queues/{key}/consumers/me/commit", json={"next": {"1": 0}}), 404, "unknown_partition")
    refused(http.post(f"/api/v1/queues/{key}/messages", json={"value": "x", "partition": 1}), 404, "unknown_partition")


def test_a_method_that_a_path_has_not_is_405(http, key):
    answer = http.put(f"/api/v1/queues/{key}")
    refused(answer, 405, "no_such_method")
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD"}


def test_a_conflict_is_409(http, key, native):
    http.post(f"/api/v1/queues/{key}/messages", json={"value": "x"})
    refused(http.post("/api/v1/topics", json={"name": key}), 409, "topic_exists")
    with native.consumer(key, group="me"):
        refused(http.post(f"/api/v1/queues/{key}/consumers/me/commit", json={"next": {"0": 0}}), 409, "group_active")


def test_what_is_too_large_is_413(http, key):
    http.post("/api/v1/topics", json={"name": key, "settings": {"max_record_bytes": 1000}})
    path = f"/api/v1/queues/{key}/messages"
    refused(http.post(path, json={"value": "x" * 1001}), 413, "record_too_large")
    refused(http.post(path, json=[{"value": "x" * 1001}] * 100), 413, "record_too_large")
    assert http.post(path, json={"value": "x" * 1000}).status_code == 201
    refused(http.post(path, content=b"x" * (33 << 20), headers=JSON_BODY), 413, "body_too_large")
    assert http.get("/health").status_code == 200  # on the same connection


def test_each_request_gives_back_what_it_held():
    held, sent = HeldBytes(200), []

    async def echo(call: HttpCall) -> Reply:
        return Reply(call.body)

    row = HttpOperation(
        method="POST", path="/", name="echo", tag="topics", handler=echo, summary="", takes=(JSON,), open=True
    )
    app = application(cast("HttpGateway", SimpleNamespace(origins=(), users=None, ending=None)), [row], 1000, held)

    async def post(size: int) -> None:
        async def receive() -> dict:
            return {"type": "http.request", "body": b"x" * size}

        async def send(event: dict) -> None:
            sent.append(event)

        headers = [(b"content-type", JSON.encode())]
        await app({"type": "http", "method": "POST", "path": "/", "headers": headers, "query_string": b"",
                   "scheme": "http", "server": None}, receive, send)  # fmt: skip

    for size in (100, 100, 101, 100):  # each is held twice: the body, and the reply
        asyncio.run(post(size))
    assert [event["status"] for event in sent if "status" in event] == [200, 200, 429, 200]


def test_too_many_messages_are_refused_before_they_are_taken(http, key):
    path = f"/api/v1/queues/{key}/messages"
    for kind in ("text/plain", "application/x-ndjson"):
        for content in (b"\n" * 100_001, b"\n" * 100_000 + b"the last"):
            refused(http.post(path, content=content, headers={"content-type": kind}), 413, "too_many_messages")
    answer = http.post(path, content=b"\n" * 100_000, headers={"content-type": "application/x-ndjson"})
    refused(answer, 400, "invalid_request")
    listed = b"[" + b'{"value":""},' * 100_000 + b'{"value":""}]'
    refused(http.post(path, content=listed, headers=JSON_BODY), 400, "invalid_request")
    assert http.get(f"/api/v1/queues/{key}").status_code == 404


def test_what_is_nested_too_deep_is_400(http, key):
    body = b'{"json": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    refused(http.post(f"/api/v1/queues/{key}/messages", content=body, headers=JSON_BODY), 400, "invalid_request")


def test_a_media_type_that_is_not_taken_is_415(http, key):
    for kind in ("application/xml", "application/x-www-form-urlencoded", ""):
        refused(
            http.post(f"/api/v1/queues/{key}/messages", content=b"x", headers={"content-type": kind}),
            415, "unsupported_media_type",
        )  # fmt: skip


def test_every_error_of_penstock_has_a_status_that_is_documented():
    loaded = (errors, broker_errors, client_errors, transport_errors)
    kinds = {kind for module in loaded for kind in vars(module).values() if isinstance(kind, type)}
    found = {kind.code: status_of(kind("it failed")) for kind in kinds if issubclass(kind, errors.Error)}
    assert set(found.values()) <= set(PHRASES)
    wanted = {
        "invalid_argument": 400, "invalid_topic": 400, "invalid_settings": 400, "invalid_request": 400,
        "forbidden": 403,
        "too_much_asked": 400, "unknown_topic": 404, "unknown_group": 404, "unknown_task": 404, "task_forgotten": 404,
        "out_of_bounds": 404, "topic_exists": 409, "group_active": 409, "lease_lost": 409, "unknown_lease": 409,
        "record_too_large": 413, "batch_too_large": 413, "message_too_large": 413, "limit_reached": 429,
        "unavailable": 503, "no_leader": 503, "timed_out": 503, "poisoned": 503, "storage_full": 503, "corrupt": 503,
        "closed": 503,
    }  # fmt: skip
    assert {code: found[code] for code in wanted} == wanted


def test_a_problem_says_whether_waiting_helps():
    assert problem_of(client_errors.TimedOut("late")) == Problem("timed_out", "late", True)
    assert problem_of(errors.Poisoned("gone")) == Problem("poisoned", "gone", False)


def test_a_node_that_does_not_lead_names_the_leader():
    error = broker_errors.NotLeader("it follows")
    error.where = "tcp://b:7070"
    reply = _failed(error, [], b"1")
    assert (reply.status, dict(reply.headers)[b"penstock-leader"]) == (503, b"tcp://b:7070")
    assert "not_leader" in str(reply.body)


LARGE = b"POST /api/v1/queues/q/messages HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: %s\r\n"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (LARGE % b"application/json" + b"content-length: 99999999\r\n\r\n", 413),
        (LARGE % b"text/xml" + b"content-length: 99999999\r\n\r\n", 415),
        (LARGE % b"text/plain" + b"a: ", 431),
        (b"*1\r\n", 400),
    ],
)
def test_a_client_that_still_sends_reads_why_it_was_refused(gateway, head, status):
    url = urlsplit(gateway.http_url)
    with socket.create_connection((url.hostname, url.port), timeout=30) as peer:
        peer.sendall(head)
        for _ in range(30):
            peer.sendall(b"x" * (1 << 20))
        answer = b""
        while data := peer.recv(1 << 16):
            answer += data
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer
    assert answer.count(b"HTTP/1.1") == 1
