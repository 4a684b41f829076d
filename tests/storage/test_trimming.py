"""Retention and truncation of a log that stands alone."""

from __future__ import annotations

import errno
import logging
import random
from datetime import UTC, datetime

import pytest
from penstock.storage.batch import encode
from penstock.storage.embedded import Log
from penstock.storage.errors import InvalidArgument, OutOfBounds, ReadOnly
from penstock.storage.files import Files
from penstock.storage.layout import FIRST, INDEX_ROW, SegmentName, encode_first, index_position
from penstock.storage.log import LogOptions, LogWriter
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.order import Sole
from penstock.storage.promises import Promises
from penstock.storage.retention import Rules
from penstock.storage.trimming import AGE_PARTS, LOOK_US, LogTrimming
from support.files import Disk, RecordingFiles
from support.logs import put

AGE_US = 4_000_000_000


@pytest.fixture(params=["disk", "memory"])
def place(request, tmp_path) -> dict:
    """Where a log is, as arguments of Log."""
    if request.param == "disk":
        return {"path": tmp_path / "log", "files": Files()}
    return {"path": "/log", "files": MemoryFiles()}


def filled(log: Log, count: int) -> Log:
    for number in range(count):
        log.append(b"%04d" % number * 250)
    return log


def firsts(log: Log) -> tuple[int, bytes]:
    log.seek("earliest")
    record = next(iter(log))
    return record.offset, bytes(record.value[:4])


@pytest.mark.parametrize("commit", ["durable", "written"])
def test_a_log_keeps_its_limit_in_bytes_and_at_most_two_segments_more(place, commit) -> None:
    with Log(segment_bytes="16KB", retention_bytes="40KB", commit=commit, **place) as log:
        for number in range(200):
            log.append(b"%04d" % number * 250)
            if commit == "written":
                log.sync()
        kept = sum(each.record_bytes for each in log.segments())
        assert 40 << 10 <= kept <= 72 << 10
        first = log.first_offset
        assert first > 100
        assert firsts(log) == (first, b"%04d" % first)
        assert [record.offset for record in log] == list(range(first + 1, 200))
    with Log(**place) as log:
        assert firsts(log) == (first, b"%04d" % first)


