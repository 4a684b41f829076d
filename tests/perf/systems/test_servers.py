"""Starting and stopping the servers of peers, with small Python programs in their place."""

from __future__ import annotations

import os
import select
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from perf.systems import servers

LISTEN = (
    "import socket, sys; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); print('up', flush=True); {then}"
)
FOREVER = "import threading; threading.Event().wait()"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "


def _command(then: str, port: int) -> list[str]:
    return [sys.executable, "-c", LISTEN.format(then=then), str(port)]


def test_a_server_answers_inside_the_block_and_is_gone_after_it(tmp_path):
    port = servers.free_port()
    with servers.running(_command(FOREVER, port), tmp_path / "log", [port]) as process:
        socket.create_connection((servers.LOOPBACK, port)).close()
    assert process.returncode is not None
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((servers.LOOPBACK, port))


def test_a_server_is_stopped_when_the_block_fails(tmp_path):
    port = servers.free_port()
    with pytest.raises(KeyError), servers.running(_command(FOREVER, port), tmp_path / "log", [port]) as process:
        raise KeyError(port)
    assert process.returncode is not None


def test_a_server_that_ends_before_it_answers_is_an_error_with_its_last_words(tmp_path):
    command = [sys.executable, "-c", "print('no room for my log'); raise SystemExit(3)"]
    started = servers.running(command, tmp_path / "log", [servers.free_port()])
    with pytest.raises(RuntimeError, match=r"ended with 3.*no room for my log"), started:
        pass


def test_what_a_server_started_is_stopped_with_it_even_if_it_is_deaf(tmp_path, monkeypatch):
    monkeypatch.setattr(servers, "STOP_S", 0.2)
    started = (
        "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {forever!r}]); print(p.pid, flush=True); "
    )
    then = DEAF + started.format(forever=DEAF + FOREVER) + FOREVER
    port, log = servers.free_port(), tmp_path / "log"
    with servers.running(_command(then, port), log, [port]):
        end = os.pidfd_open(_number_in(log))
    assert select.select([end], [], [], 10)[0]
    os.close(end)


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv of util-linux is not installed")
def test_a_server_ends_when_its_starter_is_killed(tmp_path):
    port = servers.free_port()
    log = tmp_path / "log"
    starts = (
        "import pathlib, sys; from perf.systems import servers\n"
        f"with servers.running({_command(FOREVER, port)!r}, pathlib.Path({str(log)!r}), [{port}]) as server:\n"
        "    print(server.pid, flush=True); sys.stdin.read()"
    )
    here = {**os.environ, "PYTHONPATH": str(Path(servers.__file__).parents[2])}
    command = [sys.executable, "-c", starts]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=here) as starter:
        assert starter.stdout
        end = os.pidfd_open(int(starter.stdout.readline()))
        starter.kill()
    assert select.select([end], [], [], 10)[0]
    os.close(end)


def _number_in(log) -> int:
    """What the server printed after it was up; it may answer a moment before it prints."""
    for _ in range(1_000_000):
        lines = log.read_text().split()
        if len(lines) > 1:
            return int(lines[1])
    raise AssertionError("the server printed no number")


def test_waiting_ends_with_what_it_is_for_or_with_patience(monkeypatch):
    answers = iter([False, False, True])
    servers.wait_until(lambda: next(answers), "the third time")
    monkeypatch.setattr(servers, "PATIENCE_S", 0.01)
    with pytest.raises(TimeoutError, match="until it rains"):
        servers.wait_until(lambda: False, "it rains")


def test_a_missing_server_is_said_with_the_way_to_it():
    assert "perf/install-peers" in servers.absence("no-such-server")
    with pytest.raises(FileNotFoundError, match="perf/install-peers"):
        servers.program("no-such-server")


def test_a_missing_client_is_said_with_the_extra():
    assert servers.absence("sh") == ""
    assert servers.absence("sh", "no_such_client") == (
        "the Python package no_such_client is not installed; the extra `bench` has it."
    )
