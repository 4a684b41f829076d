"""Secrets that are planted at every door, and looked for in all that processes show."""

from __future__ import annotations

import copy
import gc
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import penstock
import pytest
import redis
from penstock import Key
from penstock.broker import access_file
from penstock.broker.rights import Grant
from penstock.clients.encryption import Cipher
from penstock.errors import InvalidKey, InvalidUsers, Unauthenticated
from support.processes import spawn
from support.servers import descendants

PASSWORD, WRONG, IN_ADDRESS = "pl4nted-passw0rd", "pl4nted-wr0ng", "pl4nted-in-address"
ALL = Grant(False, frozenset(["see", "read", "write", "manage"]), "*")

PAGES = [
    "/",
    "/topics",
    "/topics/t",
    "/queues",
    "/metrics",
    "/openapi.json",
    "/api/v1/topics",
    "/no-such-page",
    "/browse/t",
]


class Planted(NamedTuple):
    """A broker with all doors, and what is secret about it."""

    ready: dict[str, Any]
    process: Any
    folder: Path
    ann: Key
    token: str
    secrets: list[str]

    def urls(self, scheme: str) -> str:
        return next(each for each in self.ready["listen"] if each.startswith(scheme))

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "PENSTOCK_KEY": str(self.folder / "ann.key")}


def command_lines(pid: int) -> str:
    """The arguments of a process and all that it started."""
    return "".join(Path(f"/proc/{each}/cmdline").read_text() for each in (pid, *descendants(pid)))


def told(error: BaseException) -> str:
    """All that a traceback, a log and a debugger show of an error."""
    return "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error))


def failure(act: Callable[[], object], kind: type[Exception] = penstock.Error) -> str:
    with pytest.raises(kind) as caught:
        act()
    return told(caught.value)


@pytest.fixture
def planted(tmp_path: Path) -> Iterator[Planted]:
    access, broker = str(tmp_path / "access"), Key.generate()
    ann = Key.generate(broker=broker.public)
    broker.write(tmp_path / "broker.key")
    ann.write(tmp_path / "ann.key")
    access_file.add_password(access, "ann", PASSWORD)
    token = access_file.add_token(access, "ann")[0]
    access_file.add_key(access, "ann", ann.public)
    access_file.add_grant(access, "ann", ALL)
    settings = [
        *("--access", access, "--broker-key", str(tmp_path / "broker.key"), "--listen", f"unix://{tmp_path}/s"),
        *("--listen", "tcp://127.0.0.1:0", "--resp", "tcp://127.0.0.1:0", "--http", "tcp://127.0.0.1:0"),
        *("--metrics", "tcp://127.0.0.1:0", "--data", str(tmp_path / "data"), "--set", "log_level=debug", "--json"),
    ]
    environ = {**os.environ, "PENSTOCK_KEY": str(tmp_path / "ann.key")}
    with open(tmp_path / "log", "wb") as log:
        command = [sys.executable, "-m", "penstock", "serve", *settings]
        serving = spawn(command, signal.SIGTERM, stdout=subprocess.PIPE, stderr=log, env=environ)
    assert serving.stdout is not None
    try:
        ready = json.loads(serving.stdout.readline())
        yield Planted(ready, serving, tmp_path, ann, token, [PASSWORD, WRONG, token, broker.secret, ann.secret])
    finally:
        serving.send_signal(signal.SIGTERM)
        serving.wait(60)
        serving.stdout.close()


def over_native(planted: Planted) -> str:
    """What clients show, with the right key and with wrong ones."""
    tcp, stranger = planted.urls("tcp"), Key.generate(broker=planted.ann.broker)
    planted.secrets.append(stranger.secret)
    with penstock.connect(tcp, key=str(planted.folder / "ann.key"), timeout=60) as client:
        client.create_topic("t")
        shown = repr(client) + repr(vars(client)) + json.dumps(client.stats())
        shown += failure(lambda: client.create_topic("t"))
    return shown + failure(lambda: penstock.connect(tcp, key=stranger, timeout=60), Unauthenticated)


def over_http(planted: Planted) -> str:
    """Answers to right and wrong credentials, in each place where a client may put them, and all pages."""
    shown = ""
    base, metrics = ("http" + planted.ready[name][0].removeprefix("tcp") for name in ("http", "metrics"))
    with httpx.Client(base_url=base, trust_env=False, timeout=60) as web:

        def get(path: str, status: int | None = None, **how: Any) -> None:
            nonlocal shown
            answer = web.get(path, **how)
            shown += answer.text + repr(answer.headers)
            assert status in (None, answer.status_code), (path, answer.status_code)

        for auth, status in (
            (("ann", PASSWORD), 200), (("ann", WRONG), 401), ((planted.token, ""), 401), ((PASSWORD, "ann"), 401),
        ):  # fmt: skip
            get("/api/v1/queues", status, auth=auth)
        for given, status in ((planted.token, 200), (WRONG, 401), (PASSWORD, 401)):
            get("/api/v1/queues", status, headers={"authorization": f"Bearer {given}"})
        get("/api/v1/queues", 401, headers={"authorization": planted.token})
        for page in PAGES:
            get(page, auth=("ann", PASSWORD))
            get(page)
    for auth, status in ((None, 401), (("ann", WRONG), 401), (("ann", PASSWORD), 200)):
        answer = httpx.get(f"{metrics}/metrics", auth=auth, trust_env=False, timeout=60)
        assert answer.status_code == status
        shown += answer.text + repr(answer.headers)
    return shown


