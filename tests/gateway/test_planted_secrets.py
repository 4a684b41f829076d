"""Secrets that are planted at every door, and looked for in all that processes show."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import penstock
import pytest
import redis
from penstock import Key
from penstock.broker import access_file
from penstock.broker.rights import Grant
from penstock.errors import Unauthenticated
from support.processes import spawn
from support.servers import descendants

PASSWORD, WRONG = "pl4nted-passw0rd", "pl4nted-wr0ng"
ALL = Grant(False, frozenset(["see", "read", "write", "manage"]), "*")


def command_lines(pid: int) -> str:
    """The arguments of a process and all that it started."""
    return "".join(Path(f"/proc/{each}/cmdline").read_text() for each in (pid, *descendants(pid)))


def test_no_secret_is_in_a_log_an_argument_an_error_or_the_settings(tmp_path: Path):
    access, files = str(tmp_path / "access"), {name: str(tmp_path / f"{name}.key") for name in ("broker", "ann")}
    broker = Key.generate()
    ann, stranger = Key.generate(broker=broker.public), Key.generate(broker=broker.public)
    broker.write(files["broker"])
    ann.write(files["ann"])
    access_file.add_password(access, "ann", PASSWORD)
    token = access_file.add_token(access, "ann")[0]
    access_file.add_key(access, "ann", ann.public)
    access_file.add_grant(access, "ann", ALL)
    secrets = [PASSWORD, WRONG, token, broker.secret, ann.secret, stranger.secret]
    settings = [
        *("--access", access, "--broker-key", files["broker"], "--listen", f"unix://{tmp_path}/s"),
        *("--listen", "tcp://127.0.0.1:0", "--resp", "tcp://127.0.0.1:0", "--http", "tcp://127.0.0.1:0"),
        *("--data", str(tmp_path / "data"), "--set", "log_level=debug", "--json"),
    ]
    environ = {**os.environ, "PENSTOCK_KEY": files["ann"]}
    with open(tmp_path / "log", "wb") as log:
        command = [sys.executable, "-m", "penstock", "serve", *settings]
        serving = spawn(command, signal.SIGTERM, stdout=subprocess.PIPE, stderr=log, env=environ)
    shown = ""
    try:
        assert serving.stdout is not None
        ready = json.loads(serving.stdout.readline())
        tcp = next(each for each in ready["listen"] if each.startswith("tcp"))
        with penstock.connect(tcp, key=files["ann"], timeout=60) as client:
            client.create_topic("t")
            shown += repr(client) + repr(vars(client))
        with pytest.raises(Unauthenticated) as refused:
            penstock.connect(tcp, key=stranger, timeout=60)
        shown += repr(refused.value) + repr(refused.getrepr(showlocals=False))
        http = "http" + ready["http"][0].removeprefix("tcp")
        with httpx.Client(base_url=http, trust_env=False, timeout=60) as web:
            for auth, status in (((("ann", PASSWORD)), 200), (("ann", WRONG), 401)):
                assert web.get("/api/v1/queues", auth=auth).status_code == status
            for given, status in ((token, 200), (WRONG, 401)):
                assert web.get("/api/v1/queues", headers={"authorization": f"Bearer {given}"}).status_code == status
        port = int(ready["resp"][0].rpartition(":")[2])
        assert redis.Redis(port=port, username="ann", password=PASSWORD).ping()
        with pytest.raises(redis.AuthenticationError):
            redis.Redis(port=port, username="ann", password=WRONG).ping()
        shown += command_lines(serving.pid)
        config = subprocess.run(
            [sys.executable, "-m", "penstock", "config", "show"],
            env=environ,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert files["ann"] in config.stdout
        shown += config.stdout + config.stderr
    finally:
        serving.send_signal(signal.SIGTERM)
        serving.wait(60)
        serving.stdout.close()  # type: ignore[union-attr]
    logged = (tmp_path / "log").read_text()
    assert "refused 1 connections" in logged
    assert "wrong password, from 127.0.0.1" in logged
    for secret in secrets:
        assert secret not in shown + logged + Path(access).read_text()
