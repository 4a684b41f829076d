"""Backups of a broker under load, some of them killed: each point, restored and served, is one moment of the original.

Programs commit transactions over several partitions, a queue is filled and worked off, and retention removes segments.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import penstock
from penstock.broker import ServeConfig
from penstock.storage import backup_point
from penstock.storage.files import Files
from penstock.transport import messages as m
from support.processes import Program, Serving, spawn, until
from support.raw_client import RawClient
from support.transaction_load import TOPICS, values_of

NAMES = ("one", "two")
BACKUPS = 3


def serve(folder: Path, data: str) -> Serving:
    return Serving(ServeConfig(
        data=str(folder / data), listen=(f"unix://{folder}/{data}.s",), board_rows=64, node={"housekeeping_s": 0.05},
    ))  # fmt: skip


def cli(*words: str) -> list[str]:
    return [sys.executable, "-m", "penstock", *words, "--json"]


def ran(*words: str) -> dict[str, object]:
    found = subprocess.run(cli(*words), capture_output=True, timeout=90, check=False, stdin=subprocess.DEVNULL)
    assert found.returncode == 0, found.stderr.decode()
    return json.loads(found.stdout)


class Tasks:
    """A queue that a thread fills and another works off; what each was told is written down."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.sent: set[bytes] = set()
        self.acked: set[bytes] = set()
        self._over = threading.Event()
        with penstock.connect(url) as client:
            client.create_topic("tasks", partitions=2)
            client.create_topic("churn", segment_bytes=1 << 16, retention_bytes=1 << 17)
            client.set_queue("tasks", "work", lease_s=1.0)
        self._threads = [threading.Thread(target=each) for each in (self._send, self._work, self._churn)]

    def __enter__(self) -> Tasks:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)

    def _send(self) -> None:
        with penstock.connect(self.url) as client, client.producer("tasks") as producer:
            number = 0
            while not self._over.is_set():
                value = b"task %d" % (number := number + 1)
                producer.send(value, key=value)
                self.sent.add(value)

    def _work(self) -> None:
        with penstock.connect(self.url) as client, client.worker("tasks", group="work") as worker:
            while not self._over.is_set():
                for task in worker.fetch(7, wait=0.1):
                    task.ack()
                    self.acked.add(bytes(task.value or b""))

    def _churn(self) -> None:
        with penstock.connect(self.url) as client, client.producer("churn") as producer:
            while not self._over.is_set():
                producer.send(bytes(20_000))


def drained(url: str) -> set[bytes]:
    """The tasks that a restored queue still has, those that are leased when their leases expire."""
    found: set[bytes] = set()
    with penstock.connect(url) as client, client.worker("tasks", group="work") as worker:
        while (queue := client.queue("tasks", "work")).ready + queue.in_flight + queue.retrying:
            for task in worker.fetch(1000, wait=0.5):
                assert task.value not in found
                found.add(bytes(task.value or b""))
                task.ack()
    return found


def whole_epochs(serving: Serving, topics: dict[str, bytes], name: str) -> int:
    """The last epoch that is there; fails unless each epoch up to it is there once, with all of its records."""
    with RawClient(serving.url) as client:
        found: list[bytes] = []
        for topic, count in TOPICS.items():
            for number in range(count):
                found += client.read_all(topics[topic], number)
    own = [value for value in found if value.startswith(f"{name}/".encode())]
    last = max((int(value.split(b"/")[1]) for value in own), default=0)
    wanted = sorted(
        value for epoch in range(1, last + 1) for topic in TOPICS for value in values_of(name, epoch, topic)
    )
    assert sorted(own) == wanted, f"{name} up to {last}"
    return last


