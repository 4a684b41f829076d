"""penstock.Log as its users know it."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from penstock.storage.embedded import Log
from penstock.storage.errors import (
    BadChecksum,
    Closed,
    Corrupt,
    EndOfLog,
    ForeignDirectory,
    InvalidArgument,
    InvalidBatch,
    OutOfBounds,
    Poisoned,
    ReadOnly,
    RecordTooLarge,
    StorageFull,
)
from penstock.storage.files import Files
from penstock.storage.layout import DATA_START
from penstock.storage.memory_files import MemoryFiles
from support.files import RecordingFiles
from support.unjudged import NOT_ZSTD, with_headers


@pytest.fixture(params=["disk", "memory"])
def place(request, tmp_path) -> dict:
    """Where a log is, as arguments of Log."""
    if request.param == "disk":
        return {"path": tmp_path / "log", "files": Files()}
    return {"path": "/log", "files": MemoryFiles()}


def test_what_is_appended_is_read_back_with_all_it_had(place) -> None:
    with Log(**place) as log:
        assert log.append(b"one") == 0
        assert log.append([b"two", b"three"], keys=[b"k2", None], headers=[None, {"h": b"3"}]) == 1
        assert log.append(b"four", b"k4", headers={"a": b"b"}) == 3
        found = log.read(0)
    assert [record.value for record in found] == [b"one", b"two", b"three", b"four"]
    assert [record.key for record in found] == [None, b"k2", None, b"k4"]
    assert [dict(record.headers) for record in found] == [{}, {}, {"h": b"3"}, {"a": b"b"}]
    assert [record.offset for record in found] == [0, 1, 2, 3]
    assert abs(found[0].time - datetime.now(UTC)) < timedelta(minutes=1)


def test_buffered_records_are_there_after_a_flush_and_not_before(place) -> None:
    with Log(flush_records=4, **place) as log:
        log.write(b"1")
        log.write([b"2", b"3"])
        assert log.end_offset == 0
        log.write(b"4", b"key")
        assert log.end_offset == 4
        log.write(b"5")
        assert log.flush() == 5
        log.write(b"6")
    with Log(**place) as log:
        assert [(record.value, record.key) for record in log] == [
            (b"1", None), (b"2", None), (b"3", None), (b"4", b"key"), (b"5", None), (b"6", None),
        ]  # fmt: skip


def test_an_append_keeps_the_order_with_what_was_buffered(place) -> None:
    with Log(**place) as log:
        log.write([b"0", b"1"])
        assert log.append(b"2") == 2
        assert list(log.values()) == [b"0", b"1", b"2"]


def test_time_flushes_what_was_not_flushed(tmp_path) -> None:
    flushed = threading.Event()
    with Log(tmp_path / "log", flush_seconds=0.001, commit="written") as log:
        original = log._publisher.publish

        def publish() -> None:
            original()
            flushed.set()

        log._publisher.publish = publish
        log.write(b"left alone")
        assert flushed.wait(10)
        assert log.read(0)[0].value == b"left alone"


def test_an_error_of_a_flush_in_the_background_is_raised_by_the_next_call() -> None:
    files = RecordingFiles()
    log = Log("/log", flush_seconds=0.001, commit="written", files=files)
    assert log._ticker is not None
    original, failed = log._ticker._action, threading.Event()

    def action() -> None:
        try:
            original()
        except StorageFull:
            failed.set()
            raise

    log._ticker._action = action
    files.fail("write", 1, once=False)
    log.write(b"does not fit")
    assert failed.wait(10)
    log._ticker.stop()
    with pytest.raises(StorageFull):
        log.flush()
    files.heal()
    log.flush()
    assert log.read(0)[0].value == b"does not fit"
    log.close()


def test_reading_goes_on_where_it_was_in_any_steps(place) -> None:
    values = [b"%d" % number for number in range(100)]
    with Log(flush_records=7, **place) as log:
        for value in values:
            log.write(value)
        assert log.end_offset == 98
        log.flush()
        for step in (1, 3, 7, 50, 1000):
            found: list[bytes] = []
            while len(found) < 100:
                records = log.read(len(found), step)
                assert 1 <= len(records) <= step
                found += [record.value for record in records]
            assert found == values


def test_the_end_and_beyond_are_two_different_errors(place) -> None:
    with Log(**place) as log:
        with pytest.raises(EndOfLog, match="ends at offset 0"):
            log.read(0)
        log.append([b"a", b"b"])
        with pytest.raises(EndOfLog):
            log.read(2)
        for offset in (3, -1):
            with pytest.raises(OutOfBounds, match="0 to 2"):
                log.read(offset)
        log.append(b"c")
        assert log.read(2)[0].value == b"c"


def test_iteration_stops_at_the_end_and_goes_on_from_there(place) -> None:
    with Log(flush_records=3, **place) as log:
        log.append([b"%d" % number for number in range(10)])
        records = iter(log)
        assert [next(records).value for _ in range(4)] == [b"0", b"1", b"2", b"3"]
        assert log.position == 4
        assert [record.value for record in log] == [b"4", b"5", b"6", b"7", b"8", b"9"]
        assert list(log) == []
        log.append(b"10")
        assert list(log.values()) == [b"10"]
        assert log.position == 11


def test_the_position_is_right_inside_a_large_batch(place) -> None:
    values = [b"%0100d" % number for number in range(10_000)]
    with Log(**place) as log:
        log.append(values[:3])
        log.append(values[3:], keys=[None, b"k"] * 4998 + [None])
        for items in (log.values, lambda: (record.value for record in log)):
            log.seek(2)
            for begin, end in ((2, 3), (3, 4), (4, 5000), (5000, 9999), (9999, 10_000)):
                assert list(islice(items(), end - begin)) == values[begin:end]
                assert log.position == end
        log.seek(7777)
        assert [(record.offset, record.key) for record in islice(log, 2)] == [(7777, None), (7778, b"k")]


def test_lists_and_single_records_become_one_batch_in_order(place) -> None:
    with Log(**place) as log:
        log.write([b"a" * number for number in range(100)])
        log.write(b"one")
        log.write([b"two", b"three"], keys=[b"k", None])
        log.flush()
        log.write([b"next"])
        log.flush()
        found = list(log)
    assert [record.value for record in found] == [
        *(b"a" * number for number in range(100)),
        b"one",
        b"two",
        b"three",
        b"next",
    ]
    assert [record.key for record in found[100:]] == [None, b"k", None, None]


def test_seek_goes_to_offsets_times_and_both_ends(place) -> None:
    with Log(**place) as log:
        for number in range(5):
            log.append([b"%d" % number, b"%d'" % number])
        times = [record.time for record in log.read(0)]
        assert log.seek(3) == 3
        assert next(iter(log)).value == b"1'"
        assert log.seek("earliest") == 0
        assert log.seek("latest") == 10
        assert log.seek(times[0] - timedelta(days=1)) == 0
        assert log.seek(datetime.now(UTC) + timedelta(days=1)) == 10
        found = log.seek(times[4])
        assert times[found] == times[4]
        assert found == 0 or times[found - 1] < times[4]
        with pytest.raises(OutOfBounds):
            log.seek(11)
        with pytest.raises(ValueError, match="earliest"):
            log.seek("middle")  # pyright: ignore[reportArgumentType]


def test_batches_come_as_records_values_or_arrow(place) -> None:
    pytest.importorskip("pyarrow", reason="needs the extra penstock[arrow]")
    with Log(**place) as log:
        log.append([b"a", b"b", b"c"])
        log.append(b"d")
        log.seek(1)
        assert [[record.offset for record in batch] for batch in log.batches()] == [[1, 2], [3]]
        log.seek(1)
        assert list(log.batches("values")) == [[b"b", b"c"], [b"d"]]
        log.seek(1)
        tables = list(log.batches("arrow"))
        assert [table.column("value").to_pylist() for table in tables] == [[b"b", b"c"], [b"d"]]
        assert [table.column("offset").to_pylist() for table in tables] == [[1, 2], [3]]
        log.append([b"e", b"f"], keys=[None, b""], headers=[{"h": b""}, None])
        (table,) = log.batches("arrow")
        assert table.column("key").to_pylist() == [None, b""]
        assert table.column("headers").to_pylist() == [[{"key": "h", "value": b""}], None]
        log.seek(1)
        assert next(log.batches("arrow", columns=["offset"])).to_pydict() == {"offset": [1, 2]}
        with pytest.raises(ValueError, match="these batches say no partition"):
            log.batches("arrow", columns=["partition"])
        with pytest.raises(ValueError, match="columns= are those of batches"):
            log.batches("values", columns=["value"])
        with pytest.raises(ValueError, match="'records', 'values', 'arrow'"):
            log.batches("pandas")  # pyright: ignore[reportArgumentType]


def test_bad_records_are_refused_when_they_are_given(place) -> None:
    with Log(max_record_bytes="1KB", **place) as log:
        log.write(b"good")
        for bad in ("text", ["text"], [b"ok", 3], 7):
            with pytest.raises((InvalidBatch, TypeError)):
                log.write(bad)  # pyright: ignore[reportArgumentType]
        for large in (b"x" * 1025, [b"x", b"x" * 1025]):
            for put in (log.append, log.write):
                with pytest.raises(RecordTooLarge, match="1025 bytes is over max_record_bytes=1024"):
                    put(large)
        with pytest.raises(InvalidBatch, match="keys must be a list"):
            log.write([b"a", b"b"], keys=[b"k"])
        log.write(b"x" * 1024)
        log.flush()
        assert [len(value) for value in log.values()] == [4, 1024]


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"commit": "durabel"}, "commit='durabel' is none of 'durable', 'written'"),
        ({"commit": None}, "commit=None is none of"),
        ({"commit": "durabel", "read_only": True}, "commit='durabel' is none of"),
        ({"flush_records": 0}, "flush_records=0 is not a whole number from 1"),
        ({"flush_records": "10"}, "flush_records='10' is not a whole number from 1"),
        ({"flush_records": True}, "flush_records=True is not a whole number from 1"),
        ({"segment_bytes": 0}, "segment_bytes=0 is below 4096"),
        ({"flush_seconds": 0}, "flush_seconds=0 has to be longer than 0 seconds"),
        ({"flush_seconds": "0s"}, "flush_seconds='0s' has to be longer"),
        ({"flush_seconds": float("nan")}, "flush_seconds=nan is not a time"),
    ],
)
def test_settings_that_are_not_allowed_are_refused_before_anything_is_made(place, settings, named: str) -> None:
    with pytest.raises(ValueError, match=re.escape(named)):
        Log(**place, **settings)
    assert not place["files"].exists(str(place["path"]))


@pytest.mark.parametrize("verb", ["append", "write"])
@pytest.mark.parametrize(
    ("value", "others", "named"),
    [
        (b"x", {"keys": [b"k"]}, "one record takes key="),
        (bytearray(b"x"), {"keys": [b"k"]}, "one record takes key="),
        ([b"x", b"y"], {"key": b"k"}, "a list takes keys="),
        (b"x", {"key": "k"}, "keys must be bytes, not str; text needs"),
        ([b"x", b"y"], {"keys": [None, 7]}, "keys must be bytes, not int"),
        (None, {"keys": [b"k"]}, "one record takes key="),
        ([b"x", None, 5], {}, "records must be bytes, or None for a null, not int"),
        ((each for each in [b"x"]), {}, "many of them a list, not generator"),
    ],
)
def test_what_would_lose_a_key_or_is_no_list_is_refused(place, verb: str, value, others, named: str) -> None:
    with Log(**place) as log:
        with pytest.raises(InvalidBatch, match=named):
            getattr(log, verb)(value, **others)
        assert log.flush() == 0


def test_a_time_without_a_zone_is_refused(place) -> None:
    with Log(**place) as log, pytest.raises(ValueError, match="has no zone"):
        log.seek(datetime(2026, 1, 1))


def test_large_buffers_become_several_batches(place) -> None:
    with Log(**place) as log:
        log.write([b"x" * 1_000_000] * 10, keys=[b"%d" % number for number in range(10)])
        log.flush()
        assert [len(batch) for batch in log.batches()] == [4, 4, 2]
        log.seek("earliest")
        assert [record.key for record in log] == [b"%d" % number for number in range(10)]


def test_segments_roll_at_the_size_asked(place) -> None:
    with Log(segment_bytes="64KB", **place) as log:
        for _ in range(100):
            log.append([b"x" * 100] * 30)
        segments = log.segments()
    assert len(segments) > 5
    assert all(each.record_bytes <= (64 << 10) - DATA_START for each in segments)
    assert [each.base_offset for each in segments[1:]] == [each.end_offset for each in segments[:-1]]
    assert segments[-1].end_offset == 3000


def test_a_durable_log_syncs_before_it_returns_and_a_written_one_does_not() -> None:
    for commit, synced in (("durable", True), ("written", False)):
        files = RecordingFiles()
        with Log("/log", commit=commit, files=files) as log:  # pyright: ignore[reportArgumentType]
            log.append(b"first")
            files.calls["sync"] = 0
            log.append(b"second")
            assert bool(files.calls["sync"]) is synced
            log.sync()
            assert files.calls["sync"]


def test_a_failed_sync_is_never_acknowledged_and_the_log_opens_again_without_it() -> None:
    files = RecordingFiles()
    log = Log("/log", files=files)
    log.append(b"durable")
    files.fail("sync", 1, errno.EIO)
    with pytest.raises(Poisoned):
        log.append(b"lost")
    files.heal()
    with pytest.raises(Poisoned):
        log.append(b"refused")
    assert list(log.values()) == [b"durable"]
    log.close()
    with Log("/log", files=files) as again:
        assert list(again.values()) == [b"durable"]
        assert again.append(b"new") == 1


def test_a_full_disk_refuses_an_append_whole_and_keeps_what_is_buffered() -> None:
    files = RecordingFiles()
    with Log("/log", files=files) as log:
        log.append(b"before")
        files.fail("write", 1)
        with pytest.raises(StorageFull):
            log.append(b"refused")
        files.fail("write", 1)
        log.write(b"buffered")
        with pytest.raises(StorageFull):
            log.flush()
        files.heal()
        log.flush()
        assert list(log.values()) == [b"before", b"buffered"]


def test_a_changed_byte_is_a_bad_checksum_with_the_place_and_the_way_on() -> None:
    files = MemoryFiles()
    with Log("/log", files=files) as log:
        for number in range(3):
            log.append([b"value %d" % number] * 2)
    (path,) = [name for name in files.contents if name.endswith(".segment")]
    data = files.contents[path].data
    data[data.index(b"value 1")] ^= 1
    with Log("/log", files=files) as log:
        with pytest.raises(BadChecksum) as raised:
            list(log)
        assert (raised.value.path, raised.value.next_offset) == (path, 4)
        assert log.position == 2
        log.seek(4)
        assert list(log.values()) == [b"value 2"] * 2
        with pytest.raises(Corrupt):
            log.read(3)


@pytest.mark.parametrize("damaged", [NOT_ZSTD, with_headers(b"", b"\x93")], ids=["values", "headers"])
def test_what_cannot_be_decoded_is_damage_with_the_place_and_the_way_on(damaged: bytes) -> None:
    files = MemoryFiles()
    with Log("/log", files=files) as log:
        log.append([b"before"])
        assert log._writer is not None
        log._writer.append([damaged], 1)
        log._writer.sync()
        log.append([b"behind"])
        for read in (lambda: [each.value for each in log], lambda: [len(each) for each in log.batches()]):
            log.seek(1)
            with pytest.raises(Corrupt) as raised:
                read()
            assert (raised.value.path.endswith(".segment"), raised.value.next_offset) == (True, 3)
            assert log.position == 1
            log.seek(3)
            assert len(read()) == 1


def test_readers_elsewhere_follow_a_writer_as_far_as_it_committed(tmp_path) -> None:
    with Log(tmp_path / "log", commit="durable") as log, Log(tmp_path / "log", read_only=True) as reader:
        assert list(reader) == []
        for number in range(50):
            log.append(b"%d" % number * 5000)
        assert list(reader.values()) == [b"%d" % number * 5000 for number in range(50)]
        with pytest.raises(InvalidArgument, match=r"'nope' is no column in Arrow: there are value, key, .*headers$"):
            next(reader.batches("arrow", columns=["nope"]))
        with pytest.raises(ReadOnly, match="reading only"):
            reader.append(b"x")
        log.close()
        with Log(tmp_path / "log") as again:
            again.append(b"by the next writer")
            assert list(reader.values()) == [b"by the next writer"]


def test_a_path_where_no_directory_can_be_made_is_named() -> None:
    with pytest.raises(ForeignDirectory, match="/proc/x cannot be a log's directory"):
        Log("/proc/x")


def test_a_closed_log_is_closed_and_closing_twice_is_fine(place) -> None:
    log = Log(**place)
    log.append(b"x")
    log.close()
    log.close()
    for call in (lambda: log.append(b"x"), log.flush, log.sync):
        with pytest.raises(Closed):
            call()


WRITE_AND_TELL = """
import sys
from penstock.storage.embedded import Log
log = Log(sys.argv[1], commit=sys.argv[2], segment_bytes="256KB")
number = log.end_offset
while True:
    log.append([b"%d" % each + b"." * 200 for each in range(number, number + 7)])
    number += 7
    print(number, flush=True)
