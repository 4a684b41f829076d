"""`Log.follow`: records as they come, in threads, on event loops and from other processes."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import islice

import pytest
from penstock.storage import follow, following
from penstock.storage.embedded import Log
from penstock.storage.errors import Closed, InvalidArgument, OutOfBounds
from penstock.storage.files import Files
from penstock.storage.memory_files import MemoryFiles
from support.processes import spawn


@pytest.fixture(params=["disk", "memory"])
def place(request, tmp_path) -> dict:
    """Where a log is, as arguments of Log."""
    if request.param == "disk":
        return {"path": tmp_path / "log", "files": Files()}
    return {"path": "/log", "files": MemoryFiles()}


def collected(records: Iterator, into: list[bytes], told: threading.Semaphore) -> threading.Thread:
    def collect() -> None:
        for record in records:
            into.append(record.value)
            told.release()

    thread = threading.Thread(target=collect)
    thread.start()
    return thread


@pytest.mark.parametrize("commit", ["durable", "written"])
def test_a_follower_gets_what_is_there_and_each_record_that_comes_until_the_log_is_closed(place, commit) -> None:
    found, told = list[bytes](), threading.Semaphore(0)
    with Log(commit=commit, **place) as log:
        log.append([b"0", b"1"])
        thread = collected(iter(log.follow()), found, told)
        for number in range(2, 40):
            for _ in range(2 if number == 2 else 1):
                assert told.acquire(timeout=30)
            log.append(b"%d" % number)
        assert told.acquire(timeout=30)
    thread.join(30)
    assert not thread.is_alive()
    assert found == [b"%d" % number for number in range(40)]


def test_a_follower_that_sleeps_is_woken_and_does_not_poll(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(follow, "SLEEP_S", 3600)
    monkeypatch.setattr(follow, "POLL_S", 3600)
    found, told = list[bytes](), threading.Semaphore(0)
    with Log(tmp_path / "log") as log, Log(tmp_path / "log", read_only=True) as reader:
        threads = [collected(iter(each.follow()), found, told) for each in (log, reader)]
        for number in range(50):
            log.append(b"%d" % number)
            for _ in threads:
                assert told.acquire(timeout=30)
        reader.close()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert sorted(found) == sorted([b"%d" % number for number in range(50)] * 2)


def test_it_begins_at_the_position_moves_it_and_ends_after_the_time_without_a_record(place) -> None:
    with Log(**place) as log:
        log.append([b"a", b"b", b"c"])
        log.seek(1)
        follower = log.follow(wait=0)
        assert [record.value for record in follower] == [b"b", b"c"]
        assert log.position == 3
        assert list(follower) == []
        log.append(b"d")
        assert [record.value for record in follower] == [b"d"]
        with pytest.raises(InvalidArgument, match="wait"):
            log.follow(wait=-1)
    with pytest.raises(Closed):
        log.follow()


def test_records_that_retention_removed_are_missed_aloud(place) -> None:
    with Log(**place) as log:
        log.append([b"a", b"b"])
        log.truncate(1)
        with pytest.raises(OutOfBounds):
            next(iter(log.follow()))
        log.seek("earliest")
        assert next(iter(log.follow())).value == b"b"


def test_a_follower_outlives_writers_that_are_closed_or_come_later(tmp_path) -> None:
    Log(tmp_path / "log").close()
    found, told = list[bytes](), threading.Semaphore(0)
    with Log(tmp_path / "log", read_only=True) as reader:
        thread = collected(iter(reader.follow()), found, told)
        for number in range(4):
            with Log(tmp_path / "log") as log:
                log.append(b"%d" % number)
                assert told.acquire(timeout=30)
    thread.join(30)
    assert not thread.is_alive()
    assert found == [b"0", b"1", b"2", b"3"]


WRITE = """
import sys
from penstock.storage.embedded import Log
log = Log(sys.argv[1], commit="written")
print(log.end_offset, flush=True)
for line in sys.stdin:
    log.append(line.strip().encode())
