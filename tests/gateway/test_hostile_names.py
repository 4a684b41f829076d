"""Two hundred hostile names at each door: refused, or kept as nothing but text, and other clients are served."""

from __future__ import annotations

import http.client
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import penstock
import pytest
from penstock.broker import access_file
from penstock.broker.errors import InvalidUsers
from penstock.broker.rights import Grant
from penstock.transport import messages as m
from penstock.transport.names import is_name
from support import samples
from support.hostile_names import HOSTILE_NAMES, shown
from support.processes import Serving
from support.raw_client import RawClient

from .conftest import NEEDS, GatewayProcess

AS_TEXT = [name for name in HOSTILE_NAMES if name.encode("utf-8", "ignore").decode() == name]
"""Those that can be sent as UTF-8."""

MAKERS = [
    (m.CreateTopic, "name"), (m.OpenProducer, "name"), (m.Join, "group"), (m.Join, "member"), (m.SetQueue, "group"),
    (m.Lease, "group"), (m.BeginGroup, "group"), (m.SetSchedule, "name"), (m.SettleTasks, "group"),
    (m.CommitTransaction, "transaction"), (m.Commit, "group"), (m.PauseQueue, "group"), (m.SetWorker, "group"),
    (m.Claim, "group"), (m.SettleRecords, "group"), (m.RedriveDead, "group"), (m.CancelTask, "group"),
]  # fmt: skip
"""Messages that make what they name, or change it."""

GIVEN: dict[type, dict[str, Any]] = {m.CommitTransaction: {"stages": []}, m.Commit: {"session": 0, "positions": []}}
"""What else such a message says, so that only its name is wrong."""

ALLOWED = {(m.Join, "group"): {""}, (m.CommitTransaction, "transaction"): {"~root", "~a"}}
"""Names that mean something there: none, and a transaction that is committed once."""


@pytest.fixture
def raw(broker: Serving) -> Any:
    with RawClient(broker.url) as client:
        yield client


@pytest.mark.parametrize(("kind", "field"), MAKERS, ids=lambda each: each if isinstance(each, str) else each.__name__)
def test_a_broker_makes_nothing_of_such_a_name(raw: RawClient, kind: type, field: str):
    topic = raw.create_topic("hostile")
    sample = next(message for message, _ in samples.REQUESTS if type(message) is kind)
    changes = ({"topic": topic} if "topic" in sample.__struct_fields__ else {}) | GIVEN.get(kind, {})

    def answer(name: str) -> object:
        return raw.ask(lambda request: samples_with(sample, request=request, **changes, **{field: name}))[0]

    answers = {name: answer(name) for name in AS_TEXT}
    refused = {name for name, answer in answers.items() if isinstance(answer, m.Failure)}
    allowed = ALLOWED.get((kind, field), set())
    assert [shown(name) for name in AS_TEXT if name not in refused and name not in allowed] == []
    assert not isinstance(raw.ask(m.Ping)[0], m.Failure)


def samples_with(sample: Any, **changes: Any) -> Any:
    return type(sample)(**{name: getattr(sample, name) for name in sample.__struct_fields__} | changes)


