"""Backups beside producers that append by themselves: each point is one moment, behind all that was acknowledged."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import penstock
import pytest
from penstock.broker import ServeConfig
from penstock.clients.backing_up import back_up
from penstock.storage.backup_point import read_point
from penstock.storage.files import Files
from penstock.storage.lending.attaching import MISSING
from penstock.storage.restore import restore
from support.processes import Serving
from support.raw_client import RawClient

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"logs are lent {MISSING}")

TOPICS = ("cause", "effect")
BACKUPS = 4


def serve(folder: Path, data: str) -> Serving:
    return Serving(ServeConfig(data=str(folder / data), listen=(f"unix://{folder}/{data}.s",), board_rows=16))


class Appending:
    """A producer of both topics: each number is in the second one only after it is acknowledged in the first."""

    def __init__(self, url: str) -> None:
        self.acked = 0
        self.direct = 0
        self._url = url
        self._over = threading.Event()
        with RawClient(url) as client:
            self.topics = [client.create_topic(topic, commit="written") for topic in TOPICS]
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with penstock.connect(self._url, timeout=20) as client:
            cause, effect = (client.producer(topic, direct=True) for topic in TOPICS)
            for number in itertools.count():
                cause.send(b"%d" % number)
                effect.send(b"%d" % number)
                self.acked = number + 1
                self.direct += bool(cause.direct and effect.direct)
                if self._over.is_set():
                    return

    def reach(self, count: int) -> None:
        """Wait until so many more were appended directly."""
        wanted = self.direct + count
        while self.direct < wanted:
            assert self._thread.is_alive()
            self._over.wait(0.01)

    def end(self) -> None:
        self._over.set()
        self._thread.join(60)


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    with serve(tmp_path, "data") as found:
        yield found


def test_a_point_beside_direct_producers_is_one_moment(tmp_path: Path, serving: Serving) -> None:
    data, target = str(tmp_path / "data"), str(tmp_path / "backups")
    appending = Appending(serving.url)
    points: dict[str, int] = {}
    try:
        for _ in range(BACKUPS):
            appending.reach(200)
            acked = appending.acked
            points[back_up(data, target).name] = acked
        appending.reach(50)
    finally:
        appending.end()
    for number, (point, acked) in enumerate(points.items()):
        check(tmp_path, target, point, f"r{number}", appending, acked)


def check(folder: Path, target: str, point: str, name: str, appending: Appending, acked: int) -> None:
    restore(Files(), target, read_point(Files(), target, point), str(folder / name))
    with serve(folder, name) as again:
        with RawClient(again.url) as client:
            cause, effect = ([int(value) for value in client.read_all(topic, 0)] for topic in appending.topics)
        assert cause == list(range(len(cause)))
        assert effect == list(range(len(effect)))
        assert acked <= len(effect) <= len(cause) <= len(effect) + 1
        assert again.end() == 0
