"""Producers in processes of their own append to a lent log; they are killed, stopped, recalled and borrowed from."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from penstock.storage.batch import encode
from penstock.storage.board import Board, Level
from penstock.storage.errors import BoardUnavailable
from penstock.storage.files import Files
from penstock.storage.layout import log_number
from penstock.storage.lending import attaching
from penstock.storage.lending.following import Terms
from penstock.storage.lending.grant import LogGrant
from penstock.storage.lending.incarnation import Incarnation, renew
from penstock.storage.lending.lender import Lender
from penstock.storage.log import LogOptions, LogWriter
from penstock.storage.order import Sole
from penstock.storage.promises import Promises
from penstock.storage.range_locks import RangeLocks
from penstock.storage.reader import LogReader
from support import lending

pytestmark = pytest.mark.skipif(bool(attaching.MISSING), reason=attaching.MISSING)

PROGRAM = Path(lending.__file__).with_name("lent_producer.py")


class Node:
    """A broker's part of a lent log in files, with a mapped reader."""

    def __init__(self, directory: Path) -> None:
        self.path, self.lock, self.files = f"{directory}/log", f"{directory}/lock", Files()
        Path(self.lock).write_text("{}")
        self.board = Board.create(1, slots=0, file=f"{directory}/board")
        self.row = self.board.row(0)
        promises = Promises(f"{directory}/promises", self.files)
        options = LogOptions(segment_bytes=8 << 20, commit="written")
        self.log = LogWriter.create(
            self.path, files=self.files, log_id=lending.LOG_ID, options=options, order=Sole(promises)
        )
        self.row.assign(log_number(lending.LOG_ID), generation=1, level=Level.WRITTEN)
        self.log.on_segment = lambda _: self.publish()
        self.append(b"first")
        identity = renew(self.lock, 4711)
        self.lender = Lender(
            self.log, self.row, 0, RangeLocks(self.lock), publish=self.publish, incarnation=4711, lock_file=identity
        )
        self.incarnation = Incarnation(self.lock)
        self.limit, self.seen = 0, [b"first"]
        self.reader = LogReader(self.path, self.files, mapped=True, limit=self.look, log_id=lending.LOG_ID)
        self.cursor = self.reader.cursor(0)
        self.seen.clear()

    def publish(self) -> None:
        self.row.publish(self.log.generation, self.log.written, self.log.durable, 0)

    def append(self, value: bytes) -> None:
        self.log.append([encode([value])], self.now())
        self.publish()

    def now(self) -> int:
        return time.time_ns() // 1000

    def latest(self) -> int:
        return self.now() + 1_000_000

    def start(self, number: int, first: int) -> tuple[subprocess.Popen[bytes], int]:
        """Lend the log to a process whose records begin with number `first`."""
        grant = self.lend(number, first)
        reading, writing = os.pipe()
        given = msgspec.msgpack.encode(grant).hex()
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), given, self.path, self.lock, self.board.name, str(first), str(writing)],
            pass_fds=[writing], stdin=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(writing)
        return process, reading

    def lend(self, number: int, first: int) -> LogGrant:
        if not self.log.ready:
            self.append(b"broker's")
        self.log.sync()
        terms = Terms(lending.PRODUCER, 0, first, lambda _: None)
        grant = self.lender.lend(number, terms, time_us=self.now(), monotonic_s=time.monotonic())
        assert grant is not None
        return grant

    def borrow(self) -> None:
        while not self.lender.borrow(self.latest()):
            assert not self.lender.refused  # the byte is busy: the appender sees that it is to pause
        self.append(b"broker's")
        self.lender.give_back()

    def end(self) -> None:
        """Recall; by force what does not come back at once."""
        if self.lender.lent and not self.lender.recall(self.latest()):
            self.lender.force(self.latest())

    def look(self) -> int:
        self.limit = max(self.limit, self.row.trusted_word(lambda: self.incarnation() == 4711))
        return self.limit

    def read(self) -> None:
        while (chunk := self.cursor.next(1 << 20)) is not None:
            for batch in chunk.batches:
                batch.check()
                self.seen += lending.values_of(batch)

    def values(self) -> list[bytes]:
        reader = self.log.reader()
        cursor, found = reader.cursor(0), []
        while (chunk := cursor.next(1 << 20)) is not None:
            for batch in chunk.batches:
                found += lending.values_of(batch)
        return found