"""


def test_a_follower_hears_of_a_writer_in_another_process_also_after_it_was_killed_and_replaced(tmp_path) -> None:
    path = str(tmp_path / "log")
    Log(path).close()
    with Log(path, read_only=True) as reader:
        records = iter(reader.follow())
        for round_ in range(2):
            child = spawn(
                [sys.executable, "-c", WRITE, path], signal.SIGKILL, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            assert child.stdin is not None
            assert child.stdout is not None
            assert int(child.stdout.readline()) == 20 * round_
            for number in range(20):
                child.stdin.write(b"%d\n" % number)
                child.stdin.flush()
                assert next(records).value == b"%d" % number
            child.kill()
            child.communicate()


def test_a_follower_that_slept_through_the_death_of_its_writer_is_woken_by_the_next_one(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(follow, "SLEEP_S", 60)
    monkeypatch.setattr(follow, "POLL_S", 60)
    path, found, told = str(tmp_path / "log"), list[bytes](), threading.Semaphore(0)
    Log(path).close()
    child = spawn([sys.executable, "-c", WRITE, path], signal.SIGKILL, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdout.readline()
    with Log(path, read_only=True) as reader:
        thread = collected(iter(reader.follow()), found, told)
        child.stdin.write(b"one\n")
        child.stdin.flush()
        assert told.acquire(timeout=30)
        slot = reader._slot()
        assert slot is not None
        deadline = time.monotonic() + 30
        while not slot.is_raised:
            assert time.monotonic() < deadline, "it does not go to sleep"
        child.kill()
        child.communicate()
        with Log(path) as log:
            log.append(b"two")
            assert told.acquire(timeout=30)
    thread.join(30)
    assert found == [b"one", b"two"]


def test_a_board_that_may_not_be_written_to_is_looked_at_instead(tmp_path, monkeypatch) -> None:
    def refused(name: str, index: int) -> None:
        raise PermissionError(name)

    monkeypatch.setattr(following.Board, "attach_slot", refused)
    found, told = list[bytes](), threading.Semaphore(0)
    with Log(tmp_path / "log") as log, Log(tmp_path / "log", read_only=True) as reader:
        thread = collected(iter(reader.follow()), found, told)
        log.append(b"x")
        assert told.acquire(timeout=30)
        reader.close()
    thread.join(30)
    assert found == [b"x"]


def test_a_task_of_an_event_loop_follows_and_may_be_cancelled(place) -> None:
    async def main(log: Log) -> list[bytes]:
        found, loop = list[bytes](), asyncio.get_running_loop()
        came = asyncio.Event()

        async def collect() -> None:
            async for record in log.follow():
                found.append(record.value)
                came.set()

        task = loop.create_task(collect())
        for number in range(20):
            await loop.run_in_executor(None, log.append, b"%d" % number)
            await asyncio.wait_for(came.wait(), 30)
            came.clear()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return found

    with Log(**place) as log:
        assert asyncio.run(main(log)) == [b"%d" % number for number in range(20)]
        assert log.position == 20


def test_on_an_event_loop_it_ends_with_the_log_and_after_the_time_without_a_record(place) -> None:
    async def main(log: Log) -> None:
        log.append([b"a", b"b"])
        assert [record.value async for record in log.follow(wait=0)] == [b"a", b"b"]
        follower = log.follow().__aiter__()
        waiting = asyncio.ensure_future(anext(follower, None))
        await asyncio.sleep(0)
        log.close()
        assert await asyncio.wait_for(waiting, 30) is None

    with Log(**place) as log:
        asyncio.run(main(log))


def test_values_of_a_slice_of_a_follower_leave_the_rest(place) -> None:
    with Log(**place) as log:
        log.append([b"%d" % number for number in range(1000)])
        assert len(list(islice(log.follow(), 300))) == 300
        assert log.position == 300
        assert next(iter(log.follow())).offset == 300