def test_an_embedded_broker_refuses_them_too(tmp_path: Path):
    with penstock.connect(f"file://{tmp_path}/data") as client:
        for name in HOSTILE_NAMES:
            with pytest.raises(penstock.Error):
                client.create_topic(name)
        assert client.topics() == []


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/v1/queues/{}/messages", b'{"value": "x"}'),
        ("GET", "/api/v1/queues/{}/consumers/c/messages?timeout_ms=0", None),
        ("POST", "/api/v1/queues/hostile/consumers/{}/commit", b'{"next": {"0": 0}}'),
        ("GET", "/api/v1/queues/hostile/consumers/{}/messages?timeout_ms=0", None),
        ("PUT", "/api/v1/topics/hostile/groups/{}", b"{}"),
        ("GET", "/topics/{}", None),
        ("GET", "/queues/hostile/{}", None),
        ("PUT", "/schedules/hostile/{}", b'{"spec": "every 30s", "value": "x"}'),
        ("PUT", "/schedules/{}/daily", b'{"spec": "every 30s", "value": "x"}'),
        ("DELETE", "/barriers/hostile/{}", None),
        ("GET", "/tasks/{}-0-0", None),
        ("POST", "/tasks/{}-0-0/ack", b"{}"),
        ("POST", "/api/v1/topics/hostile/groups/{}/pause", b"{}"),
        ("DELETE", "/api/v1/topics/{}", None),
    ],
)
def test_http_refuses_them_and_shows_none_as_markup(gateway: GatewayProcess, native, method, path, body):
    native.create_topic("hostile", if_missing=True)
    place = urlsplit(gateway.http_url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
    served = []
    for name in HOSTILE_NAMES:
        escaped = quote(name.encode("utf-8", "surrogatepass"), safe="").replace(".", "%2E")
        connection.request(method, path.format(escaped), body, {"content-type": "application/json"} if body else {})
        answer = connection.getresponse()
        page = answer.read()
        if (answer.getheader("content-type") or "").startswith("text/html"):
            assert b"<script>alert" not in page
            assert b"<img src=x" not in page
        assert answer.getheader("set-cookie") is None
        if not 400 <= answer.status < 500:
            served.append((shown(name), answer.status))
    connection.close()
    assert served == []


@pytest.mark.parametrize(
    ("path", "field", "more"),
    [
        ("/api/v1/topics", "name", {}), ("/tasks", "queue", {"value": "x"}), ("/tasks/lease", "queue", {}),
        ("/tasks/lease", "group", {"queue": "hostile"}), ("/dead-letters/redrive", "queue", {}),
        ("/dead-letters/discard", "group", {"queue": "hostile"}),
        ("/api/v1/topics", "settings", {"name": "settings"}),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)  # fmt: skip
def test_http_refuses_them_in_bodies(gateway: GatewayProcess, native, path: str, field: str, more: dict[str, Any]):
    native.create_topic("hostile", if_missing=True)
    before = {topic.name for topic in native.topics()}
    place = urlsplit(gateway.http_url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
    served = []
    for name in HOSTILE_NAMES:
        body = json.dumps(more | {field: {name: 1} if field == "settings" else name})
        connection.request("POST", path, body, {"content-type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        if not 400 <= answer.status < 500:
            served.append((shown(name), answer.status))
    connection.close()
    assert served == []
    assert {topic.name for topic in native.topics()} == before


@pytest.mark.parametrize("command", ["XGROUP CREATE", "XREADGROUP"])
def test_groups_of_redis_clients_are_names_that_others_see_or_an_error(gateway: GatewayProcess, native, command: str):
    redis = pytest.importorskip("redis", reason=NEEDS)
    topic = f"hostile-{command.split()[-1].lower()}"
    native.create_topic(topic)
    resp = redis.Redis(port=gateway.port, socket_timeout=120)
    kept, said = 0, set[str]()
    for name in HOSTILE_NAMES:
        word = name.encode("utf-8", "surrogateescape" if "\udcff" in name else "surrogatepass")
        try:
            if command == "XREADGROUP":
                resp.execute_command("XREADGROUP", "GROUP", word, word, "COUNT", 1, "STREAMS", topic, ">")
            else:
                resp.execute_command("XGROUP", "CREATE", topic, word, "0")
        except redis.RedisError as error:
            said.add(str(error).partition(":")[0])
            continue
        kept += 1
    made = {queue.name for queue in native.queues(topic)}
    assert len(made) == kept, "no two names are one group"
    assert [name for name in made if not is_name(name)] == []
    assert not [each for each in said if "the gateway failed" in each]
    assert resp.ping()
    resp.close()


def test_redis_clients_get_topics_of_escaped_names_or_an_error(gateway: GatewayProcess, native, folder: Path):
    redis = pytest.importorskip("redis", reason=NEEDS)
    resp = redis.Redis(port=gateway.port, socket_timeout=120)
    before = {topic.name for topic in native.topics()}
    kept = []
    for name in HOSTILE_NAMES:
        key = name.encode("utf-8", "surrogateescape" if "\udcff" in name else "surrogatepass")
        try:
            resp.xadd(key, {"value": "x"})
        except redis.ResponseError:
            continue
        kept.append(key)
    made = {topic.name for topic in native.topics()} - before
    assert len(kept) > 100
    assert len(made) == len(kept), "no two keys are one topic"
    assert [name for name in made if not is_name(name)] == []
    assert set(resp.keys("*")) >= set(kept)
    topics = folder / "data/topics"
    assert [each.name for each in topics.iterdir() if not re.fullmatch(r"[0-9a-f]{32}", each.name)] == []
    assert resp.delete(*kept) == len(kept)
    resp.close()


def test_an_access_file_takes_none_of_them(tmp_path: Path):
    path = str(tmp_path / "access")
    for name in HOSTILE_NAMES:
        with pytest.raises(InvalidUsers):
            access_file.add_password(path, name, "x")
        for pattern in (f"topic:{name}", f"group:{name}", f"transaction:{name}"):
            if name not in ("*", "a*"):
                with pytest.raises(InvalidUsers):
                    access_file.add_grant(path, "ann", Grant(False, frozenset(["read"]), pattern))
    assert not Path(path).exists()
