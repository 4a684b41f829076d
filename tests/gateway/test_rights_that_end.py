"""What is open at a door, or waits there, ends with the right to it: when a grant is taken back, a token revoked, or a
user deleted. What comes meanwhile is not shown, and stays for others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from penstock.broker import access_file
from penstock.clients import connect

from .conftest import NEEDS, GatewayProcess
from .test_grants import READ, TAKE, Granted, T, granted  # noqa: F401

httpx = pytest.importorskip("httpx", reason=NEEDS)
redis = pytest.importorskip("redis", reason=NEEDS)

WAIT_S = 40.0
FOLLOW = f"read group:{T}/c"
MARK = "read topic:gother"
"""Goes with each other right, so that a test can tell when the gateway has heard of it."""


@pytest.fixture
def native(broker) -> Iterator[Any]:
    with connect(broker.ready["listen"][0]) as client:
        yield client


def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline


def resp(granted: Granted) -> Any:  # noqa: F811
    return redis.Redis(
        port=granted.process.port, username="ann", password="x", single_connection_client=True, socket_timeout=WAIT_S
    )


def has_heard(granted: Granted) -> bool:  # noqa: F811
    with resp(granted) as client:
        try:
            client.xlen("gother")
        except redis.ResponseError as error:
            return "no permission" in str(error)
    return False


def by_redis(granted: Granted, command: str) -> str:  # noqa: F811
    with resp(granted) as client:
        try:
            return str(client.execute_command(*command.split()))
        except redis.ResponseError as error:
            return str(error)


def by_http(granted: Granted, method: str, path: str, body: Any) -> str:  # noqa: F811
    headers = {"authorization": f"Bearer {granted.token}"}
    with httpx.Client(trust_env=False, timeout=WAIT_S, headers=headers) as client:
        return client.request(method, granted.process.http_url + path, json=body).text


WAITING: dict[str, tuple[str, Sequence[str], Callable[[Granted], str]]] = {
    "XREAD": ("ends.waiting", [READ], lambda at: by_redis(at, f"XREAD BLOCK 30000 STREAMS {T} $")),
    "XREADGROUP": (
        "lease.waiting", [READ, TAKE], lambda at: by_redis(at, f"XREADGROUP GROUP g c BLOCK 30000 STREAMS {T} >")
    ),
    "lease": (
        "lease.waiting", [READ, TAKE],
        lambda at: by_http(at, "POST", "/tasks/lease", {"queue": T, "group": "g", "worker": "w", "timeout_ms": 30_000}),
    ),
    "consume": (
        "ends.waiting", [READ, FOLLOW],
        lambda at: by_http(at, "GET", f"/api/v1/queues/{T}/consumers/c/messages?timeout_ms=30000", None),
    ),
    "browse": (
        "ends.waiting", [READ],
        lambda at: by_http(at, "GET", f"/api/v1/queues/{T}/messages?timeout_ms=30000", None),
    ),
}  # fmt: skip
"""The counter of what waits at the broker, the rights that are needed, and the question."""


@contextmanager
def asked(ask: Callable[[], str]) -> Iterator[list[str]]:
    """A request on its way; its answer once the block is over."""
    answers: list[str] = []
    thread = threading.Thread(target=lambda: answers.append(ask()))
    thread.start()
    try:
        yield answers
    finally:
        thread.join(WAIT_S)


CASES = [(name, gone) for name, (_, needs, _) in WAITING.items() for gone in ("", *needs)]


@pytest.mark.parametrize(("name", "gone"), CASES)
def test_what_waits_ends_with_each_right_to_it(granted: Granted, native: Any, name: str, gone: str):  # noqa: F811
    counter, needs, ask = WAITING[name]
    granted.allow([*needs, MARK])
    until(lambda: not has_heard(granted))
    native.trim(T, before="latest")
    before = native.stats()[counter]
    with asked(lambda: ask(granted)) as answers:
        until(lambda: native.stats()[counter] > before or answers)
        assert not answers
        if gone:
            granted.allow([need for need in needs if need != gone])
            until(lambda: has_heard(granted))
        with native.producer(T) as producer:
            producer.send(b"a secret")
    (answer,) = answers
    assert ("secret" in answer) == (not gone), answer
    assert ("no permission" in answer) == bool(gone)
    if gone and counter == "lease.waiting":
        with native.worker(T, group="g") as worker:
            (task,) = worker.fetch(wait=WAIT_S)
            assert task.value == b"a secret"
            task.ack()


def test_how_a_task_ends_is_not_told_once_the_right_is_gone(granted: Granted, native: Any):  # noqa: F811
    granted.allow([TAKE, MARK])
    until(lambda: not has_heard(granted))
    native.trim(T, before="latest")
    before = native.stats()["tasks.waiting"]
    with native.worker(T, group="g") as worker, native.producer(T) as producer:
        offset = producer.send(b"x")
        (task,) = worker.fetch(wait=WAIT_S)
        with asked(lambda: by_http(granted, "GET", f"/tasks/{T}-0-{offset}?group=g&timeout_ms=30000", None)) as answers:
            until(lambda: native.stats()["tasks.waiting"] > before or answers)
            granted.allow([])
            until(lambda: has_heard(granted))
            task.ack()
    assert "no permission" in answers[0]


@pytest.fixture
def users(broker, tmp_path: Path) -> Iterator[tuple[GatewayProcess, str]]:
    """A gateway whose users have no grants, and may do everything."""
    path = str(tmp_path / "users")
    for name in ("ann", "bob"):
        access_file.add_password(path, name, "x")
    process = GatewayProcess(broker.url, "tcp://127.0.0.1:0", http=("tcp://127.0.0.1:0",), options=("--users", path))
    try:
        yield process, path
    finally:
        assert process.stop() == 0


def test_the_connections_of_a_deleted_user_may_do_nothing_more_also_without_grants(users: tuple[GatewayProcess, str]):
    process, path = users
    options = {"port": process.port, "password": "x", "single_connection_client": True}
    with redis.Redis(username="ann", **options) as ann, redis.Redis(username="bob", **options) as bob:
        ann.xadd("mine", {"f": "v"})
        access_file.delete_user(path, "ann")

        def is_refused() -> bool:
            try:
                return ann.xlen("mine") != 1
            except redis.ResponseError as error:
                return "no permission" in str(error)
            except redis.ConnectionError:  # it was closed, and AUTH was refused since
                return True

        until(is_refused)
        assert bob.xlen("mine") == 1


@pytest.mark.parametrize(
    "change", [access_file.delete_user, lambda path, name: access_file.add_password(path, name, "y")]
)
def test_redis_connections_end_with_what_they_authenticated_by(
    users: tuple[GatewayProcess, str], change: Callable[[str, str], object]
):
    """Also those that ask for nothing that needs a right."""
    process, path = users
    options = {"port": process.port, "password": "x", "single_connection_client": True}
    with redis.Redis(username="ann", **options) as ann, redis.Redis(username="bob", **options) as bob:
        before = bob.client_id()
        ann.ping()
        change(path, "ann")

        def has_ended() -> bool:
            try:
                return not ann.ping()
            except redis.ConnectionError:  # closed, and AUTH was refused since
                return True

        until(has_ended)
        bob.ping()
        assert bob.client_id() == before, "the connections of others stay"


def test_a_stream_ends_with_its_token_also_without_grants(users: tuple[GatewayProcess, str]):
    process, path = users
    token, added = access_file.add_token(path, "ann")
    headers = {"authorization": f"Bearer {token}"}
    url = f"{process.http_url}/stats/events?interval_s=0.5"
    with httpx.Client(trust_env=False, timeout=60) as client, client.stream("GET", url, headers=headers) as answer:
        parts = answer.iter_raw()
        next(parts)
        access_file.delete_token(path, added.id)
        deadline = time.monotonic() + WAIT_S
        assert all(time.monotonic() < deadline for _ in parts)