def back_up_and_kill(data: str, target: str, choose: random.Random) -> None:
    """Start a backup and kill it: at once, or after it has made files."""
    process = spawn(
        cli("backup", target, "--data", data), signal.SIGKILL, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    before = set(Files().listdir(target))
    if choose.random() < 0.8:
        while process.poll() is None and set(Files().listdir(target)) == before:
            os.sched_yield()
    process.kill()
    process.communicate()


def test_every_point_is_one_moment_of_a_broker_under_load(tmp_path: Path, seed: int) -> None:
    choose, target, data = random.Random(seed), str(tmp_path / "backups"), str(tmp_path / "data")
    moments: dict[str, tuple[dict[str, int], set[bytes], set[bytes]]] = {}
    after: dict[str, tuple[set[bytes], set[bytes]]] = {}
    with serve(tmp_path, "data") as serving:
        with RawClient(serving.url) as client:
            topics = {name: client.create_topic(name, count, segment_bytes=256 << 10) for name, count in TOPICS.items()}
        programs = [
            Program("committer", tmp_path, name, serving.url, name, "JOURNAL", module="transaction_load")
            for name in NAMES
        ]
        try:
            with Tasks(serving.url) as tasks:
                for number in range(BACKUPS):
                    grown = len(tasks.acked) + 20
                    assert until(lambda: len(tasks.acked) > grown, serving, 60.0), serving.errors()  # noqa: B023
                    if number % 2:
                        back_up_and_kill(data, target, choose)
                    told = {each.label: committed(each) for each in programs}
                    acked, sent = set(tasks.acked), set(tasks.sent)
                    point = str(ran("backup", target, "--data", data)["point"])
                    moments[point] = (told, acked, sent)
                    after[point] = (set(tasks.acked), set(tasks.sent))
        finally:
            for program in programs:
                program.close()
        total = (set(tasks.acked), set(tasks.sent))
    names = backup_point.point_names(Files(), target)
    assert set(moments) <= set(names), "a killed backup may have come to its end"
    for number, (point, (told, acked, sent)) in enumerate(moments.items()):
        ran("restore", target, "--data", str(tmp_path / f"r{number}"), "--point", point)
        with serve(tmp_path, f"r{number}") as again:
            for name in NAMES:
                assert until(lambda: _settled(again, name), again), name  # noqa: B023
                assert whole_epochs(again, topics, name) >= told[name]
            rest = drained(again.url)
            assert not rest & acked, "acked before the backup, and there again"
            # A send or an ack may be under way while the sets are copied.
            assert sent - total[0] <= rest <= total[1] | {b"task %d" % (len(total[1]) + 1)}
            assert sent - after[point][0] - rest <= total[0]
            assert again.end() == 0


def committed(program: Program) -> int:
    """The last epoch that a program was told of."""
    lines = program.journal.read_text().splitlines()
    return int(lines[-1].split()[1]) if lines else 0


def _settled(serving: Serving, name: str) -> bool:
    with RawClient(serving.url) as client:
        return client.ask(lambda request: m.AskTransaction(request, name))[0].finished


def test_commands_beside_a_broker_ask_it_where_this_machine_reaches_it(tmp_path: Path) -> None:
    """Neither at every interface, which is no place to connect to, nor at a name that is of other machines."""
    data, private = str(tmp_path / "data"), f"unix://{tmp_path}/s"
    for listen in ("tcp://0.0.0.0:0", private), ("tcp://0.0.0.0:0",):
        config = ServeConfig(
            data=data, listen=listen, advertise=("tcp://broker.invalid:7070",), insecure=True, board_rows=32
        )
        with Serving(config) as serving:
            assert ran("backup", str(tmp_path / "backups"), "--data", data)["left_out"] == {}
            found = subprocess.run(cli("doctor", "--data", data), capture_output=True, timeout=60, check=False)
            broker = [each for each in map(json.loads, found.stdout.splitlines()) if each["check"] == "broker"]
            port = serving.ready["listen"][0].rpartition(":")[2]
            place = private if private in listen else f"tcp://127.0.0.1:{port}"
            assert [each["says"] for each in broker] == [f"at {place}: serves 0 topics"]