@pytest.mark.parametrize("name", ["position", "batch_bytes"])
def test_no_bit_of_an_index_has_retention_remove_what_is_to_stay(name) -> None:
    files = MemoryFiles()
    with filled(Log("/log", segment_bytes="16KB", files=files), 60) as log:
        sealed = log.segments()[1]
    path = f"/log/{SegmentName(sealed.base_seq, 1).index_file}"
    kind, start = (INDEX_ROW.fields or {})[name][:2]
    place = index_position(sealed.base_seq, sealed.last_seq) + start
    for bit in range(8 * kind.itemsize):
        rotten = MemoryFiles()
        rotten.mkdir("/log")
        for each, content in files.contents.items():
            put(rotten, each, bytes(content.data))
        rotten.contents[path].data[place + bit // 8] ^= 1 << bit % 8
        with Log("/log", retention_bytes="1MB", files=rotten) as log:
            log.append(b"more")
            assert log.first_offset == 0, bit


@pytest.mark.parametrize("before", [7, 20, 59])
def test_a_truncated_log_begins_at_that_record_in_every_process_and_after_reopening(place, before) -> None:
    with filled(Log(segment_bytes="16KB", **place), 60) as log:
        reader = Log(**place, read_only=True)
        assert log.truncate(before) == before
        for each in (log, reader):
            assert each.first_offset == before
            assert firsts(each) == (before, b"%04d" % before)
            with pytest.raises(OutOfBounds):
                each.read(before - 1)
            each.seek("earliest")
            assert next(each.batches("arrow", columns=["offset"]))["offset"][0].as_py() == before
        assert log.segments()[0].end_offset > before
        assert log.truncate(3) == before
    assert firsts(reader) == (before, b"%04d" % before)
    reader.close()
    with Log(**place) as log:
        assert firsts(log) == (before, b"%04d" % before)
        assert log.append(b"more") == 60


def test_what_is_buffered_is_older_than_a_truncation(place) -> None:
    with Log(**place) as log:
        log.append([b"a", b"b"])
        log.write(b"c")
        assert log.truncate("latest") == 3
        assert log.first_offset == log.end_offset == 3
        log.append(b"d")
        assert firsts(log) == (3, b"d")


def test_what_was_read_ahead_goes_with_a_truncation(place) -> None:
    with Log(**place) as log:
        log.append([b"%d" % number for number in range(9)])
        assert log.read(0, max_records=2)[-1].offset == 1
        log.truncate(5)
        with pytest.raises(OutOfBounds):
            log.read(2)
        assert log.read(5)[0].value == b"5"


def test_a_reader_that_a_truncation_overtook_is_told_so(place) -> None:
    with filled(Log(commit="written", **place), 3000) as log, Log(**place, read_only=True) as beside:
        readers = [iter(log), iter(beside), iter(beside.follow(wait=0)), log.batches(), beside.batches("arrow")]
        for reader in readers:
            next(reader)
        log.truncate(2999)
        for reader in readers:
            with pytest.raises(OutOfBounds, match="the log begins at offset 2999"):
                list(reader)


def test_a_time_truncates_what_was_appended_before(place) -> None:
    with Log(**place) as log:
        log.append(b"old")
        moment = log.read(0)[0].time
        assert log.truncate(datetime.fromtimestamp(0, UTC)) == 0
        assert log.truncate(moment) == 0
        assert log.truncate(datetime(2999, 1, 1, tzinfo=UTC)) == 1


def test_places_that_are_none_are_refused(place) -> None:
    with Log(**place) as log:
        log.append(b"a")
        with pytest.raises(OutOfBounds, match="it ends at 1"):
            log.truncate(2)
        with pytest.raises(InvalidArgument, match="before='earliest' is none of 'latest', nor an offset or a datetime"):
            log.truncate("earliest")  # pyright: ignore[reportArgumentType]
        assert log.first_offset == 0
        with Log(**place, read_only=True) as reader, pytest.raises(ReadOnly):
            reader.truncate(1)
    with Log(**place) as log:
        assert (log.first_offset, list(log.values())) == (0, [b"a"]), "nor was it written down"


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"retention_bytes": 0}, "retention_bytes=0 is below 1"),
        ({"retention_seconds": 0}, "retention_seconds=0 has to be longer"),
        ({"retention_seconds": "soon"}, "retention_seconds"),
    ],
)
def test_rules_that_would_keep_nothing_are_refused(place, settings, named) -> None:
    with pytest.raises(InvalidArgument, match=named):
        Log(**place, **settings)


def test_a_first_offset_of_another_log_or_a_damaged_one_does_not_count_and_a_newer_one_is_refused(place) -> None:
    path, files = str(place["path"]), place["files"]
    with filled(Log(**place), 3) as log:
        log_id = log._writer.log_id  # pyright: ignore[reportOptionalMemberAccess]
    good = encode_first(log_id, 2)
    for content in (encode_first(bytes(16), 2), good[:-1], good[:40] + b"\x01" + good[41:], b""):
        files.rewrite(f"{path}/{FIRST}", content)
        with Log(**place) as log:
            assert log.first_offset == 0
    files.rewrite(f"{path}/{FIRST}", good)
    with Log(**place) as log:
        assert log.first_offset == 2


def test_segments_that_a_truncation_did_not_get_to_remove_go_at_the_next_opening(monkeypatch) -> None:
    files = MemoryFiles()
    with filled(Log("/log", segment_bytes="16KB", files=files), 60) as log, monkeypatch.context() as patch:
        count = len(log.segments())
        patch.setattr(files, "unlink", lambda path: (_ for _ in ()).throw(OSError("no")))
        with pytest.raises(OSError, match="no"):
            log.truncate("latest")
        assert log.first_offset == 60
    with Log("/log", files=files) as log:
        assert (len(log.segments()), log.first_offset) == (1, 60)
        assert count > 1


def test_a_truncation_that_an_ended_writer_began_is_durable_once_it_is_asked_for_again() -> None:
    files = RecordingFiles(directories=["/log", ""])
    with filled(Log("/log", files=files), 3) as log:
        files.fail("sync_dir", 1, errno.EIO)
        with pytest.raises(OSError, match="EIO"):
            log.truncate(2)
    with Log("/log", files=files) as log:
        assert log.truncate(2) == 2
        disk = Disk(files)
        for operation in files.journal:
            disk.apply(operation)
    with Log("/log", files=RecordingFiles(disk.image(random.Random(0), "none"), ["/log", ""])) as log:
        assert log.first_offset == 2