def numbers(data: bytes) -> list[int]:
    return [int(line) for line in data.splitlines()]


@pytest.mark.parametrize("seed", range(3))
def test_nothing_acknowledged_or_seen_is_lost(tmp_path: Path, seed: int) -> None:
    choose, node, acked, first, forced = random.Random(seed), Node(tmp_path), [], 0, 0
    for number in range(1, 4):
        process, reading = node.start(number, first)
        data = b""
        for _ in range(choose.randrange(1, 6)):
            data += os.read(reading, choose.randrange(20, 4000))
            node.read()
            if choose.random() < 0.5:
                node.borrow()
            else:
                node.lender.follow(node.latest())
        how = choose.choice(["kill", "stop", "recall"])
        os.kill(process.pid, {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "recall": 0}[how])
        if how == "stop":
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        node.read()
        if how == "kill":
            process.wait()
        node.end()
        forced += node.log.generation > 1
        node.read()
        if how == "stop":
            os.kill(process.pid, signal.SIGCONT)
        while more := os.read(reading, 1 << 16):
            data += more
        os.close(reading)
        process.wait()
        node.read()
        acked += numbers(data)
        values = node.values()
        own = [int(value) for value in values if value.isdigit()]
        assert own == list(range(len(own))), how
        assert set(acked) <= set(own), how
        assert node.seen == values[: len(node.seen)]
        assert not node.lender.refused or how == "kill"
        first, node.lender.refused = len(own), ""
    node.append(b"last")
    node.read()
    assert node.seen == node.values()


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"monotonic_s": 60.5}, "old"),
        ({"monotonic_s": -1e6}, "another clock"),
        ({"files": ((0, 0), (0, 0), (0, 0))}, "another mount"),
        ({"log_id": bytes(16)}, "another mount"),
        ({"incarnation": 4712}, "another mount"),
    ],
)
def test_a_process_that_sees_another_clock_or_other_files_attaches_to_nothing(
    tmp_path: Path, changed: dict[str, Any], why: str
) -> None:
    node = Node(tmp_path)
    grant = node.lend(1, 0)
    if "monotonic_s" in changed:
        changed = {"monotonic_s": time.monotonic() - changed["monotonic_s"]}
    other = msgspec.structs.replace(grant, **changed)
    before = len(os.listdir("/proc/self/fd"))
    where: dict[str, Any] = {
        "directory": node.path, "lock": node.lock, "board": node.board.name, "files": node.files,
    }  # fmt: skip
    with pytest.raises(BoardUnavailable, match=why):
        attaching.attach(other, **where)
    assert len(os.listdir("/proc/self/fd")) == before
    appender = attaching.attach(grant, **where)
    assert appender.append(encode([b"0"], producer_id=lending.PRODUCER)) is not None
    appender.end()
    node.end()
    assert node.values() == [b"first", b"0"]


def test_a_child_of_a_signal_handler_does_not_go_on_with_an_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, children, (reading, writing) = Node(tmp_path), [], os.pipe()
    real = time.monotonic

    def forking() -> float:
        """Asked in the middle of an append. The child comes back when its parent has appended more."""
        if appending and not children:
            children.append(os.fork())
            if children == [0]:
                os.close(writing)
                os.read(reading, 1)
        return real()

    appending = False
    monkeypatch.setattr(attaching.time, "monotonic", forking)
    appender = attaching.attach(
        node.lend(1, 0), directory=node.path, lock=node.lock, board=node.board.name, files=node.files
    )
    appending = True
    for number in range(3):
        try:
            appender.append(encode([b"%d" % number], producer_id=lending.PRODUCER, first_sequence=number))
        finally:
            if children == [0]:
                os._exit(0)
    os.close(writing)
    os.waitpid(children[0], 0)
    os.close(reading)
    appender.end()
    node.end()
    assert not node.lender.refused
    assert node.values() == [b"first", b"0", b"1", b"2"]