def over_redis(planted: Planted) -> str:
    """Answers to right and wrong passwords, also in the wrong place."""
    shown, port = "", int(planted.ready["resp"][0].rpartition(":")[2])
    with redis.Redis(port=port, username="ann", password=PASSWORD) as client:
        assert client.ping()
        shown += repr(client.execute_command("CLIENT", "INFO")) + repr(client.info())
    for name, password in (("ann", WRONG), (planted.token, ""), (PASSWORD, "ann"), ("ann", planted.token)):
        with redis.Redis(port=port, username=name, password=password) as client:
            with pytest.raises(redis.RedisError) as refused:  # or too many were wrong before
                client.execute_command("PING")
            shown += str(refused.value)
    return shown


def over_commands(planted: Planted) -> str:
    """What commands print that know of keys, users and addresses."""
    shown, access = "", str(planted.folder / "access")
    with_address = {**planted.environ, "PENSTOCK_URL": f"tcp://ann:{IN_ADDRESS}@127.0.0.1:1"}
    planted.secrets.append(IN_ADDRESS)
    for environ, *command in (
        (planted.environ, "config", "show"), (planted.environ, "doctor", "--url", planted.urls("tcp")),
        (planted.environ, "user", "list", access), (planted.environ, "user", "tokens", access),
        (planted.environ, "key", "list", access), (planted.environ, "key", "show", str(planted.folder / "ann.key")),
        (planted.environ, "stats", "--url", planted.urls("tcp"), "--json"), (with_address, "config", "show"),
        (with_address, "config", "check"), (with_address, "doctor"), (with_address, "topic", "list"),
    ):  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "penstock", *command], env=environ, capture_output=True, text=True, timeout=60
        )
        assert "Traceback" not in done.stderr, done.stderr
        shown += done.stdout + done.stderr
    assert str(planted.folder / "ann.key") in shown
    return shown


def test_no_secret_is_in_a_log_an_argument_an_error_a_page_or_the_settings(planted: Planted):
    shown = over_native(planted) + over_http(planted) + over_redis(planted) + over_commands(planted)
    shown += command_lines(planted.process.pid)
    planted.process.send_signal(signal.SIGTERM)
    planted.process.wait(60)
    logged = (planted.folder / "log").read_text()
    assert "refused connections: 1" in logged
    assert "wrong password, from 127.0.0.1" in logged
    for secret in planted.secrets:
        assert secret not in shown + logged + (planted.folder / "access").read_text()


# -- in one process -------------------------------------------------------------------------------------------


def test_no_object_of_a_client_shows_a_secret_and_none_that_has_one_is_pickled():
    key, secret = Key.generate(), Cipher.new_key()
    cipher = Cipher({1: secret})
    gc.collect()
    before = set(map(id, gc.get_objects()))
    with penstock.connect("mem://planted-secrets", key=key) as client:
        client.create_topic("t")
        with client.producer("t") as producer, client.consumer("t", start="earliest") as consumer:
            producer.send(cipher.encrypt(b"x"))
            (record,) = consumer.fetch(wait=30)
            made = [each for each in gc.get_objects() if id(each) not in before and "penstock" in type(each).__module__]
            shown = "".join(map(repr, [key, cipher, client, producer, consumer, record, *made]))
    assert len(made) > 100
    for planted in (key.secret, repr(secret), secret.hex()):
        assert planted not in shown
    for each in (key, cipher):
        with pytest.raises(TypeError, match="pickled"):
            copy.copy(each)


@pytest.mark.parametrize(
    "address",
    [
        f"tcp://ann:{IN_ADDRESS}@h:1", f"tcp://{IN_ADDRESS}@h:1", f"tcp://h:{IN_ADDRESS}@",
        f"redis://:{IN_ADDRESS}@h/0",
        f"unix://ann:{IN_ADDRESS}@h/s", f"ann:{IN_ADDRESS}@h:1", f"tcp://h:1,tcp://ann:{IN_ADDRESS}@h:2",
        f"tcp://ann:{IN_ADDRESS}/@@h:1",
    ],
    ids=str,
)  # fmt: skip
def test_an_error_about_an_address_shows_neither_user_nor_password_of_it(address: str):
    shown = failure(lambda: penstock.connect(address), penstock.Error)
    shown += failure(lambda: penstock.Tasks(address), penstock.Error)
    assert IN_ADDRESS not in shown
    assert "@" in shown


def test_an_error_about_a_file_of_secrets_shows_nothing_of_what_stands_there(tmp_path: Path):
    key, path = Key.generate(), tmp_path / "file"
    for content in (
        f"secret {key.secret.upper()}\n",
        f"{key.secret}\n",
        f"secret {key.secret} x\n",
        f"broker {key.secret}",
    ):
        path.unlink(missing_ok=True)
        path.touch(0o600)
        path.write_text(content)
        shown = failure(lambda: Key.read(path), InvalidKey) + failure(lambda: access_file.read(str(path)), InvalidUsers)
        assert key.secret not in shown.lower()
    assert PASSWORD not in failure(lambda: Key(PASSWORD), InvalidKey)
