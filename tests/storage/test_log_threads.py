"""One `Log` used by many threads: nothing acknowledged is lost, appends share syncs, and a failure in one thread is no
other's."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest
from penstock.storage.embedded import Log
from penstock.storage.errors import AlreadyOpen, Closed, Poisoned, ReadOnly, StorageFull
from penstock.storage.files import Files
from penstock.storage.verify import verify
from support.files import RecordingFile, RecordingFiles

LONG_S = 30


class Gate(RecordingFiles):
    """Files whose syncs wait at a gate once it is shut; two syncs of one file at once are an error."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = threading.Condition()
        self.open_gate = True
        self.syncing: list[GatedFile] = []
        self.syncs = self.batches = 0
        self.interrupt = False

    def create(self, path: str, size: int = 0) -> Any:
        super().create(path, size).close()
        return GatedFile(path, self, self.contents[path])

    def open(self, path: str, *, write: bool = False) -> Any:
        super().open(path, write=write).close()
        return GatedFile(path, self, self.contents[path])

    def wait_for(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, LONG_S)

    def set_gate(self, is_open: bool) -> None:
        with self.changed:
            self.open_gate = is_open
            self.changed.notify_all()


class GatedFile(RecordingFile):
    __slots__ = ()

    @property
    def gate(self) -> Gate:
        assert isinstance(self._files, Gate)
        return self._files

    def pwritev(self, buffers: Any, position: int) -> None:
        super().pwritev(buffers, position)
        if position >= 4096 and self.path.endswith(".segment"):
            with self.gate.changed:
                self.gate.batches += 1
                self.gate.changed.notify_all()

    def sync(self) -> None:
        gate = self.gate
        with gate.changed:
            assert self not in gate.syncing, "two syncs of one descriptor: only one of them hears of a failure"
            gate.syncs += 1
            gate.syncing.append(self)
            gate.changed.notify_all()
            assert gate.changed.wait_for(lambda: gate.open_gate, LONG_S)
            gate.syncing.remove(self)
            if gate.interrupt:
                gate.interrupt = False
                raise KeyboardInterrupt
        super().sync()

    def close(self) -> None:
        assert self not in self.gate.syncing, f"{self.path} was closed while another thread synced it"
        super().close()


