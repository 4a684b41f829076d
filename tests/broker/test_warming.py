"""Cold places are read in by the thread, not the loop."""

from __future__ import annotations

import errno
import os
import select
from pathlib import Path

import pytest
from penstock.broker import cold_reads
from penstock.broker.cold_reads import ColdRead, Warmer
from penstock.broker.engine import COLD
from penstock.broker.port import SocketPort
from penstock.storage.batch import Kind, encode, of_kind
from penstock.storage.cursor import Cursor
from penstock.storage.errors import InvalidTopic
from penstock.storage.files import File, Files
from penstock.storage.log import LogOptions, LogWriter
from penstock.storage.order import Sole
from penstock.storage.promises import Promises


def log_of(tmp_path: Path, batches: int) -> LogWriter:
    files = Files()
    log = LogWriter.create(
        f"{tmp_path}/log", files=files, log_id=bytes(16), order=Sole(Promises(f"{tmp_path}/promises", files)),
        options=LogOptions(),
    )  # fmt: skip
    for number in range(batches):
        log.append([encode([b"%d" % number + bytes(60_000)])], 1)
    log.sync()
    return log


def evict(log: LogWriter) -> None:
    """Have the kernel forget the segment's pages (they are synced)."""
    for segment in Path(log.path).glob("*.segment"):
        descriptor = os.open(segment, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def test_a_cold_read_returns_at_once_and_works_when_the_thread_has_been_there(real_disk: Path):
    log = log_of(real_disk, 40)
    warmer = Warmer()
    port = SocketPort(None, [], None, warmer)  # type: ignore[arg-type]
    cursor = log.reader().cursor(0)
    evict(log)
    values: list[bytes] = []
    misses = 0
    while len(values) < 40:
        chunk = port.read(cursor, 256 << 10, log.committed, "token")
        if chunk is COLD:
            misses += 1
            assert select.select([warmer.fd], [], [], 10.0)[0]
            assert warmer.done() == ["token"]
            continue
        assert chunk is not None
        values += [value for batch in chunk.batches for value in batch.values()]
    assert [int(value.rstrip(b"\0")) for value in values] == list(range(40))
    assert 1 <= misses <= 5  # each reads ahead
    warmer.close()
    log.close()


def test_staged_batches_are_not_warmed_for_readers_that_skip_them(real_disk: Path, monkeypatch: pytest.MonkeyPatch):
    log = log_of(real_disk, 1)
    hidden = of_kind(encode([bytes(500_000)], producer_id=7), Kind.STAGED)
    log.append([hidden] * 40, 1)
    log.append([encode([b"last"])], 1)
    log.sync()
    warmer = Warmer()
    port = SocketPort(None, [], None, warmer)  # type: ignore[arg-type]
    cursor, found, warmed = log.reader().cursor(0), 0, list[int]()
    pread = File.pread
    monkeypatch.setattr(File, "pread", lambda *place: warmed.append(place[1]) or pread(*place))
    evict(log)
    while found < 2:
        chunk = port.read(cursor, 256 << 10, log.committed, "token")
        if chunk is COLD:
            assert select.select([warmer.fd], [], [], 10.0)[0]
            assert warmer.done() == ["token"]
            continue
        assert chunk is not None
        found += len(chunk.batches)
    assert 0 < sum(warmed) < 1 << 20, "20 MB lie between the records"
    warmer.close()
    log.close()


def test_a_place_is_warmed_once_however_often_it_is_asked_for(tmp_path: Path):
    log = log_of(tmp_path, 1)
    warmer = Warmer()
    for _ in range(5):
        warmer.warm(ColdRead("t", log.path, 1, log.committed, 100))
    assert select.select([warmer.fd], [], [], 10.0)[0]
    assert warmer.done() == ["t"]
    warmer.close()
    log.close()


def test_a_place_that_cannot_be_read_in_is_tried_once_and_then_fails_its_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    log = log_of(tmp_path, 3)
    warmer = Warmer()
    port = SocketPort(None, [], None, warmer)  # type: ignore[arg-type]
    reader = log.reader()
    cursor, other = reader.cursor(0), reader.cursor(1)

    def fails(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    def miss(cursor: Cursor) -> None:
        assert port.read(cursor, 1000, log.committed, "token") is COLD
        assert select.select([warmer.fd], [], [], 10.0)[0]
        assert warmer.done() == ["token"]

    monkeypatch.setattr(File, "pread_cached", lambda *_: None)
    monkeypatch.setattr(File, "pread", fails)
    for _ in range(2):
        miss(cursor)
        with pytest.raises(OSError, match="Input/output error"):
            port.read(cursor, 1000, log.committed, "token")
    miss(cursor)
    miss(other)  # which says nothing of another place
    assert caplog.text.count("reading ahead") == 4
    monkeypatch.undo()
    assert port.read(cursor, 1000, log.committed, "token") is not COLD
    warmer.close()
    log.close()


def test_failures_that_no_one_asks_for_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cold_reads, "FAILED_MAX", 2)
    warmer = Warmer()
    jobs = [ColdRead(str(number), f"{tmp_path}/nowhere", 1, 1, 100) for number in range(3)]
    for job in jobs:
        warmer.warm(job)
        assert select.select([warmer.fd], [], [], 10.0)[0]
        warmer.done()
    warmer.warm(jobs[0])
    assert select.select([warmer.fd], [], [], 10.0)[0]
    for job in jobs[1:]:
        with pytest.raises(InvalidTopic, match="nowhere"):
            warmer.warm(job)
    warmer.close()


def test_a_place_that_is_gone_is_left_to_the_loop(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    warmer = Warmer()
    warmer.warm(ColdRead("t", f"{tmp_path}/nowhere", 1, 1, 100))
    assert select.select([warmer.fd], [], [], 10.0)[0]
    assert warmer.done() == ["t"]
    assert "nowhere" in caplog.text
    warmer.close()


def test_what_stands_in_front_of_a_bad_sector_is_handed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    log = log_of(tmp_path, 12)
    warmer = Warmer()
    port = SocketPort(None, [], None, warmer)  # type: ignore[arg-type]
    pread, pread_cached = File.pread, File.pread_cached

    def is_bad(file: File, size: int, position: int) -> bool:
        return file.path.endswith(".segment") and position <= 400_000 < position + size

    def read(file: File, size: int, position: int) -> bytes:
        if is_bad(file, size, position):
            raise OSError(errno.EIO, "Input/output error")
        return pread(file, size, position)

    cursor, values = log.reader().cursor(0), list[bytes]()
    monkeypatch.setattr(File, "pread", read)
    monkeypatch.setattr(File, "pread_cached", lambda *at: None if is_bad(*at) else pread_cached(*at))

    def read_all() -> None:
        while (chunk := port.read(cursor, 256 << 10, log.committed, "token")) is not None:
            if chunk is COLD:
                assert select.select([warmer.fd], [], [], 10.0)[0]
                assert warmer.done() == ["token"]
            else:
                values.extend(value for batch in chunk.batches for value in batch.values())

    with pytest.raises(OSError, match="Input/output"):
        read_all()
    assert [int(value.rstrip(b"\0")) for value in values] == list(range(6))
    warmer.close()
    log.close()
