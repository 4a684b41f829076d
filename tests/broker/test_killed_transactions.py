"""Real processes that commit transactions, killed and stopped at random instants: all or nothing, each epoch once.

Three programs commit epochs, two of them under the same name, so that they also race each other. A seeded schedule
kills (SIGKILL) and stops broker, keeper and programs. Then everything comes to rest, and each name has the epochs
from 1 to the last one, each with all of its records, once and in order.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from penstock.broker import ServeConfig
from penstock.transport import messages as m
from penstock.transport.partitioner import partition_of
from support.processes import Program, Serving, until
from support.raw_client import RawClient
from support.transaction_load import TOPICS, key_of, values_of

NAMES = ["shared", "shared", "own"]
EPOCHS_MIN = 3
"""Committed under each name before the end, so that the run has something to show."""


class Scene:
    """Everything of one run."""

    def __init__(self, folder: Path, seed: int, levels: dict[str, str]) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        config = ServeConfig(
            data=str(folder / "data"), listen=(f"unix://{folder}/s",), restart_most_s=0.2, keeper_timeout_s=1.0,
            board_rows=64,
        )  # fmt: skip
        self.serving = Serving(config)
        with RawClient(self.serving.url) as client:
            self.topics = {
                name: client.create_topic(name, count, commit=levels[name], segment_bytes=256 << 10)
                for name, count in TOPICS.items()
            }
        self.programs: list[Program] = []
        self.ended: list[Program] = []
        for name in NAMES:
            self.start(name)

    def start(self, name: str) -> None:
        """A program that commits under a name."""
        label = f"{name}-{len(self.programs) + len(self.ended)}"
        self.programs.append(
            Program("committer", self.folder, label, self.serving.url, name, "JOURNAL", module="transaction_load")
        )

    # -- disturbances -------------------------------------------------------------------------------

    def disturb(self) -> None:
        """One of them, at random."""
        kinds: list[Callable[[], None]] = [
            lambda: self.kill("broker"), lambda: self.kill("broker"), lambda: self.kill("keeper"), self.kill_program,
            self.kill_program, self.stop_broker,
        ]  # fmt: skip
        self.random.choice(kinds)()

    def kill(self, role: str) -> None:
        before = self.serving.ready
        os.kill(self.serving.pid(role), signal.SIGKILL)
        self.serving.wait_ready(other_than=before)

    def kill_program(self) -> None:
        program = self.programs.pop(self.random.randrange(len(self.programs)))
        program.kill()
        self.ended.append(program)
        self.start(program.label.partition("-")[0])

    def stop_broker(self) -> None:
        pid = self.serving.pid("broker")
        os.kill(pid, signal.SIGSTOP)
        self.serving.watch(self.random.uniform(0.05, 0.5))
        os.kill(pid, signal.SIGCONT)

    # -- the end ------------------------------------------------------------------------------------

    def committed(self, name: str) -> set[int]:
        """The epochs that some program was told of."""
        journals = [each.journal for each in (*self.ended, *self.programs) if each.label.startswith(name)]
        return {int(line.split()[1]) for journal in journals for line in journal.read_text().splitlines()}

    def rest(self) -> None:
        """Let each name have some epochs, end the programs, and have everything published."""
        some = until(lambda: all(len(self.committed(name)) >= EPOCHS_MIN for name in set(NAMES)), self.serving, 60.0)
        assert some, self.complaints()
        for program in self.programs:
            assert program.finish() in (0, -signal.SIGTERM), program.complaints()

    def check(self) -> dict[str, int]:
        """Every epoch, once and whole. Returns the last one by name."""
        with RawClient(self.serving.url) as client:
            last = {name: self._last(client, name) for name in set(NAMES)}
            for topic, count in TOPICS.items():
                for number in range(count):
                    found = client.read_all(self.topics[topic], number)
                    for name, epoch in last.items():
                        own = [value for value in found if value.startswith(f"{name}/".encode())]
                        assert own == expected(name, epoch, topic, number), f"{name} up to {epoch} in {topic}/{number}"
        for name, epoch in last.items():
            assert max(self.committed(name)) <= epoch
        return last

    def _last(self, client: RawClient, name: str) -> int:
        """The last epoch, once it is finished."""
        states: list[m.TransactionState] = []

        def finished() -> bool:
            states.append(client.ask(lambda request: m.AskTransaction(request, name))[0])
            return states[-1].finished

        assert until(finished, self.serving), f"{name}: {states[-1]}"
        return states[-1].epoch

    def complaints(self) -> str:
        return "\n".join(each.complaints() for each in self.programs) + self.serving.errors()

    def close(self) -> None:
        for program in (*self.ended, *self.programs):
            program.close()
        self.serving.close()


def expected(name: str, last: int, topic: str, partition: int) -> list[bytes]:
    """What a partition has of a name."""
    return [
        value
        for epoch in range(1, last + 1)
        for value in values_of(name, epoch, topic)
        if partition_of(key_of(value), TOPICS[topic]) == partition
    ]


def run(folder: Path, seed: int, disturbances: int, levels: dict[str, str]) -> None:
    scene = Scene(folder, seed, levels)
    try:
        for _ in range(disturbances):
            scene.serving.watch(scene.random.uniform(0.05, 0.5))
            scene.disturb()
        scene.rest()
        print(f"seed {seed}, {levels}: {scene.check()}")
        scene.kill("broker")
        scene.check()
        assert scene.serving.end() == 0
    finally:
        scene.close()


@pytest.mark.parametrize("level", ["durable", "written"])
def test_each_epoch_is_there_once_and_whole_whatever_is_killed(tmp_path: Path, seed: int, level: str):
    run(tmp_path, seed, 6, {"a": "durable", "b": level})


@pytest.mark.soak
@pytest.mark.parametrize("round_", range(20))
def test_each_epoch_is_there_once_in_many_rounds(tmp_path: Path, seed: int, round_: int):
    run(tmp_path, seed * 1000 + round_, 25, {"a": "durable", "b": ["durable", "written"][round_ % 2]})