def test_offsets_that_come_again_after_a_power_cut_are_there_though_the_truncation_was_behind_them() -> None:
    files = MemoryFiles()
    with filled(Log("/log", files=files), 3) as log:
        log_id = log._writer.log_id  # pyright: ignore[reportOptionalMemberAccess]
    files.rewrite(f"/log/{FIRST}", encode_first(log_id, 9))
    for offset in (3, 4):
        with Log("/log", files=files) as log:
            assert log.first_offset == 3
            assert log.append(b"again") == offset


# -- by age, with times that are told ---------------------------------------------------------------


class Told:
    """A writer and its trimming, appending one record at a time that is said."""

    def __init__(self, files: MemoryFiles, **rules: int) -> None:
        self.firsts: list[int] = []
        self.writer = LogWriter.create_or_open(
            "/log", files=files, log_id=files.new_id(), order=Sole(Promises("/log/promises", files)),
            options=LogOptions(segment_bytes=1 << 20),
        )  # fmt: skip
        self.writer.on_first = lambda writer: self.firsts.append(writer.first_offset)
        self.trimming = LogTrimming(self.writer, files, Rules(**rules))

    def append(self, now_us: int, *, sync: bool = True, size: int = 1) -> None:
        self.trimming.look(now_us)
        self.writer.append([encode([b"x" * size])], now_us)
        if sync:
            self.writer.sync()


def test_records_that_are_not_durable_stay_whatever_the_rules_are() -> None:
    told = Told(MemoryFiles(), bytes=1)
    for now_us in (1, 2, 3):
        told.append(now_us, sync=now_us == 1, size=700_000)
    told.append(4, sync=False)
    assert told.writer.first_offset == 1
    told.writer.sync()
    told.writer.segment_ends = True
    told.append(5)
    told.append(6)
    assert told.writer.first_offset == 4


def test_a_slow_log_ends_its_segments_so_that_old_records_go_in_time() -> None:
    told, part = Told(MemoryFiles(), age_us=AGE_US), AGE_US // AGE_PARTS
    oldest = []
    for now_us in range(1, 5 * AGE_US, part // 5):
        told.append(now_us)
        reader = told.writer.reader()
        oldest.append(now_us - reader.time_at(told.writer.first_offset))
        reader.close()
    assert max(oldest) <= AGE_US + 2 * part
    assert min(oldest[-10:]) > AGE_US - 2 * part
    assert len(told.writer.names) <= 2 * AGE_PARTS
    assert told.firsts == sorted(told.firsts)


def test_nothing_younger_than_the_age_goes() -> None:
    told = Told(MemoryFiles(), age_us=AGE_US)
    for now_us in range(1, 3 * AGE_US, AGE_US // 50):
        told.append(now_us)
        reader = told.writer.reader()
        kept = reader.offset_at(max(now_us - AGE_US, 0))
        assert told.writer.first_offset <= kept
        reader.close()


def test_a_log_that_appends_rarely_has_the_age_looked_at_each_time() -> None:
    told = Told(MemoryFiles(), age_us=AGE_US)
    for now_us in range(1, 10 * AGE_US, 2 * AGE_US):
        told.append(now_us)
    assert told.writer.end_offset - told.writer.first_offset <= 2


def test_looking_costs_nothing_until_something_can_have_changed(monkeypatch) -> None:
    told = Told(MemoryFiles(), age_us=AGE_US, bytes=1 << 20)
    told.append(1)
    told.append(1 + LOOK_US)
    looks = []
    monkeypatch.setattr(told.writer, "segments", lambda: looks.append(None))
    for now_us in range(1 + LOOK_US, AGE_US // AGE_PARTS, AGE_US // 100):
        told.append(now_us)
    assert looks == []


def test_a_removal_that_fails_is_logged_and_tried_again_and_no_append_fails(caplog, monkeypatch) -> None:
    files = MemoryFiles()
    told = Told(files, age_us=AGE_US)
    told.append(1)
    told.writer.segment_ends = True
    told.append(2)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "penstock.storage"):
        patch.setattr(files, "unlink", lambda path: (_ for _ in ()).throw(OSError("no")))
        for later_us in range(0, LOOK_US, LOOK_US // 4):
            told.append(2 * AGE_US + later_us)
    assert caplog.messages == ["/log keeps records that may go: removing them failed: no"]
    told.append(2 * AGE_US + LOOK_US)
    assert len(told.writer.names) == 2
    assert told.firsts[-1] == told.writer.first_offset > 0
