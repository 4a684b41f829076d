"""SIGHUP: settings are read again, what may change does, the rest is named, and a mistake changes nothing."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import penstock
import pytest
from penstock.cli import exits
from penstock.cli.serve import serve_config
from penstock.config import load
from support.processes import spawn

from .conftest import Cli, serve


def test_a_broker_reads_its_settings_again_and_says_what_changes(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('drain_s = "20s"\n')
    served = serve(tmp_path / "data", str(tmp_path), "--config", str(path))

    def told() -> dict[str, Any]:
        served.process.send_signal(signal.SIGHUP)
        assert served.process.stdout is not None
        event = json.loads(served.process.stdout.readline())
        return {name: event[name] for name in ("event", "changed", "at_next_start")}

    try:
        assert told() == {"event": "reloaded", "changed": {}, "at_next_start": []}
        path.write_text('drain_s = "7s"\nboard_rows = 64\n')
        for changed in ({"drain_s": 7.0}, {}):
            assert told() == {"event": "reloaded", "changed": changed, "at_next_start": ["board_rows"]}
        path.write_text("drain_s = 7")
        assert told() == {"event": "reloaded", "changed": {}, "at_next_start": []}
        path.write_text("")
        assert told()["changed"] == {"drain_s": 30.0}
    finally:
        assert served.stop() == 0


def test_a_broker_goes_on_whose_output_is_read_or_stored_no_more(tmp_path: Path) -> None:
    path, listen = tmp_path / "config.toml", ["--listen", f"unix://{tmp_path}/full.sock"]
    path.write_text("")
    unread = serve(tmp_path / "data", str(tmp_path), "--config", str(path))
    command = [sys.executable, "-m", "penstock", "serve", "--json", "--config", str(path), *listen]
    command += ["--data", str(tmp_path / "full")]
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}  # what is left unwritten is then known at the end
    with open("/dev/full", "wb") as disk:
        full = spawn(command, signal.SIGTERM, stdout=disk, stderr=subprocess.PIPE, env=buffered)
    try:
        assert unread.process.stdout is not None
        unread.process.stdout.close()
        assert full.stderr is not None
        assert b"standard output cannot be written: no space left on device" in full.stderr.readline()
        for process in (unread.process, full):
            assert process.stderr is not None
            process.send_signal(signal.SIGHUP)
            while b"the configuration was read again" not in (line := process.stderr.readline()):
                assert line, "it ended"
        with penstock.connect(unread.unix) as client, penstock.connect(f"unix://{tmp_path}/full.sock") as other:
            client.create_topic("t")
            other.create_topic("t")
        full.terminate()
        assert full.wait(60) == exits.FULL
        assert unread.stop() == 0
    finally:
        for process in (unread.process, full):
            process.kill()
            process.wait()


def test_a_broker_goes_on_whose_output_is_not_read(tmp_path: Path) -> None:
    """It did not even end when it was told to."""
    path = tmp_path / "config.toml"
    path.write_text("")
    served = serve(tmp_path / "data", str(tmp_path), "--config", str(path))
    assert served.process.stdout is not None
    assert served.process.stderr is not None
    fcntl.fcntl(served.process.stdout.fileno(), fcntl.F_SETPIPE_SZ, 8192)
    left_out = 0
    try:
        while left_out < 3:
            served.process.send_signal(signal.SIGHUP)
            while b"the configuration was read again" not in (line := served.process.stderr.readline()):
                assert line, "it ended"
                left_out += b"standard output is not read" in line
        lines = os.read(served.process.stdout.fileno(), 1 << 20).splitlines()
        assert {json.loads(line)["event"] for line in lines} == {"reloaded"}
    finally:
        assert served.stop() == 0


def test_people_are_greeted_once_and_told_of_each_role(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = {"event": "ready", "listen": ["unix:///b"], "advertise": ["unix:///b"], "data": "/d"}

    class Twice:
        def __init__(self, config: object) -> None: ...

        def run(self, on_event: Callable[[dict[str, Any]], None], reload: object) -> int:
            for event in ({"pids": {"broker": 7}}, {"pids": {"broker": 8}}):
                on_event(ready | event)
            on_event({"event": "role", "role": "leader", "term": 2})
            return 0

    monkeypatch.setattr("penstock.broker.Supervisor", Twice)
    monkeypatch.setattr("penstock.broker.diagnostics.begin", lambda part, options: None)
    lines = cli("serve", "--data", str(tmp_path / "d"), "--listen", f"unix://{tmp_path}/b.sock").text.splitlines()
    told = [" ".join(line.split()) for line in lines]
    assert told == [
        "listening on unix:///b", "data in /d", "broker pid 7, ^C ends it", "role leader in term 2"
    ]  # fmt: skip


def test_a_key_is_compared_as_it_is_written(tmp_path: Path) -> None:
    """Children hear of it by an absolute path in their environment, which is none of the settings."""
    path = tmp_path / "config.toml"
    path.write_text('key = "own.key"\n')
    served = serve(tmp_path / "data", str(tmp_path), "--config", str(path))
    try:
        for text, later in (('key = "own.key"', []), ('key = "other.key"', ["key"])):
            path.write_text(text)
            served.process.send_signal(signal.SIGHUP)
            assert served.process.stdout is not None
            assert json.loads(served.process.stdout.readline())["at_next_start"] == later
    finally:
        assert served.stop() == 0


def test_running_processes_log_as_much_as_the_settings_say_now(tmp_path: Path) -> None:
    pytest.importorskip("uvloop", reason="the gateway needs the extra gateway")
    path, logs, data = tmp_path / "config.toml", tmp_path / "logs", tmp_path / "data"
    settings = f'log_dir = "{logs}"\nhttp = ["tcp://127.0.0.1:0"]\n'
    path.write_text(settings)
    served = serve(data, str(tmp_path), "--config", str(path))
    url = "http" + served.ready["http"][0].removeprefix("tcp")

    def reload(level: str) -> None:
        path.write_text(f'{settings}log_level = "{level}"\n')
        served.process.send_signal(signal.SIGHUP)
        assert served.process.stdout is not None
        event = json.loads(served.process.stdout.readline())
        assert (event["changed"], event["at_next_start"]) == ({"log_level": level}, [])

    def ask(name: str) -> None:
        with penstock.request_id(name), client.producer("t") as producer:
            producer.send(b"x")
        urlopen(Request(f"{url}/health", headers={"X-Request-Id": name})).close()

    def those_that_tell(name: str) -> set[str]:
        ask(name)
        return {each.stem for each in logs.glob("*.log") if f"request {name}" in each.read_text()}

    try:
        with penstock.connect(served.unix) as client:
            client.create_topic("t")
            assert those_that_tell("before") == set()
            reload("debug")
            deadline = time.monotonic() + 60
            while those_that_tell("meanwhile") != {"broker", "keeper", "gateway"}:
                assert time.monotonic() < deadline
            os.kill(served.ready["pids"]["gateway"], signal.SIGKILL)
            assert served.process.stdout is not None
            assert json.loads(served.process.stdout.readline())["event"] == "ready"
            while "gateway" not in those_that_tell("anew"):
                assert time.monotonic() < deadline, "one that is started later logs as much"
            reload("error")
            while those_that_tell(f"after-{time.monotonic_ns()}"):
                assert time.monotonic() < deadline
    finally:
        assert served.stop() == 0


def test_check_finds_mistakes_before_a_start(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('drain_s = "7s"\n')
    found = cli("config", "check", "--config", str(path), "--json")
    assert (found.code, found.lines[0]["event"], found.lines[0]["given"]) == (exits.OK, "checked", 1)
    for text, says in (
        ("drain_s = 7", "a number without a unit"),
        ('lisen = ["unix:///a"]', "did you mean 'listen'?"),
        ('listen = ["tcp://0.0.0.0:7070"]', "can be reached from other machines"),
        ('listen = ["htp://x"]', "htp"),
        ('access = "/nowhere/access"', "/nowhere/access cannot be read"),
        ('users = "/nowhere/users"', "/nowhere/users cannot be read"),
        ('users = "/nowhere/users"\naccess = "/nowhere/access"', "users and grants are one file"),
        ('broker_key = "/nowhere/key"', "/nowhere/key cannot be read"),
        ('tls_certificate = "/nowhere/cert"', "set both tls_certificate and tls_key"),
        (f'log_dir = "{path}/logs"', f"{path} is no directory that this user can write; name another one"),
    ):
        path.write_text(text)
        found = cli("config", "check", "--config", str(path))
        assert (found.code, says in found.err) == (exits.USAGE, True), found.err
    assert not list(tmp_path.glob("home/*")), "nothing is made"


def test_the_gateway_ends_before_the_time_of_a_drain_is_over(tmp_path: Path) -> None:
    pytest.importorskip("uvloop", reason="the gateway needs the extra gateway")
    config = load({"data": str(tmp_path / "d"), "http": "tcp://127.0.0.1:0", "drain_s": "12s"}, environ={}).config
    made = serve_config(config)
    assert (made.drain_s, json.loads(made.gateway)["drain_s"]) == (12.0, 4.0)


def test_the_default_file_and_the_version_are_written(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(cli("config", "default").text)
    assert cli("config", "check", "--config", str(tmp_path / "c.toml")).code == exits.OK
    assert cli("version").text.split() == ["penstock", "0.1.0"]
    (found,) = cli("version", "--verbose", "--json").lines
    assert found["libraries"]["pyzmq"]
    assert {"protocol", "log format", "state format", "board format", "backup format", "python"} <= set(found)
    assert "libraries" not in cli("version", "--verbose").text
