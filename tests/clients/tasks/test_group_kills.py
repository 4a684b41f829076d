"""Groups under kills: workers, the broker and senders die as they are; each callback comes once, with all results."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import msgspec
import penstock
import pytest
from penstock.broker import ServeConfig
from support.processes import Serving, spawn

PROGRAM = """
import os, sys
import penstock

app = penstock.Tasks(os.environ["PENSTOCK_URL"], lease="1s", partitions=2, timeout=60)


@app.task(queue="parts", name="part", retry=penstock.Retry(max_attempts=50, backoff=0.01))
def part(name, number):
    return [name, number]


@app.task(queue="totals", name="total", retry=penstock.Retry(max_attempts=50, backoff=0.01))
def total(parts):
    return len(parts)


if __name__ == "__main__":
    for number in range(int(sys.argv[2])):
        name = f"{sys.argv[1]}-{number}"
        penstock.group([part.call(name, each) for each in range(3)], then=total)
        print(name, flush=True)
"""


class Programs:
    """A broker, and processes of the program."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        (directory / "shop.py").write_text(PROGRAM)
        config = ServeConfig(data=str(directory / "data"), listen=(f"unix://{directory}/s",), restart_most_s=0.2)
        self.serving = stack.enter_context(closing(Serving(config)))
        self._directory = directory
        self._stack = stack
        self.sent: list[str] = []

    def start(self, *words: str, **options: Any) -> subprocess.Popen[Any]:
        """A process that is killed at the end, if not before."""
        environment = {"PENSTOCK_URL": self.serving.url, "PATH": "/usr/bin:/bin"}
        process = spawn(
            [sys.executable, *words], signal.SIGKILL, cwd=self._directory, env=environment, **options
        )  # fmt: skip
        self._stack.callback(kill, process)
        return process

    def worker(self) -> subprocess.Popen[Any]:
        return self.start("-m", "penstock", "worker", "shop:app", "--concurrency", "2", stderr=subprocess.DEVNULL)

    def sender(self, name: str, groups: int) -> subprocess.Popen[Any]:
        return self.start("shop.py", name, str(groups), stdout=subprocess.PIPE, text=True)

    def read(self, sender: subprocess.Popen[Any], count: int) -> None:
        """Wait until a sender has sent so many groups more."""
        assert sender.stdout is not None
        for _ in range(count):
            line = sender.stdout.readline().strip()
            assert line, f"the sender ended after {self.sent}"
            self.sent.append(line)

    def stop(self, sender: subprocess.Popen[Any]) -> None:
        """Kill a sender, and take note of what it has sent until then."""
        assert sender.stdout is not None
        sender.kill()
        self.sent += [line.strip() for line in sender.stdout if line.endswith("\n")]


def kill(process: subprocess.Popen[Any]) -> None:
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    with ExitStack() as stack:
        yield Programs(tmp_path, stack)


def test_each_callback_comes_once_whatever_is_killed(programs: Programs) -> None:
    worker, sender = programs.worker(), programs.sender("a", 10_000)
    programs.read(sender, 6)
    kill(worker)
    worker = programs.worker()
    programs.read(sender, 6)
    programs.serving.kill_broker()
    programs.read(sender, 6)
    programs.stop(sender)
    kill(worker)
    sender = programs.sender("b", 6)
    programs.read(sender, 6)
    programs.serving.kill_broker()
    worker = programs.worker()
    with penstock.connect(programs.serving.url, timeout=60) as client:
        names: list[str] = []
        with client.consumer("totals", group="look", start="earliest") as consumer:
            while not set(programs.sent) <= set(names):
                records = consumer.fetch(max_records=100, wait=60)
                assert records, f"{len(names)} callbacks of {len(programs.sent)} groups: {client.barriers()}"
                names += [check(msgspec.msgpack.decode(record.value)) for record in records]
            while client.queue("parts", "tasks").depth or client.stats()["barriers.untold"]:
                names += [check(msgspec.msgpack.decode(record.value)) for record in consumer.fetch(1, wait=0.1)]
            while len(names) < client.topic("totals").records:
                names += [check(msgspec.msgpack.decode(record.value)) for record in consumer.fetch(100, wait=60)]
        assert sorted(set(names)) == sorted(names)
        assert len(names) + len(client.barriers()) <= len(programs.sent) + 1  # the group that was being sent


def check(words: list[tuple[str, bytes, str]]) -> str:
    """The group that a callback is of."""
    results = [json.loads(result) for _, result, _ in words]
    assert {state for state, _, _ in words} == {"completed"}
    assert [number for _, number in results] == [0, 1, 2]
    (name,) = {name for name, _ in results}
    return name
