"""The Spark part of the demo: with real processes, and without what it needs."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from penstock.cli import exits
from penstock.demo import live
from penstock.demo.doors import http_client
from penstock.demo.errors import MissingFlights
from penstock.demo.flights import archive
from penstock.spark import java
from penstock.spark.errors import MissingJava
from support.servers import descendants, end_of

FLIGHTS = 3000
DEMO = [sys.executable, "-m", "penstock", "demo", "--flights", str(FLIGHTS), "--json"]


@pytest.fixture
def equipped() -> None:
    """Skips where the flights, pyspark or a Java are missing."""
    try:
        archive()
    except MissingFlights as missing:
        pytest.skip(missing.message)
    if reason := java.missing():
        pytest.skip(reason)


@pytest.mark.timeout(300)  # a JVM, its first queries, and other load on the machine
def test_what_spark_makes_of_flights_that_stream_in_is_what_the_file_says(equipped):
    done = subprocess.run(DEMO, capture_output=True, timeout=290)
    assert (done.returncode, done.stderr) == (exits.OK, b"")
    outcome = json.loads(done.stdout)
    assert (outcome["equal"], outcome["differences"]) == (True, [])
    assert [each["name"] for each in outcome["measured"]][-2:] == ["read by redis-py", f"read by {http_client()}"]
    assert {each["records"] for each in outcome["measured"]} == {FLIGHTS}
    story = outcome["spark"]
    assert story["flights"] == FLIGHTS
    assert FLIGHTS // 2 <= story["driven"]["stopped_at"] <= FLIGHTS
    assert 0 < story["delays"] < FLIGHTS
    assert story["driven"]["archived"] == FLIGHTS + 1 + story["delays"]
    assert story["driven"]["batches"] > 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_demo_that_is_stopped_takes_spark_along(equipped, tmp_path: Path, number: signal.Signals) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(DEMO, env=environment, stdout=subprocess.DEVNULL) as process, ExitStack() as watched:
        while not (jvms := [pid for pid in descendants(process.pid) if is_java(pid)]):
            assert process.poll() is None
        ends = [watched.enter_context(end_of(pid)) for pid in jvms]
        process.send_signal(number)
        process.wait(30)
        assert all(select.select([end], [], [], 30)[0] for end in ends)
    assert process.returncode == (128 + number if number == signal.SIGTERM else -number)
    assert number == signal.SIGKILL or not list(tmp_path.iterdir())


def is_java(pid: int) -> bool:
    """Whether the process runs a JVM, and no longer the script that starts it."""
    try:
        return Path(f"/proc/{pid}/exe").resolve().name == "java"
    except OSError:
        return False  # it ended


def test_a_demo_without_java_says_so_and_how_to_do_without(monkeypatch) -> None:
    def none() -> Path:
        raise MissingJava("there is no Java")

    monkeypatch.setattr(java, "check", none)
    with pytest.raises(MissingJava, match="there is no Java; penstock demo --no-spark leaves Spark out"):
        live.check()
