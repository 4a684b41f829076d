"""Doors with grants: each operation and command is allowed with all that it needs, and refused without any of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from penstock.broker import access_file
from penstock.clients import connect
from penstock.clients.barriers.descriptions import Callback, GroupTask
from penstock.gateway.http.table import TABLE as HTTP
from penstock.gateway.resp.table import TABLE as RESP

from .conftest import NEEDS, GatewayProcess

httpx = pytest.importorskip("httpx", reason=NEEDS)

T = "gtopic"
QUEUE, GROUP = f"/api/v1/queues/{T}", f"/api/v1/topics/{T}/groups/g"
SEE, READ, WRITE, MANAGE = (f"{each} topic:{T}" for each in ("see", "read", "write", "manage"))
TAKE, ADMIN = f"read group:{T}/g", f"manage group:{T}/g"
WORK = (READ, TAKE)
FOLLOW = (READ, f"read group:{T}/c")
TASK = f"/tasks/{T}-0-0"

Asked = tuple[str, str, Any]

OPERATIONS: dict[str, tuple[Asked, Sequence[str]]] = {
    "produce": (("POST", f"{QUEUE}/messages", {"value": "x"}), [WRITE]),
    "enqueue": (("POST", "/tasks", {"queue": T, "value": "x"}), [WRITE]),
    "lease": (("POST", "/tasks/lease", {"queue": T, "group": "g", "worker": "w"}), WORK),
    "getTask": (("GET", f"{TASK}?group=g", None), [TAKE]),
    **{
        verb: (("POST", f"{TASK}/{verb}", {"group": "g"}), WORK)
        for verb in ("ack", "nack", "reject", "release")
    },
    "extend": (("POST", f"{TASK}/extend", {"group": "g", "lease": "1"}), WORK),
    "cancel": (("POST", f"{TASK}/cancel", {"group": "g"}), [f"write group:{T}/g"]),
    "consume": (("GET", f"{QUEUE}/consumers/c/messages", None), FOLLOW),
    "commit": (("POST", f"{QUEUE}/consumers/c/commit", {"next": {"0": 0}}), FOLLOW),
    "seek": (("POST", f"{QUEUE}/consumers/c/seek", {"to": "earliest"}), FOLLOW),
    "listConsumers": (("GET", f"{QUEUE}/consumers", None), [SEE]),
    "getConsumer": (("GET", f"{QUEUE}/consumers/c", None), [f"read group:{T}/c"]),
    "deleteConsumer": (("DELETE", f"{QUEUE}/consumers/c", None), [f"manage group:{T}/c"]),
    "browse": (("GET", f"{QUEUE}/messages", None), [READ]),
    "getQueue": (("GET", QUEUE, None), [SEE]),
    "tail": (("GET", f"{QUEUE}/tail", None), [READ]),
    "stats": (("GET", "/stats", None), ["see node"]),
    "metrics": (("GET", "/metrics", None), ["see node"]),
    "statsEvents": (("GET", "/stats/events", None), ["see node"]),
    "listGroups": (("GET", f"/api/v1/topics/{T}/groups", None), [SEE]),
    "getGroup": (("GET", GROUP, None), [f"see group:{T}/g"]),
    "setGroup": (
        ("PUT", GROUP, {"settings": {"dead_topic": "gother"}}), [ADMIN, "write topic:gother"],
    ),
    "deleteGroup": (("DELETE", GROUP, None), [ADMIN]),
    "pause": (("POST", f"{GROUP}/pause", {}), [ADMIN]),
    "resume": (("POST", f"{GROUP}/resume", None), [ADMIN]),
    "listWorkers": (("GET", f"{GROUP}/workers", None), WORK),
    "forgetWorker": (("DELETE", f"{GROUP}/workers/w", None), WORK),
    "deadLetters": (("GET", f"/dead-letters?queue={T}&group=g", None), WORK),
    "redrive": (("POST", "/dead-letters/redrive", {"queue": T, "group": "g"}), [ADMIN]),
    "discard": (("POST", "/dead-letters/discard", {"queue": T, "group": "g"}), [ADMIN]),
    "setSchedule": (
        ("PUT", f"/schedules/{T}/s", {"spec": "every 1h", "value": "x"}), [WRITE, f"manage schedule:{T}/s"],
    ),
    "deleteSchedule": (("DELETE", f"/schedules/{T}/s", None), [f"manage schedule:{T}/s"]),
    "deleteBarrier": (("DELETE", f"/barriers/{T}/{'0' * 32}", None), [MANAGE]),
    "createTopic": (("POST", "/api/v1/topics", {"name": T}), [MANAGE]),
    "getTopic": (("GET", f"/api/v1/topics/{T}", None), [SEE]),
    "alterTopic": (("PATCH", f"/api/v1/topics/{T}", {"settings": {"retention_s": 1000}}), [MANAGE]),
    "trimTopic": (("POST", f"/api/v1/topics/{T}/trim", {"records": 5}), [MANAGE]),
    "deleteTopic": (("DELETE", "/api/v1/topics/gother", None), ["manage topic:gother"]),
}  # fmt: skip
OPEN = {"health", "live", "openapi", "docs"}
FILTERED = {"listQueues", "listTopics", "listSchedules", "listBarriers"}

COMMANDS: dict[str, tuple[str, Sequence[str]]] = {
    "EXISTS": (f"EXISTS {T}", [SEE]),
    "TYPE": (f"TYPE {T}", [SEE]),
    "DEL": ("DEL gother", ["manage topic:gother"]),
    "XADD": (f"XADD {T} * f v", [WRITE]),
    "XDEL": (f"XDEL {T} 1-0", [MANAGE]),
    "XLEN": (f"XLEN {T}", [READ]),
    "XRANGE": (f"XRANGE {T} - +", [READ]),
    "XREVRANGE": (f"XREVRANGE {T} + -", [READ]),
    "XREAD": (f"XREAD STREAMS {T} 0", [READ]),
    "XTRIM": (f"XTRIM {T} MAXLEN 1000", [MANAGE]),
    "XINFO": (f"XINFO CONSUMERS {T} g", WORK),
    "XGROUP": (f"XGROUP SETID {T} g 0", [SEE, ADMIN]),
    "XREADGROUP": (f"XREADGROUP GROUP g c STREAMS {T} >", WORK),
    "XACK": (f"XACK {T} g 1-0", WORK),
    "XCLAIM": (f"XCLAIM {T} g c 0 1-0", WORK),
    "XAUTOCLAIM": (f"XAUTOCLAIM {T} g c 0 0", WORK),
    "XPENDING": (f"XPENDING {T} g", WORK),
    "CREATE": (f"CREATE {T}", [MANAGE]),
    "DELETE": ("DELETE gother", ["manage topic:gother"]),
    "ENQUEUE": (f"ENQUEUE {T} x", [WRITE]),
    "LISTEN": (f"LISTEN {T} g", WORK),
    "OFFSET": (f"OFFSET {T} g", WORK),
    "STATS": (f"STATS {T}", [SEE]),
    "CONSUMERS": (f"CONSUMERS {T}", [SEE]),
}
SHOWN = {"KEYS", "SCAN", "DBSIZE", "TOPICS"}  # what may be seen


class Granted:
    """A gateway, and a file that says what ann may do."""

    def __init__(self, process: GatewayProcess, path: Path, head: str, token: str) -> None:
        self.process, self.path, self._head, self.token = process, path, head, token

    def allow(self, needs: Sequence[str]) -> None:
        lines = ["ann:allow:" + need.replace(" ", ":", 1) for need in needs]
        access_file._write(str(self.path), "\n".join([self._head, *lines]) + "\n")


@pytest.fixture(scope="module")
def granted(broker, tmp_path_factory) -> Iterator[Granted]:
    path = tmp_path_factory.mktemp("grants") / "access"
    access_file.add_password(str(path), "ann", "x")
    token, _ = access_file.add_token(str(path), "ann")
    with connect(broker.ready["listen"][0]) as client:
        for name in (T, "gother"):
            client.create_topic(name, if_missing=True)
        client.set_queue(T, "g")
    process = GatewayProcess(
        broker.url, "tcp://127.0.0.1:0", http=("tcp://127.0.0.1:0",), options=("--access", str(path))
    )
    try:
        yield Granted(process, path, path.read_text().rstrip(), token)
    finally:
        assert process.stop() == 0


def test_every_row_is_tested():
    assert {row.name for row in HTTP} == {*OPERATIONS, *OPEN, *FILTERED}
    assert {name for name, row in RESP.items() if row.group not in ("connection", "server", "transactions")} == {
        *COMMANDS, *SHOWN,
    }  # fmt: skip


def cases(needs: Sequence[str]) -> list[tuple[list[str], bool]]:
    """Grants, and whether they are enough."""
    without = [[each for each in needs if each != missing] for missing in needs]
    return [(list(needs), True), *((each, False) for each in without)]


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name != "deleteTopic"] + ["deleteTopic"])
def test_an_operation_of_http_needs_what_the_table_says(granted: Granted, name: str):
    (method, path, body), needs = OPERATIONS[name]
    with httpx.Client(base_url=granted.process.http_url, trust_env=False, timeout=60) as client:
        for grants, is_enough in reversed(cases(needs)):
            granted.allow(grants)
            headers = {"authorization": f"Bearer {granted.token}"}
            with client.stream(method, path, json=body, headers=headers) as answer:
                forbidden = answer.status_code == 403
            assert forbidden is not is_enough, (grants, answer.status_code)
            assert answer.status_code not in (400, 401, 405, 415, 500)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_of_redis_needs_what_the_table_says(granted: Granted, name: str):
    redis = pytest.importorskip("redis", reason=NEEDS)
    command, needs = COMMANDS[name]
    for grants, is_enough in reversed(cases(needs)):
        granted.allow(grants)
        with redis.Redis(port=granted.process.port, username="ann", password="x") as client:
            try:
                client.execute_command(*command.split())
                refused = ""
            except redis.ResponseError as error:
                refused = str(error)
        assert ("no permission" in refused) is not is_enough, (grants, refused)


def test_lists_show_what_may_be_seen(granted: Granted, broker):
    redis = pytest.importorskip("redis", reason=NEEDS)
    headers = {"authorization": f"Bearer {granted.token}"}
    with connect(broker.ready["listen"][0]) as client:
        client.set_queue(T, "g")
        for then in (T, "gother"):
            client.create_topic(then, if_missing=True)
            client.send_group([GroupTask(T, "g", b"x")], then=Callback(then))
    for needs, seen in (([], []), ([READ], [T])):
        granted.allow(needs)
        for path in ("/api/v1/topics", "/api/v1/queues"):
            found = httpx.get(granted.process.http_url + path, headers=headers, trust_env=False).json()
            assert [each["name"] for each in (found if isinstance(found, list) else next(iter(found.values())))] == seen
        found = httpx.get(granted.process.http_url + "/barriers", headers=headers, trust_env=False).json()["barriers"]
        assert {each["queue"] for each in found} == set(seen)
        with redis.Redis(port=granted.process.port, username="ann", password="x") as client:
            assert client.keys("*") == client.execute_command("TOPICS") == [each.encode() for each in seen]
            assert client.dbsize() == len(seen)


def test_an_append_makes_no_topic_without_the_right_to(granted: Granted):
    redis = pytest.importorskip("redis", reason=NEEDS)
    granted.allow(["write topic:gnew"])
    headers = {"authorization": f"Bearer {granted.token}"}
    url = f"{granted.process.http_url}/api/v1/queues/gnew/messages"
    assert httpx.post(url, json={"value": "x"}, headers=headers, trust_env=False).status_code in (403, 404)
    with (
        redis.Redis(port=granted.process.port, username="ann", password="x") as client,
        pytest.raises(redis.ResponseError, match="no permission to manage"),
    ):
        client.xadd("gnew", {"f": "v"})


HALVES = {
    "XADD MAXLEN": (f"XADD {T} MAXLEN 1000 * f v", f"XLEN {T}", [WRITE]),
    "XADD MAXLEN ~": (f"XADD {T} MAXLEN ~ 1000 * f v", f"XLEN {T}", [WRITE]),
    "XADD MINID": (f"XADD {T} MINID 1-0 * f v", f"XLEN {T}", [WRITE]),
    "XADD MAXLEN of a new topic": ("XADD gfresh MAXLEN 10 * f v", "EXISTS gfresh", ["write topic:gfresh"]),
    "DEL": (f"DEL gvictim {T}", "EXISTS gvictim", ["manage topic:gvictim"]),
    "XGROUP CREATE MKSTREAM": ("XGROUP CREATE gfresh g $ MKSTREAM", "EXISTS gfresh", ["manage topic:gfresh"]),
    "XREADGROUP": (f"XREADGROUP GROUP g c STREAMS {T} gvictim > 0", f"XPENDING {T} g", [*WORK, "read topic:gvictim"]),
}
"""Commands that do two things, of which the user may do the first; what shows whether it was done."""


@pytest.mark.parametrize("name", HALVES)
def test_a_command_that_may_not_do_all_does_nothing(granted: Granted, broker, name: str):
    redis = pytest.importorskip("redis", reason=NEEDS)
    command, look, needs = HALVES[name]
    with connect(broker.ready["listen"][0]) as client:
        for topic in (T, "gvictim"):
            client.create_topic(topic, if_missing=True)
            client.set_queue(topic, "g")
        client.producer(T).send(b"to be read")

    def ask(words: str, *grants: str) -> Any:
        granted.allow(grants)
        with redis.Redis(port=granted.process.port, username="ann", password="x") as ann:  # what it may is read now
            return ann.execute_command(*words.split())

    everything = ("manage *", "read *", "write *")
    before = ask(look, *everything)
    with pytest.raises(redis.ResponseError, match="no permission"):
        ask(command, *needs)
    assert ask(look, *everything) == before


def test_an_open_connection_loses_what_is_taken_back(granted: Granted):
    redis = pytest.importorskip("redis", reason=NEEDS)
    granted.allow([READ])
    with redis.Redis(port=granted.process.port, username="ann", password="x", single_connection_client=True) as client:
        client.xlen(T)
        granted.allow([])
        deadline = time.monotonic() + 20.0
        with pytest.raises(redis.ResponseError, match="no permission"):
            list(iter(lambda: client.xlen(T) if time.monotonic() < deadline else None, None))


@pytest.mark.parametrize(("path", "need"), [("/stats/events?interval_s=0.5", "see node"), (f"{QUEUE}/tail", READ)])
def test_a_stream_ends_when_its_right_is_taken_back(granted: Granted, broker, path: str, need: str):
    """The record that comes then ends one of records: an idle one ends when it would have said that it is idle."""
    granted.allow([need])
    headers = {"authorization": f"Bearer {granted.token}"}
    url, deadline = granted.process.http_url + path, time.monotonic() + 40.0
    with httpx.Client(trust_env=False, timeout=60) as client, client.stream("GET", url, headers=headers) as answer:
        parts = answer.iter_raw()
        next(parts)
        granted.allow([])
        while _is_open(client, url, headers):
            assert time.monotonic() < deadline
        with connect(broker.ready["listen"][0]) as native:
            native.producer(T).send(b"too late")
        rest = []
        for part in parts:
            assert time.monotonic() < deadline
            rest.append(part)
    assert b"too late" not in b"".join(rest)


def _is_open(client: Any, url: str, headers: dict[str, str]) -> bool:
    """Whether a stream is begun by now."""
    with client.stream("GET", url, headers=headers) as answer:
        return answer.status_code == 200


def test_a_stream_ends_when_its_token_expires(granted: Granted):
    granted.allow(["see node"])
    token, _ = access_file.add_token(str(granted.path), "ann", int(time.time()) + 3)
    headers, deadline = {"authorization": f"Bearer {token}"}, time.monotonic() + 40.0
    url = f"{granted.process.http_url}/stats/events?interval_s=0.5"
    with httpx.Client(trust_env=False, timeout=60) as client, client.stream("GET", url, headers=headers) as answer:
        assert all(time.monotonic() < deadline for _ in answer.iter_raw())
    assert httpx.get(url, headers=headers, trust_env=False).status_code == 401
