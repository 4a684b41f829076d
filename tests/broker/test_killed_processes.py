"""Real processes under load, killed and stopped at random instants: nothing acknowledged is lost.

A run has two producers and two members of a group on a topic of two partitions. A seeded schedule kills
(SIGKILL) and stops (SIGSTOP, SIGCONT) broker, keeper, producers and consumers. Then everything comes to rest and
the checker judges every record: lost, reordered and phantom must be none, stored duplicates none, and what the
group was given twice at most what was under way at each disturbance.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from penstock.broker import ServeConfig
from support.checker import Sent, check_read, check_stored
from support.load import CREDIT_RECORDS, RECORDS
from support.processes import Program, Serving, read_by, sent_by, until
from support.raw_client import RawClient

PARTITIONS = 2
CHUNK_BYTES = 4096
WINDOW = CREDIT_RECORDS + CHUNK_BYTES // 10 + RECORDS
"""Most records of one member that are under way: its credit, overdrawn by one chunk."""


class Scene:
    """Everything of one run."""

    def __init__(self, folder: Path, seed: int, scheme: str, commit: str, delivery: str) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.delivery = delivery
        self.disturbed = 0
        config = ServeConfig(
            data=str(folder / "data"), listen=(f"{scheme}://{folder}/s",), restart_most_s=0.2, keeper_timeout_s=1.0,
            board_rows=64, node={"chunk_bytes": CHUNK_BYTES, "session_timeout_min_s": 0.5},
        )  # fmt: skip
        self.serving = Serving(config)
        with RawClient(self.serving.url) as client:
            self.topic = client.create_topic("load", PARTITIONS, commit=commit, segment_bytes=256 << 10)
        self.programs: dict[str, Program] = {}
        self.ended: list[Program] = []
        self._labels = 0
        for place in ("producer 0", "producer 1", "consumer 0", "consumer 1"):
            self.start(place)

    def start(self, place: str) -> None:
        """The program at a place, under a label of its own."""
        role, number = place.split()
        self._labels += 1
        label, url, topic = f"{number}.{self._labels}", self.serving.url, self.topic.hex()
        rest = [number, label, "JOURNAL"] if role == "producer" else ["g", f"m{number}", "JOURNAL", self.delivery]
        self.programs[place] = Program(role, self.folder, label, url, topic, *rest)

    def of(self, role: str) -> list[Program]:
        return [each for each in (*self.ended, *self.programs.values()) if each.role == role]

    # -- disturbances -----------------------------------------------------------------------------

    def disturb(self) -> None:
        """One of them, at random."""
        kinds: list[Callable[[], None]] = [
            self.kill_broker, self.kill_keeper, self.kill_both, self.kill_program, self.stop_server, self.stop_program,
        ]  # fmt: skip
        self.disturbed += 1
        self.random.choice(kinds)()

    def kill_broker(self) -> None:
        self._kill("broker")

    def kill_keeper(self) -> None:
        self._kill("keeper")

    def kill_both(self) -> None:
        first = self.random.choice([("broker", "keeper"), ("keeper", "broker")])
        before = self.serving.ready
        for role in first:
            os.kill(self.serving.pid(role), signal.SIGKILL)
        self.serving.wait_ready(other_than=before)

    def _kill(self, role: str) -> None:
        before = self.serving.ready
        os.kill(self.serving.pid(role), signal.SIGKILL)
        self.serving.wait_ready(other_than=before)

    def kill_program(self) -> None:
        place = self.random.choice(sorted(self.programs))
        self.programs[place].kill()
        self.ended.append(self.programs[place])
        self.start(place)

    def stop_server(self) -> None:
        """Stopped for longer than the keeper's patience at times: then it is replaced."""
        role, before = self.random.choice(["broker", "keeper"]), self.serving.ready
        pid = self.serving.pid(role)
        os.kill(pid, signal.SIGSTOP)
        self.serving.watch(self.random.choice([0.05, 0.3, 1.6]))
        if self.serving.ready == before:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                self.serving.wait_ready(other_than=before)

    def stop_program(self) -> None:
        program = self.programs[self.random.choice(sorted(self.programs))]
        program.signal(signal.SIGSTOP)
        self.serving.watch(self.random.uniform(0.05, 1.0))
        program.signal(signal.SIGCONT)

    # -- the end ----------------------------------------------------------------------------------

    def rest(self) -> tuple[dict[str, Sent], list[list[bytes]]]:
        """Let producers finish and consumers catch up. Returns the journals and what is stored."""
        for program in self.programs.values():
            if program.role == "producer":
                # One that was just started may not have got to its handler, or to sending anything.
                assert program.finish() in (0, -signal.SIGTERM), program.complaints()
        with RawClient(self.serving.url) as client:
            logs = [client.read_all(self.topic, partition) for partition in range(PARTITIONS)]
        wanted = sum(map(len, logs))
        caught_up = until(lambda: len(self.given()) >= wanted, self.serving)
        assert caught_up, f"the group has {len(self.given())} of {wanted} records: {self.complaints()}"
        return {program.label: sent_by(program) for program in self.of("producer")}, logs

    def given(self) -> set[tuple[int, int]]:
        return {(partition, offset) for each in self.of("consumer") for partition, offset, _ in read_by(each)}

    def complaints(self) -> str:
        return "\n".join(each.complaints() for each in self.of("consumer")) + self.serving.errors()

    def close(self) -> None:
        for program in (*self.ended, *self.programs.values()):
            program.close()
        self.serving.close()


def run(folder: Path, seed: int, disturbances: int, scheme: str, commit: str, delivery: str) -> None:
    scene = Scene(folder, seed, scheme, commit, delivery)
    try:
        for _ in range(disturbances):
            scene.serving.watch(scene.random.uniform(0.02, 0.4))
            scene.disturb()
        sent, logs = scene.rest()
        stored = check_stored(sent, logs)
        print(f"seed {seed}, {scheme}, {commit}, {delivery}: {stored}")
        assert stored.lost == stored.duplicate == stored.reordered == stored.phantom == [], str(stored)
        assert stored.ok > 0
        for partition, log in enumerate(logs):
            given = [(o, v) for each in scene.of("consumer") for p, o, v in read_by(each) if p == partition]
            read = check_read(log, given)
            assert read.lost == read.phantom == [], str(read)
            assert len(read.duplicate) <= scene.disturbed * WINDOW, f"{len(read.duplicate)} for {scene.disturbed}"
        assert scene.serving.end() == 0
    finally:
        scene.close()


@pytest.mark.parametrize(
    ("scheme", "commit", "delivery"),
    [("ipc", "durable", "push"), ("unix", "durable", "control"), ("unix", "written", "push")],
)
def test_nothing_acknowledged_is_lost(tmp_path: Path, seed: int, scheme: str, commit: str, delivery: str):
    run(tmp_path, seed, 7, scheme, commit, delivery)


@pytest.mark.soak
@pytest.mark.parametrize("round_", range(20))
def test_nothing_acknowledged_is_lost_in_many_rounds(tmp_path: Path, seed: int, round_: int):
    commit, delivery = [("durable", "push"), ("written", "control"), ("durable", "control")][round_ % 3]
    run(tmp_path, seed * 1000 + round_, 30, ["unix", "ipc"][round_ % 2], commit, delivery)
