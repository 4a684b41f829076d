"""`penstock spark` as a program: killed at any moment, started again, ended by ^C; what it did stands, and once."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import penstock.spark
import pyarrow.dataset as ds
import pytest
from penstock.cli import exits
from penstock.cli.app import run
from penstock.spark import java
from penstock.spark.jvm import descendants
from pyspark.errors import PySparkRuntimeError
from support.servers import end_of
from support.topics import texts

Command = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def command(spark, url, monkeypatch, capsysbinary) -> Command:
    """Runs `penstock spark ... --json` in the session of the tests. Returns the lines it wrote."""
    monkeypatch.setattr(penstock.spark, "session", lambda name, *, master, settings: spark)

    def call(*words: object) -> list[dict[str, Any]]:
        assert run(["spark", *map(str, words), "--url", url, "--json"]) == 0
        written = capsysbinary.readouterr()
        assert written.err == b""
        return [json.loads(line) for line in written.out.splitlines()]

    return call


def test_an_archive_is_written_and_replayed(command, client, new, fill, tmp_path):
    topic, again = fill(new(), 90), new()
    *progress, last = command("archive", topic, "--to", tmp_path / "a", "--max-records", 50)
    assert [line["event"] for line in progress] == ["progress", "progress"]
    assert (last["event"], last["batches"], last["records"], last["lag"]) == ("archived", 2, 90, 0)
    assert sum(last["ends"][topic].values()) == 90
    *_, last = command("replay", again, "--archive", tmp_path / "a", "--checkpoint", tmp_path / "c")
    assert (last["event"], last["records"], last["lag"]) == ("replayed", 90, 0)
    assert sorted(texts(client, again)) == sorted(texts(client, topic))


def test_the_latest_are_kept(command, client, new, fill, tmp_path):
    topic, target = fill(new(), 90), new()
    *_, last = command("compact", topic, "--to", tmp_path / "t", "--deletes", "value = 'value 89'")
    assert (last["event"], last["records"]) == ("compacted", 90)
    assert numbers(tmp_path / "t" / "current") == list(range(80, 89))
    *_, last = command("compact", topic, "--into", target, "--checkpoint", tmp_path / "c")
    assert (last["event"], last["records"]) == ("compacted", 90)
    assert sorted(texts(client, target)) == [f"value {number}" for number in range(80, 90)]


def test_counts_are_made(command, client, new, fill, tmp_path):
    topic, counts, dead = fill(new(), 90), new(1), new()
    options = ["--window", "1 hour", "--late", "1 minute", "--by", "'all'", "--checkpoint", tmp_path / "c"]
    *_, last = command("rollup", topic, counts, *options)
    assert (last["event"], last["records"]) == ("counted", 90)
    assert sorted(json.loads(text)["records"] for text in texts(client, counts)) == [20, 40]
    with client.producer(dead) as producer:
        producer.send(b"", headers={"penstock-dead-reason": b"lost 17", "penstock-dead-time": b"1000000"})
    (row,) = command("dead-letters", dead, "--window", "1 day")
    assert (row["reason"], row["dead_lettered"], row["from"]) == ("lost #", 1, "1970-01-01T00:00:00")
    assert command("dead-letters", dead, "--into", counts, "--checkpoint", tmp_path / "d")[-1]["records"] == 1


def test_what_spark_says_is_one_sentence_and_the_rest_is_in_a_file(command, url, new, tmp_path, capsysbinary):
    words = ["rollup", new(), new(1), "--by", "nonsense(", "--checkpoint", str(tmp_path / "c")]
    assert run(["spark", *words, "--url", url]) == exits.FAILED
    first, second = capsysbinary.readouterr().err.decode().splitlines()
    assert second.startswith("penstock: Spark says: [PARSE_SYNTAX_ERROR]")
    path = Path(first.removeprefix("penstock: what Spark wrote is in "))
    assert path.is_file()
    path.unlink()


def test_a_window_that_is_none_is_one_sentence_too(command, url, new, capsysbinary):
    assert run(["spark", "dead-letters", new(), "--window", "1 minit", "--url", url]) == exits.FAILED
    first, second = capsysbinary.readouterr().err.decode().splitlines()
    assert second.startswith("penstock: Spark says: [CANNOT_PARSE_INTERVAL] Unable to parse '1 minit'.")
    Path(first.removeprefix("penstock: what Spark wrote is in ")).unlink()


@pytest.mark.skipif(bool(java.missing()), reason=java.missing() or "-")
def test_a_spark_that_does_not_start_is_one_sentence(url, new, tmp_path, monkeypatch, capsys):
    def session(name: str, *, master: str, settings: dict[str, str]) -> None:
        raise PySparkRuntimeError(f"[JAVA_GATEWAY_EXITED] no port from {settings['spark.driver.memory']}")

    monkeypatch.setattr(penstock.spark, "session", session)
    words = ["compact", new(), "--to", str(tmp_path / "t"), "--conf", "spark.driver.memory=lots", "--url", url]
    assert run(["spark", *words]) == exits.FAILED
    first, second = capsys.readouterr().err.splitlines()
    assert second == "penstock: Spark says: [JAVA_GATEWAY_EXITED] no port from lots"
    Path(first.removeprefix("penstock: what Spark wrote is in ")).unlink()


class Program:
    """A command that runs in a process group of its own, as in a terminal."""

    def __init__(self, url: str, *words: str) -> None:
        command = [sys.executable, "-m", "penstock", "spark", *words, "--json", "--master", "local[2]"]
        environment = {**os.environ, "PENSTOCK_URL": url}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        )

    def lines(self) -> Iterator[dict[str, Any]]:
        """What it says, as it does."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield json.loads(line)

    def until(self, enough: Callable[[dict[str, Any]], bool]) -> None:
        """Read its progress until it is enough."""
        assert any(map(enough, self.lines())), f"it ended before: {self.complaints()}"

    def complaints(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def kill(self) -> None:
        """End it and everything below it at once."""
        below = descendants(self.process.pid)
        self.process.kill()
        self.process.wait()
        for pid in below:
            _await(pid)


def _await(pid: int) -> None:
    try:
        with end_of(pid) as descriptor:
            assert select.select([descriptor], [], [], 60)[0], f"{pid} outlived its parent"
    except ProcessLookupError:
        return


@contextmanager
def running(url: str, *words: str) -> Iterator[Program]:
    program = Program(url, *words)
    try:
        yield program
    finally:
        program.kill()
        for pipe in (program.process.stdout, program.process.stderr):
            assert pipe is not None
            pipe.close()


def numbers(directory: Path) -> list[int]:
    values = ds.dataset(directory, partitioning="hive").to_table(columns=["value"])["value"].to_pylist()
    return sorted(int(value.split()[1]) for value in values)


@pytest.mark.soak
@pytest.mark.skipif(bool(java.missing()), reason=java.missing() or "-")
def test_an_archive_that_is_killed_goes_on_until_it_is_interrupted(url, client, new, fill, tmp_path):
    topic, words = fill(new(), 1000), ["--every", "100ms", "--max-records", "200", "--cursor", "archive"]
    with running(url, "archive", topic, "--to", str(tmp_path / "a"), *words) as program:
        program.until(lambda progress: progress["records"] >= 400)
        program.kill()
    with running(url, "archive", topic, "--to", str(tmp_path / "a"), *words) as program:
        program.until(lambda progress: progress["lag"] == 0)
        os.killpg(program.process.pid, signal.SIGINT)
        *_, last = program.lines()
        assert last["event"] == "archived"
        assert program.complaints() == ""
        assert program.process.wait(60) == 0
    assert numbers(tmp_path / "a") == list(range(1000))
    assert client.group(topic, "archive").lag == 0
