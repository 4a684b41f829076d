"""One writer per log; readers need no lock."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from penstock.storage import lock
from penstock.storage.embedded import Log
from penstock.storage.errors import AlreadyOpen, ForeignDirectory, InvalidTopic
from penstock.storage.files import Files
from penstock.storage.lending.grant import byte_of
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.range_locks import RangeLocks

HOLD = """
import sys
from penstock.storage.embedded import Log
log = Log(sys.argv[1], commit="written")
log.append(b"mine")
print("open", flush=True)
sys.stdin.read()
"""

ALONE = '{"format": 1, "node": "00ff", "cluster": "00ff"}'
"""The identity of a broker that is alone."""


def test_the_second_writer_is_told_who_the_first_one_is(tmp_path) -> None:
    with Log(tmp_path / "log") as log:
        log.append(b"1")
        with pytest.raises(AlreadyOpen, match=f"process {os.getpid()}"):
            Log(tmp_path / "log")
        with Log(tmp_path / "log", read_only=True) as reader:
            assert [record.value for record in reader] == [b"1"]
    Log(tmp_path / "log").close()


def test_in_memory_there_is_one_writer_too() -> None:
    files = MemoryFiles()
    with Log("/log", files=files), pytest.raises(AlreadyOpen):
        Log("/log", files=files)
    Log("/log", files=files).close()


@pytest.mark.parametrize("below", ["metadata", "topics/00ff/0"])
def test_a_log_of_a_running_broker_is_the_brokers(tmp_path, below: str) -> None:
    files = Files()
    files.mkdir(f"{tmp_path}/{below}")
    (tmp_path / "node.json").write_text(ALONE)
    held = lock.take_head(f"{tmp_path}/lock", files, endpoint="tcp://127.0.0.1:7070")
    with pytest.raises(AlreadyOpen, match=r"broker at tcp://127\.0\.0\.1:7070"):
        Log(tmp_path / below)
    held.release()
    with Log(tmp_path / below) as log:
        log.append(b"without a broker")
    assert (tmp_path / "promises").exists()


def test_a_holder_that_wrote_nothing_yet_still_holds(tmp_path) -> None:
    held = Files().try_lock(f"{tmp_path}/lock")
    with pytest.raises(AlreadyOpen, match="another process"):
        lock.take(f"{tmp_path}/lock", Files())
    assert not isinstance(held, bytes)
    held.release()


@pytest.fixture
def stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RangeLocks]:
    """The lock of a producer that is stopped in the middle of an append to a log that was lent to it."""
    monkeypatch.setattr(lock, "BYTES_PATIENCE_S", 0.0)
    found = RangeLocks(f"{tmp_path}/lock")
    found.take(byte_of(3))
    yield found
    found.close()


def test_nothing_opens_beside_a_producer_in_the_middle_of_an_append(tmp_path: Path, stuck: RangeLocks) -> None:
    (tmp_path / "node.json").write_text(ALONE)
    for use in (lambda: Log(tmp_path / "topics" / "00ff" / "0"), lambda: lock.take(f"{tmp_path}/lock", Files())):
        with pytest.raises(AlreadyOpen, match="producer that appends by itself"):
            use()
    stuck.give_back(byte_of(3))
    Log(tmp_path / "topics" / "00ff" / "0").close()


def test_an_opener_waits_for_a_producer_to_end_its_append(
    tmp_path: Path, stuck: RangeLocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "BYTES_PATIENCE_S", 30.0)
    monkeypatch.setattr(lock.time, "sleep", lambda _: stuck.give_back(byte_of(3)))
    with lock.take(f"{tmp_path}/lock", Files()):
        assert not stuck.take(byte_of(3))


def test_a_node_leaves_single_bytes_to_producers(tmp_path: Path, stuck: RangeLocks) -> None:
    with lock.take_head(f"{tmp_path}/lock", Files()) as held:
        assert not lock.take_bytes(held)
        assert stuck.take(byte_of(4))
        assert not stuck.take(byte_of(0) - 1)
        stuck.close()
        assert lock.take_bytes(held)


def test_the_lock_names_its_process_endpoint_and_boot(tmp_path) -> None:
    held = lock.take_head(f"{tmp_path}/lock", Files(), endpoint="ipc:///x", boot="b")
    found = json.loads((tmp_path / "lock").read_text())
    assert found == {"pid": os.getpid(), "endpoint": "ipc:///x", "boot": "b", "local": ""}
    held.release()


def test_a_killed_writer_leaves_no_lock_behind_and_what_it_wrote(tmp_path) -> None:
    path = str(tmp_path / "log")
    holder = subprocess.Popen([sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"open\n"
    with pytest.raises(AlreadyOpen, match=str(holder.pid)):
        Log(path)
    with Log(path, read_only=True) as reader:
        assert [record.value for record in reader] == [b"mine"]
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
        with Log(path) as log:
            assert log.append(b"next") == 1
            assert [record.value for record in reader] == [b"next"]


def test_a_forked_child_neither_holds_the_lock_nor_writes(tmp_path) -> None:
    log = Log(tmp_path / "log")
    log.append(b"parent")
    hold, release = os.pipe()
    tried, told = os.pipe()
    child = os.fork()
    if child == 0:
        code = 3
        try:
            log.append(b"child")
        except AlreadyOpen:
            code = 7
        os.close(release)
        os.write(told, b"x")
        os.read(hold, 1)
        os._exit(code)
    log.append(b"still mine")
    os.read(tried, 1)  # the child lets go of the lock when it begins to run
    log.close()
    with Log(tmp_path / "log") as again:
        assert [record.value for record in again] == [b"parent", b"still mine"]
    os.write(release, b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_log_that_is_dropped_gives_up_its_lock_and_its_files(tmp_path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    log = Log(tmp_path / "log")
    log.append(b"x")
    del log
    gc.collect()
    Log(tmp_path / "log").close()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_path_that_cannot_be_a_log_is_refused_clearly(tmp_path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ForeignDirectory, match=r"cannot be a log's directory: .* below a file"):
        Log(tmp_path / "file" / "log")
    with pytest.raises(InvalidTopic, match="no log"):
        Log(tmp_path / "missing", read_only=True)
    assert not (tmp_path / "missing").exists()