"""


@pytest.mark.parametrize("commit", ["durable", "written"])
def test_a_writer_killed_at_any_time_keeps_every_record_it_acknowledged(tmp_path, commit: str) -> None:
    path, acknowledged = str(tmp_path / "log"), 0
    for round_ in range(4):
        command = [sys.executable, "-c", WRITE_AND_TELL, path, commit]
        child = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert child.stdout is not None
        for _ in range(20 + 60 * round_):
            acknowledged = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        rest = child.communicate()[0].split(b"\n")
        acknowledged = max([acknowledged, *(int(line) for line in rest[:-1] if line)])
        with Log(path, read_only=True) as reader:
            found = [int(value.rstrip(b".")) for value in reader.values()]
        assert found == list(range(len(found)))
        assert acknowledged <= len(found) <= acknowledged + 7
        assert os.path.exists(path)


def test_many_reads_and_rolls_leak_no_descriptors(tmp_path) -> None:
    with Log(tmp_path / "log", segment_bytes="32KB", commit="written") as log:
        before = len(os.listdir("/proc/self/fd"))
        for number in range(300):
            log.append(b"%d" % number * 3000)
            log.read(number // 2)
        log.sync()
        for offset in range(0, 300, 10):
            log.read(offset, 1)
        assert len(log.segments()) > 50
        assert len(os.listdir("/proc/self/fd")) < before + 40


def test_a_written_log_bounds_what_a_crash_makes_it_verify() -> None:
    """Full segments are synced and marked behind the writer's back."""
    files = MemoryFiles()
    log = Log("/log", segment_bytes="64KB", commit="written", files=files)
    for number in range(100):
        log.append(b"%d" % number * 2000)
        thread = log._background._thread
        if thread is not None:
            thread.join()
    assert log._writer is not None
    assert log._writer.durable >= log._writer.written - 70
    assert len(log._writer.opened) <= 4
    log.close()
