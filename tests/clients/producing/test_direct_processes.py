"""Producers that append by themselves, with real processes: whatever is stopped or killed, what stands stands once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from penstock.broker import ServeConfig
from penstock.clients import Client, connect
from penstock.storage.lending.attaching import MISSING
from support.processes import Serving, spawn

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"logs are lent {MISSING}")
SCRIPT = Path(__file__).resolve().parents[2] / "support" / "direct_producer.py"


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    with Serving(
        ServeConfig(data=str(tmp_path / "data"), listen=(f"unix://{tmp_path}/s",), restart_most_s=0.2)
    ) as served:
        yield served


@pytest.fixture
def client(serving: Serving) -> Iterator[Client]:
    with connect(serving.url, timeout=8) as found:
        found.create_topic("t", commit="written")
        yield found


class Producing:
    """One producer process, and the offsets that it was told."""

    def __init__(self, url: str, label: str, count: int, hook: str = "") -> None:
        command = [sys.executable, str(SCRIPT), url, "t", label, str(count), hook]
        self.label = label
        self.offsets: list[int] = []
        self.direct = -1
        self.process = spawn(command, signal.SIGKILL, stdout=subprocess.PIPE, text=True)

    def read_until(self, count: int) -> None:
        """Until so many offsets are known, or it says that it stops, or its output ends."""
        assert self.process.stdout is not None
        while len(self.offsets) < count and (line := self.process.stdout.readline().split()):
            if line == ["stops"]:
                return
            if line[0] == "direct":
                self.direct = int(line[1])
            else:
                self.offsets.append(int(line[0]))

    def finish(self) -> None:
        self.read_until(1 << 60)
        self.process.wait(60)

    def kill(self) -> None:
        self.process.kill()
        self.finish()


@pytest.fixture
def start(serving: Serving) -> Iterator[Callable[..., Producing]]:
    started: list[Producing] = []

    def begin(*what: Any) -> Producing:
        started.append(Producing(serving.url, *what))
        return started[-1]

    yield begin
    for each in started:
        each.kill()


def check(client: Client, *producers: Producing, more: int = 0) -> None:
    """What was acknowledged is where it was said to be, each record is there once, each producer's in order."""
    found = client.read("t", 0, 0, max_records=1 << 20)
    values = [record.value for record in found]
    assert len(set(values)) == len(values)
    assert len(values) == sum(1 for value in values if value.split()[0].decode() in {p.label for p in producers}) + more
    for producer in producers:
        own = [
            (record.offset, int(record.value.split()[1]))
            for record in found
            if record.value.split()[0] == producer.label.encode()
        ]
        assert [number for _, number in own] == list(range(len(own)))
        assert [offset for offset, _ in own][: len(producer.offsets)] == producer.offsets


def lending(client: Client) -> dict[str, Any]:
    return {name: value for name, value in client.stats().items() if name.startswith("lending.")}


def test_readers_and_members_of_groups_follow_and_end_no_grant(client: Client) -> None:
    with client.consumer("t", group="g", auto_commit=0.01) as member, client.producer("t", direct=True) as producer:
        for number in range(500):
            producer.send(b"%d" % number)
            assert [record.value for record in member.fetch(1, wait=8)] == [b"%d" % number]
        member.commit()
        assert producer.direct
    assert client.group("t", "g").lag == 0
    assert lending(client)["lending.given"] == 1


def test_two_producers_in_turns(client: Client, start: Callable[..., Producing]) -> None:
    both = [start(label, 300) for label in ("a", "b")]
    for producer in both:
        producer.finish()
    check(client, *both)


def test_a_queue_group_that_is_made_meanwhile_gets_every_record_once(
    client: Client, start: Callable[..., Producing]
) -> None:
    producing = start("a", 0)
    producing.read_until(100)
    assert lending(client)["lending.lent"] == 1
    found: list[bytes] = []
    with client.worker("t", group="q") as worker:

        def work_off(count: int) -> None:
            while len(found) < count:
                for task in worker.fetch(100, wait=5):
                    found.append(task.value)
                    task.ack()

        work_off(500)
        assert lending(client)["lending.lent"] == 0
        producing.kill()
        work_off(client.offsets("t", "latest")[0])
    assert found == [b"a %d" % number for number in range(len(found))]
    check(client, producing)


@pytest.mark.parametrize("hook", ["kill", "stop", "fork"])
def test_a_producer_that_is_held_up_in_the_middle_of_an_append(
    client: Client, start: Callable[..., Producing], hook: str
) -> None:
    producing = start("a", 300, hook)
    producing.read_until(99 if hook == "fork" else 1 << 60)
    with client.producer("t") as other:
        assert other.send(b"b 0") >= len(producing.offsets)
    if hook == "stop":
        os.kill(producing.process.pid, signal.SIGCONT)
    producing.finish()
    assert len(producing.offsets) == (99 if hook == "kill" else 300)
    check(client, producing, more=1)


def test_killed_producers_lose_nothing_that_stands(client: Client, start: Callable[..., Producing]) -> None:
    killed = []
    for label in "abc":
        killed.append(start(label, 0))
        killed[-1].read_until(200)
        killed[-1].kill()
    check(client, *killed)


@pytest.mark.parametrize("kill", [True, False])
def test_the_broker_ends_and_begins_while_logs_are_lent(
    client: Client, serving: Serving, start: Callable[..., Producing], kill: bool
) -> None:
    producing = start("a", 0)
    producing.read_until(100)
    for _ in range(2):
        before = serving.ready
        if kill:
            serving.kill_broker()
        else:
            os.kill(serving.pid("broker"), signal.SIGTERM)
            serving.wait_ready(other_than=before)
        producing.read_until(len(producing.offsets) + 200)
    producing.kill()
    check(client, producing)


def test_threads_share_one_producer(client: Client) -> None:
    with client.producer("t", direct=True) as producer:
        offsets: list[int] = []

        def send(label: bytes) -> None:
            for number in range(100):
                offsets.append(producer.send(b"%s %d" % (label, number)))

        threads = [threading.Thread(target=send, args=(b"%d" % label,)) for label in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert producer.direct
    assert sorted(offsets) == list(range(400))


def test_what_cannot_be_appended_to_goes_through_the_broker_and_says_why(serving: Serving, client: Client) -> None:
    client.create_topic("durable")
    with client.producer("durable", direct=True) as producer:
        assert producer.send(b"x") == 0
        assert "durable" in producer.direct.reasons[0]
    client.create_topic("small", commit="written", segment_bytes=1 << 20)
    with client.producer("small", direct=True) as producer:  # segments are full again and again
        for number in range(300):
            assert producer.send(bytes(20_000)) == number
