"""Brokers and producers in processes of their own: killed, stopped, ended and started again while a log is lent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from penstock.broker import ServeConfig
from penstock.storage.batch import encode
from penstock.storage.files import Files
from penstock.storage.layout import LOCK, live_segments
from penstock.storage.lending import attaching
from penstock.transport import messages as m
from support import lending
from support.direct import granted
from support.processes import Serving, until
from support.raw_client import RawClient

pytestmark = pytest.mark.skipif(bool(attaching.MISSING), reason=attaching.MISSING)

PRODUCER = 77
PROGRAMS = Path(lending.__file__).parent


class Place:
    """A broker, a topic, and the producer's connection."""

    def __init__(self, folder: Path) -> None:
        self.config = ServeConfig(
            data=f"{folder}/data", listen=(f"unix://{folder}/s",), restart_most_s=0.2, board_rows=8
        )
        self.serving = Serving(self.config)
        self.client = RawClient(self.serving.url)
        self.topic = self.client.create_topic("t", commit="written")
        self.processes: list[subprocess.Popen[bytes]] = []
        self.said: list[int] = []
        self.next = 0

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()
        self.client.close()
        self.serving.close()

    def lend(self) -> m.Lent:
        """Ask until there is a grant."""
        assert until(self._ask, self.serving), self._answer
        assert isinstance(self._answer, m.Lent)
        return self._answer

    def _ask(self) -> bool:
        self._answer, _ = self.client.ask(lambda request: m.Lend(request, self.topic, 0, PRODUCER, 0, self.next))
        assert isinstance(self._answer, m.Lent) or self._answer.code == "not_lent", self._answer
        return isinstance(self._answer, m.Lent)

    def start(self, *, stop_at: int = 0) -> subprocess.Popen[bytes]:
        """A process that appends as long as it may."""
        lent = self.lend()
        grant = msgspec.msgpack.encode(granted(lent, PRODUCER, 0)).hex()
        program = [
            str(PROGRAMS / ("stopping_producer.py" if stop_at else "lent_producer.py")),
            *([str(stop_at)] if stop_at else []),
        ]
        answer, _ = self.client.ask(lambda request: m.Hello(request, 1, 1, "test"))
        reading, writing = os.pipe()
        process = subprocess.Popen(
            [sys.executable, *program, grant, lent.directory, f"{self.config.data}/lock", answer.board,
             str(self.next), str(writing)],
            pass_fds=[writing], env={**os.environ, "PAUSE_S": "0.002"},
        )  # fmt: skip
        os.close(writing)
        self.processes.append(process)
        self._pipe = os.fdopen(reading, "rb")
        return process

    def hear(self, count: int) -> None:
        """So many acknowledgements; -1: all, of a process that ends."""
        while count and (line := self._pipe.readline()):
            self.said.append(int(line))
            count -= 1
        self.next = len(self.said)

    def read(self) -> list[int]:
        with RawClient(self.serving.url) as client:
            return [int(value) for value in client.read_all(self.topic, 0)]

    def generations(self) -> set[int]:
        names, _ = live_segments(os.listdir(f"{self.config.data}/topics/{self.topic.hex()}/0"))
        return {name.generation for name in names}


def wait_stopped(process: subprocess.Popen[bytes]) -> None:
    """Until it has stopped itself."""
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    found = Place(tmp_path)
    yield found
    found.close()


def test_what_a_producer_was_told_stands_when_the_broker_is_killed(place: Place) -> None:
    process = place.start()
    place.hear(200)
    place.serving.kill_broker()
    place.hear(-1)
    assert process.wait(20) == 0, "the incarnation ends its grant"
    found = place.read()
    assert place.said == list(range(len(place.said)))
    assert found[: len(place.said)] == place.said
    assert len(found) <= len(place.said) + 1
    place.next = len(found)
    process = place.start()
    place.hear(50)
    assert place.read()[: len(found) + 50] == list(range(len(found) + 50))


def test_a_broker_that_ends_in_good_order_takes_the_log_back(place: Place) -> None:
    process = place.start()
    place.hear(200)
    place.serving.close()
    place.hear(-1)
    assert process.wait(20) == 0
    place.serving = Serving(place.config)
    found = place.read()
    assert found[: len(place.said)] == place.said == list(range(len(place.said)))
    assert len(found) <= len(place.said) + 1
    assert place.generations() == {1}


def test_a_stopped_producer_holds_nothing_up_for_long(place: Place) -> None:
    process = place.start(stop_at=50)
    place.hear(49)
    wait_stopped(process)
    with RawClient(place.serving.url) as other:
        begun = time.monotonic()
        answer = other.produce(place.topic, encode([b"1000"]))
        assert isinstance(answer, m.Produced)
        assert 0.5 < time.monotonic() - begun < 15
    assert place.read() == [*place.said, 1000]
    process.send_signal(signal.SIGCONT)
    place.hear(-1)
    assert process.wait(20) == 0
    assert len(place.said) == 49, "its batch is void, and it was not told"
    assert place.read() == [*place.said, 1000]
    assert place.generations() == {1, 2}


@pytest.mark.parametrize("how", ["killed", "ended"])
def test_a_broker_that_goes_while_a_producer_is_stopped(place: Place, how: str) -> None:
    process = place.start(stop_at=50)
    place.hear(49)
    wait_stopped(process)
    if how == "killed":
        place.serving.kill_broker()
    else:
        place.serving.close()
        place.serving = Serving(place.config)
    assert place.read() == place.said
    with RawClient(place.serving.url) as other:
        assert isinstance(other.produce(place.topic, encode([b"1000"])), m.Produced)
    process.send_signal(signal.SIGCONT)
    place.hear(-1)
    assert process.wait(20) == 0
    assert place.read() == [*place.said, 1000]
    assert len(place.said) == 49
    place.serving.kill_broker()
    assert place.read() == [*place.said, 1000]


def test_a_killed_producer_leaves_what_it_was_told(place: Place) -> None:
    for _ in range(3):
        process = place.start()
        place.hear(60)
        process.kill()
        place.hear(-1)
        found = place.read()
        assert found[: len(place.said)] == place.said
        place.client.close()  # as its own would be
        place.client = RawClient(place.serving.url)
        found = place.read()
        assert len(found) <= len(place.said) + 1
        place.said = found
        place.next = len(found)
    assert place.said == list(range(len(place.said)))


def test_the_broker_says_what_it_refused_of_a_producer_that_appended_it_by_itself(place: Place) -> None:
    lent = place.lend()
    answer, _ = place.client.ask(lambda request: m.Hello(request, 1, 1, "test"))
    appender = attaching.attach(
        granted(lent, PRODUCER, 0), directory=lent.directory, lock=f"{place.config.data}/{LOCK}", board=answer.board,
        files=Files(),
    )  # fmt: skip
    assert appender.append(encode([b"bad"], producer_id=PRODUCER, first_sequence=5)) is not None
    appender.end()
    assert place.read() == []
    last = f"of producer {PRODUCER:x} in {lent.directory}"  # of a line that may arrive in pieces
    assert until(lambda: last in place.serving.errors(), place.serving)
    assert "producers appended by themselves, refused and cut away: 1," in place.serving.errors()