class Workers:
    """Threads that each keep what their call returned or raised."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []
        self.results: list[Any] = []

    def start(self, call: Callable[..., Any], *arguments: Any) -> None:
        def run() -> None:
            try:
                self.results.append(call(*arguments))
            except BaseException as error:
                self.results.append(error)

        self.threads.append(threading.Thread(target=run, daemon=True))
        self.threads[-1].start()

    def join(self) -> list[Any]:
        for thread in self.threads:
            thread.join(LONG_S)
            assert not thread.is_alive()
        return self.results


@pytest.mark.parametrize("commit", ["durable", "written"])
def test_threads_that_append_read_and_sync_at_once_find_every_record_where_it_was_put(tmp_path, commit: Any) -> None:
    path, threads, each = tmp_path / "log", 4, 60
    placed: dict[int, bytes] = {}
    workers = Workers()
    with Log(path, commit=commit, segment_bytes="32KB", flush_records=7) as log:

        def append(name: int) -> None:
            for number in range(each):
                values = [b"%d-%d-%d" % (name, number, part) * 30 for part in range(1 + number % 3)]
                offset = log.append(values)
                placed.update(enumerate(values, offset))
                log.write(b"written", b"with a key")
                assert log.read(offset, 1)[0].value == values[0]
                if number % 20 == 0:
                    log.sync()

        def read() -> None:
            while not placed:
                log.seek("earliest")
            for _ in range(5):
                end = log.end_offset
                assert len(list(log.read(0, end))) <= log.end_offset
                assert sum(map(len, log.batches("values"))) <= log.end_offset
                assert log.segments()[-1].end_offset >= end

        for name in range(threads):
            workers.start(append, name)
        workers.start(read)
        assert workers.join() == [None] * (threads + 1)
    with Log(path) as log:
        found = list(log)
        assert log.first_offset == 0
    assert len(placed) == threads * each * 2
    assert {record.offset: record.value for record in found if record.key is None} == placed
    assert len(found) == len(placed) + threads * each
    assert verify(Files(), str(path)).clean


def test_appends_that_come_during_a_sync_share_the_next_one() -> None:
    files, workers = Gate(), Workers()
    log = Log("/log", files=files)
    log.append(b"first")
    files.set_gate(False)
    before, batches = files.syncs, files.batches
    workers.start(log.append, b"alone")
    files.wait_for(lambda: files.syncs == before + 1)
    for number in range(8):
        workers.start(log.append, b"%d" % number)
    files.wait_for(lambda: files.batches == batches + 9)
    assert workers.results == []
    assert log.end_offset == 1
    files.set_gate(True)
    assert sorted(workers.join()) == list(range(1, 10))
    assert files.syncs == before + 2
    log.close()


def test_a_cut_and_a_close_wait_for_the_sync_of_another_thread() -> None:
    files, workers = Gate(), Workers()
    log = Log("/log", files=files)
    log.append(b"first")
    files.set_gate(False)
    before = files.syncs
    workers.start(log.append, b"second")
    files.wait_for(lambda: files.syncs == before + 1)
    files.fail("write", 2)
    with pytest.raises(StorageFull):
        log.append(b"refused")
    files.heal()
    workers.start(log.append, b"third")
    workers.start(log.close)
    files.set_gate(True)
    results = workers.join()
    again = list(Log("/log", files=files).values())
    assert again[:2] == [b"first", b"second"]
    assert len(again) == 2 + (2 in results)
    assert all(each in (1, 2, None) or isinstance(each, Closed) for each in results)


def test_a_failed_sync_is_told_to_every_thread_that_waits_for_it() -> None:
    files, workers = Gate(), Workers()
    log = Log("/log", files=files)
    log.append(b"durable")
    files.set_gate(False)
    before, batches = files.syncs, files.batches
    files.fail("sync", 1, errno.EIO)
    for number in range(5):
        workers.start(log.append, b"%d" % number)
    files.wait_for(lambda: files.batches == batches + 5)
    files.set_gate(True)
    assert [type(each) for each in workers.join()] == [Poisoned] * 5
    assert files.syncs == before + 2  # and that of the file `poison`
    log.close()
    assert list(Log("/log", files=files).values()) == [b"durable"]


def test_an_interrupt_in_the_thread_that_syncs_leaves_the_others_to_sync_themselves() -> None:
    files, workers = Gate(), Workers()
    log = Log("/log", files=files)
    log.append(b"first")
    files.set_gate(False)
    batches = files.batches
    for number in range(4):
        workers.start(log.append, b"%d" % number)
    files.wait_for(lambda: files.batches == batches + 4)
    files.interrupt = True
    files.set_gate(True)
    results = workers.join()
    assert sum(isinstance(each, KeyboardInterrupt) for each in results) == 1
    assert sum(isinstance(each, int) for each in results) == 3
    log.close()
    assert len(list(Log("/log", files=files).values())) == 5


def test_an_interrupt_that_hides_a_failed_sync_does_not_let_the_next_one_succeed() -> None:
    files = Gate()
    log = Log("/log", files=files)
    log.append(b"durable")
    writer = log._writer
    assert writer is not None
    files.fail("sync", 1, errno.EIO)
    original = writer.poison

    def interrupted(reason: str) -> None:
        raise KeyboardInterrupt

    writer.poison = interrupted
    with pytest.raises(KeyboardInterrupt):
        log.append(b"lost")
    writer.poison = original
    files.heal()
    with pytest.raises(Poisoned):
        log.append(b"refused")
    log.close()
    assert list(Log("/log", files=files).values()) == [b"durable"]


def test_iterators_of_several_threads_each_give_everything(tmp_path) -> None:
    workers, beginning, started = Workers(), threading.Lock(), threading.Barrier(3)
    values = [b"%d" % number * 50 for number in range(3000)]
    with Log(tmp_path / "log", segment_bytes="64KB", commit="written") as log:
        for start in range(0, 3000, 50):
            log.append(values[start : start + 50])

        def play() -> bool:
            with beginning:
                log.seek(0)
                records = iter(log)
                first = next(records).value
            started.wait(LONG_S)
            return [first, *(record.value for record in records)] == values

        for _ in range(3):
            workers.start(play)
        results = workers.join()
    assert all(each is True for each in results), results


def test_a_closed_log_takes_and_gives_nothing(tmp_path) -> None:
    log = Log(tmp_path / "log")
    log.append(b"x")
    log.close()
    for call in (
        lambda: log.write(b"x"),
        lambda: log.read(0),
        lambda: log.seek(0),
        lambda: log.end_offset,
        log.segments,
    ):
        with pytest.raises(Closed, match="is closed"):
            call()
    with Log(tmp_path / "log", read_only=True) as reader, pytest.raises(ReadOnly, match="reading only"):
        reader.write(b"x")


def test_a_forked_child_is_refused_whatever_locks_other_threads_held(tmp_path) -> None:
    with Log(tmp_path / "log") as log:
        log.append(b"before")
        held = [log._reading, log._turn, log._commit.syncing]
        calls = [lambda: log.append(b"x"), lambda: log.write(b"x"), log.sync, lambda: list(log), lambda: log.end_offset]
        for lock in held:
            lock.acquire()  # as another thread may have it
        child = os.fork()
        if child == 0:
            refused = 0
            try:
                for call in calls:
                    try:
                        call()
                    except AlreadyOpen:
                        refused += 1
                log.close()
            finally:
                os._exit(refused)
        for lock in reversed(held):
            lock.release()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == len(calls)
        with Log(tmp_path / "log", read_only=True) as reader:
            log.append(b"after")
            assert list(reader.values()) == [b"before", b"after"]
