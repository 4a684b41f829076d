"""A log with commit="written": what its thread has synced is durable, and recovery begins behind it."""

from __future__ import annotations

import errno
import random
import threading

import pytest
from penstock.storage.embedded import Log
from penstock.storage.errors import Poisoned
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.opening import find_end
from support.files import Disk, RecordingFiles


def test_full_segments_become_durable_behind_the_writer_and_are_marked() -> None:
    files = RecordingFiles(directories=["/log", ""])
    with Log("/log", files=files, commit="written", segment_bytes=4096) as log:
        for number in range(6):
            log.append(b"%d" % number * 3000)
            if (thread := log._background._thread) is not None:
                thread.join()
        log._background.finish()
        assert log._writer is not None
        durable = log._writer.durable
        assert durable == 4, "all that was full when the last append began"
        begun = find_end(files, "/log").begun
        assert (begun.is_marked, begun.end.seq) == (True, durable)
        disk = Disk(files)
        for operation in files.journal:
            disk.apply(operation)
    with Log("/log", files=RecordingFiles(disk.image(random.Random(0), "none"), ["/log", ""])) as log:
        assert [record.value[:1] for record in log] == [b"0", b"1", b"2", b"3"]


def test_a_sync_that_failed_behind_the_last_append_is_told_when_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(path: str) -> None:
        raise OSError(errno.EIO, "Input/output error", path)

    files = MemoryFiles()
    log = Log("/log", files=files, commit="written", segment_bytes=4096)
    monkeypatch.setattr(files, "sync", fails)
    for number in range(3):
        log.append(b"%d" % number * 3000)
    with pytest.raises(Poisoned, match="Input/output error"):
        log.close()
    log.close()
    with Log("/log", files=files) as log:
        assert log.end_offset == 0, "nothing was synced, and nothing that says so was missed"


def fill_until_synced(log: Log) -> None:
    """Append over two segments, and wait until the thread that syncs the first ones has ended."""
    for number in range(3):
        log.append(b"%d" % number * 3000)
    thread = log._background._thread
    assert thread is not None
    thread.join()


def test_a_sync_that_failed_in_the_background_is_told_by_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(path: str) -> None:
        raise OSError(errno.EIO, "Input/output error", path)

    with Log("/log", files=(files := MemoryFiles()), commit="written", segment_bytes=4096) as log:
        monkeypatch.setattr(files, "sync", fails)
        for number in range(3):
            log.append(b"%d" % number * 3000)
        with pytest.raises(Poisoned, match="Input/output error"):
            log.sync()


def test_a_log_that_told_of_its_failed_sync_closes_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(path: str) -> None:
        raise OSError(errno.EIO, "Input/output error", path)

    files = MemoryFiles()
    log = Log("/log", files=files, commit="written", segment_bytes=4096)
    monkeypatch.setattr(files, "sync", fails)
    fill_until_synced(log)
    with pytest.raises(Poisoned):
        log.append(b"more")
    log.close()


def test_no_sync_follows_one_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would succeed: the pages that were not written count as clean. And its mark would be believed."""
    tried: list[str] = []

    def fails_once(path: str) -> None:
        tried.append(path)
        if len(tried) == 1:
            raise OSError(errno.EIO, "Input/output error", path)

    files = MemoryFiles()
    log = Log("/log", files=files, commit="written", segment_bytes=4096)
    monkeypatch.setattr(files, "sync", fails_once)
    fill_until_synced(log)
    for _ in range(2):
        with pytest.raises(Poisoned):
            log.append(b"more")
    log.close()
    assert len(tried) == 1
    assert find_end(files, "/log").end.seq == 0


def test_a_sync_that_ends_well_beside_one_that_failed_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may have told the other descriptor alone."""
    files, failed = MemoryFiles(), threading.Event()
    with Log("/log", files=files, commit="written", segment_bytes=4096) as log:
        monkeypatch.setattr(files, "sync", lambda path: failed.wait(30))
        for number in range(3):
            log.append(b"%d" % number * 3000)
        writer = log._writer
        assert writer is not None
        writer.poison("a sync failed")
        failed.set()
        log._background.finish()
        assert writer.durable == 0
    assert find_end(files, "/log").end.seq == 0
