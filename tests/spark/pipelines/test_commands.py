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

import pyarrow.dataset as ds
import pytest
from penstock.spark import java
from penstock.spark.jvm import descendants
from support.servers import end_of

pytestmark = [
    pytest.mark.skipif(bool(java.missing()), reason=java.missing() or "-"),
    pytest.mark.timeout(300),
]


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
