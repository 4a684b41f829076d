"""The Redis clients of Node.js, ioredis and node-redis, at the door of a real gateway: programs in node/ connect them.

Each runs in its last two major versions, with RESP2 and RESP3. Without Node.js or the registry these tests skip.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import penstock
import pytest
from penstock.broker import ServeConfig
from penstock.gateway.config import GatewayConfig
from support.npm import installed, run_tests
from support.processes import Serving

SOURCES = Path(__file__).parent / "node"
FILES = sorted(path.name for path in SOURCES.glob("*.test.mjs"))
NAMES = ["ioredis 5, RESP2", "ioredis 6, RESP3", "node-redis 5, RESP2", "node-redis 6, RESP3"]
ADDED = 300  # entries between two kills


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the programs, with the libraries."""
    return installed(SOURCES, tmp_path_factory.mktemp("node") / "programs", "a program with ioredis or node-redis")


@pytest.mark.parametrize("file", FILES)
def test_it_passes(programs, gateway, guarded, secure, certificate, folder, file):
    places = {
        "tcp": {"port": gateway.port},
        "unix": {"path": f"{folder}/r"},
        "tls": {"port": secure.port, "ca": Path(certificate[0]).read_text()},
        "guarded": {"port": guarded.port, "username": "ann", "password": "s3cret word"},
    }
    done = run_tests([file], programs, PENSTOCK_TEST_PLACES=json.dumps(places))
    assert not re.search(r"^# skipped [1-9]", done.stdout, re.MULTILINE)


@pytest.fixture
def serving(gateway, tmp_path: Path, folder: Path) -> Iterator[Serving]:
    """A broker with a gateway, which both may be killed."""
    door = GatewayConfig(url="", resp=("tcp://127.0.0.1:0",)).to_json()
    listen = (f"unix://{folder}/n",)
    config = ServeConfig(data=str(tmp_path / "data"), listen=listen, gateway=door, board_rows=64, restart_most_s=0.2)
    with Serving(config) as serving:
        yield serving


class Survivor:
    """node/survivor.mjs, and the lines that it printed."""

    def __init__(self, programs: Path, name: str, port: int) -> None:
        self.topic = re.sub(r"\W", "", name)
        places = json.dumps({"tcp": {"port": port}})
        self.process = subprocess.Popen(
            ["node", "survivor.mjs", name, self.topic], cwd=programs, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PENSTOCK_TEST_PLACES": places},
        )  # fmt: skip
        self.added: list[tuple[int, str]] = []
        self.read: list[tuple[int, str]] = []

    def take_line(self) -> bool:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if line:
            what, number, id_ = line.split()
            (self.added if what == "added" else self.read).append((int(number), id_))
        return bool(line)

    def wait_for(self, further: int) -> None:
        """Wait until so many further entries are acknowledged."""
        wanted = len(self.added) + further
        while len(self.added) < wanted:
            assert self.take_line(), "it ended"

    def finish(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("stop\n")
        self.process.stdin.flush()
        while self.take_line():
            pass
        assert self.process.wait(60) == 0

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def survivors(programs: Path, serving: Serving) -> Iterator[list[Survivor]]:
    port = int(serving.ready["resp"][0].rpartition(":")[2])
    started: list[Survivor] = []
    try:
        for name in NAMES:
            started.append(Survivor(programs, name, port))
        yield started
    finally:
        for each in started:
            each.close()


def test_what_is_acknowledged_stays_when_gateway_and_broker_are_killed(survivors, serving):
    each_adds(survivors)
    before = serving.ready
    os.kill(serving.pid("gateway"), signal.SIGKILL)
    serving.wait_ready(other_than=before)
    each_adds(survivors)
    serving.kill_broker()
    each_adds(survivors)
    for survivor in survivors:
        survivor.finish()
    with penstock.connect(serving.url) as client:
        for survivor in survivors:
            records = client.read(survivor.topic, 0, 0, max_records=1_000_000)
            check(survivor, [int(record.value) for record in records])


def each_adds(survivors: list[Survivor]) -> None:
    for survivor in survivors:
        survivor.wait_for(ADDED)


def check(survivor: Survivor, values: list[int]) -> None:
    """Each answer is that of its command; what was acknowledged is there, and was read in order."""
    added, read = survivor.added, survivor.read
    assert {number for number, id_ in added if values[offset(id_)] != number} == set()
    assert len(added) == len(dict(added)) >= 3 * ADDED
    assert [offset(id_) for _, id_ in read] == list(range(len(read)))
    assert [number for number, _ in read] == values[: len(read)]
    assert set(dict(read)) >= set(dict(added))


def offset(id_: str) -> int:
    return int(id_.partition("-")[2])
