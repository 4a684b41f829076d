"""A node opens over logs that an earlier one lent: producers may be in the middle of an append."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from penstock.broker import ServeConfig
from penstock.broker.broker_process import renewed
from penstock.storage import lock
from penstock.storage.batch import encode
from penstock.storage.board import Board
from penstock.storage.data_directory import previous_board
from penstock.storage.errors import StorageFull
from penstock.storage.files import Files
from penstock.storage.layout import SegmentName, live_segments
from penstock.storage.lending.grant import byte_of
from penstock.storage.lending.incarnation import Incarnation
from penstock.storage.range_locks import RangeLocks
from penstock.transport import messages as m
from support.core import Core
from support.processes import Serving
from support.raw_client import RawClient
from support.writeback import WritebackFiles

HOLD = """
import sys
from penstock.storage.range_locks import RangeLocks
locks = RangeLocks(sys.argv[1])
print(locks.take(int(sys.argv[2])), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("commit", "cut", "generation"), [("written", True, 2), ("written", False, 1), ("durable", True, 1)]
)
def test_what_a_producer_may_still_write_into_is_void_from_the_start(commit: str, cut: bool, generation: int) -> None:
    first = Core(WritebackFiles())
    topic = first.create_topic("t", commit=commit)
    first.ask(lambda request: m.Produce(request, topic, 0), encode([b"a"]))
    first.close()
    core = Core(first.files, cut=cut)
    log = core.node.logs[1]
    assert log.generation == generation
    assert core.board.row(core.watermarks.number_of(log)).generation == generation
    fetched = core.ask(lambda request: m.Produce(request, topic, 0), encode([b"b"]))
    assert (fetched.offset, log.generation) == (1, generation)
    assert core.node.logs[0].generation == 1


def test_a_log_that_cannot_be_cut_is_unavailable_and_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Core(WritebackFiles())
    first.create_topic("t", commit="written")
    first.close()

    def full(log: object) -> None:
        raise StorageFull("no space is left")

    monkeypatch.setattr("penstock.storage.log.cutting.cut", full)
    core = Core(first.files, cut=True)
    assert core.node.unavailable == {"t/0": "no space is left"}
    assert core.watermarks.number_of(core.node.logs[0]) >= 0
    assert len(core.node.logs) == 1


@pytest.fixture
def config(tmp_path: Path) -> ServeConfig:
    return ServeConfig(data=f"{tmp_path}/data", listen=(f"unix://{tmp_path}/s",), restart_most_s=0.2, board_rows=8)


def generations(data: str, topic: bytes) -> set[int]:
    names, _ = live_segments(os.listdir(f"{data}/topics/{topic.hex()}/0"))
    return {SegmentName(*name).generation for name in names}


def board_of(data: str) -> Board:
    found = previous_board(Files(), data)
    assert found is not None
    return found


def test_a_stopped_holder_of_a_byte_does_not_stop_a_node_from_opening(config: ServeConfig) -> None:
    path = f"{config.data}/lock"
    serving = Serving(config)
    try:
        with RawClient(serving.url) as client:
            written, durable = (client.create_topic(name, commit=name) for name in ("written", "durable"))
            client.produce(written, encode([b"a"]))
        known = Incarnation(path)
        number = known()
        assert number
        assert number == board_of(config.data).incarnation
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLD, path, str(byte_of(1))], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"True\n"
        holder.send_signal(signal.SIGSTOP)
        try:
            serving.kill_broker()
            with RawClient(serving.url) as client:
                assert client.read_all(written, 0) == [b"a"]
                client.produce(written, encode([b"b"]))
                assert client.read_all(written, 0) == [b"a", b"b"]
            assert (generations(config.data, written), generations(config.data, durable)) == ({1, 2}, {1})
            assert known() not in (0, number)
            assert known() == board_of(config.data).incarnation
        finally:
            holder.kill()
            holder.communicate()
    finally:
        serving.close()


def test_a_node_lets_producers_have_single_bytes_and_nothing_else_of_its_lock(config: ServeConfig) -> None:
    path = f"{config.data}/lock"
    serving = Serving(config)
    producer = RangeLocks(path)
    try:
        assert producer.take(byte_of(0))
        assert producer.take(byte_of(7))
        assert not producer.take(byte_of(0) - 1)
        assert not producer.take(0)
        known = Incarnation(path)
        assert known()
    finally:
        producer.close()
        serving.close()
    with lock.take(path, Files()):
        assert known() == 0


def test_a_node_whose_lock_cannot_be_written_lends_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "lock"
    path.write_text("{}")
    number, identity = renewed(str(path))
    assert (Incarnation(str(path))(), identity) == (number, (path.stat().st_dev, path.stat().st_ino))
    assert renewed(str(tmp_path / "missing")) == (0, (0, 0))
    assert "cannot be lent" in caplog.text
