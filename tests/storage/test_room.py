"""Blocks ahead of need: how many there are, and what of a disk they leave to others."""

from __future__ import annotations

import pytest
from penstock.storage import jobs
from penstock.storage.batch import encode
from penstock.storage.errors import StorageFull
from penstock.storage.log import LogOptions, LogWriter
from penstock.storage.order import Sole
from penstock.storage.promises import Promises
from penstock.storage.room import RESERVE_BYTES
from support.small_disk import SmallDisk

MIB = 1 << 20
STEP = LogOptions().allocate_bytes


def log(files: SmallDisk, path: str, number: int = 1) -> LogWriter:
    order = Sole(Promises(f"/promises{number}", files))
    return LogWriter.create(path, files=files, log_id=bytes([number]) * 16, order=order)


def append(writer: LogWriter, size: int) -> None:
    writer.append([encode([bytes(size)])], 1)
    writer.sync()


def fill(writer: LogWriter) -> None:
    while True:
        append(writer, MIB)


def allocated(writer: LogWriter) -> int:
    return writer.opened[-1].allocated


def test_a_segment_doubles_while_that_leaves_the_reserve() -> None:
    files = SmallDisk(RESERVE_BYTES + 8 * MIB)
    writer = log(files, "/log")
    append(writer, MIB)
    assert allocated(writer) == 2 * MIB
    free = files.free()
    append(writer, MIB)
    assert allocated(writer) == 4 * MIB
    assert free - files.free() < 2 * MIB + STEP


@pytest.mark.parametrize("missing", [0, 1])
def test_ahead_of_need_nothing_is_taken_of_the_reserve(missing: int) -> None:
    files = SmallDisk(RESERVE_BYTES)
    writer = log(files, "/log")
    append(writer, MIB)
    held = allocated(writer)
    end = writer.opened[-1].position + MIB
    files.size += RESERVE_BYTES + held - files.free() - missing  # as much again may be taken, or a byte less
    writer.room.reserve(writer.opened[-1], end)
    assert allocated(writer) == (-(-end // STEP) * STEP if missing else 2 * held)


def test_a_batch_gets_the_last_bytes_of_a_disk() -> None:
    files = SmallDisk(RESERVE_BYTES)
    writer = log(files, "/log")
    append(writer, 10 * STEP)
    segment = writer.opened[-1]
    end = segment.allocated + 100
    files.size -= files.free() - 100
    writer.room.reserve(segment, end)
    assert (segment.allocated, files.free()) == (end, 0)
    with pytest.raises(StorageFull):
        writer.room.reserve(segment, end + 1)


def test_small_records_that_fill_one_log_leave_room_for_an_entry_of_every_other() -> None:
    files = SmallDisk(8 * MIB)
    filling, other = log(files, "/filling", 1), log(files, "/other", 2)
    with pytest.raises(StorageFull):
        fill(filling)
    append(other, 100)
    append(filling, 100)


def test_a_segment_that_ends_is_followed_by_a_small_one() -> None:
    files = SmallDisk(RESERVE_BYTES)
    order = Sole(Promises("/promises", files))
    options = LogOptions(segment_bytes=4 * MIB)
    writer = LogWriter.create("/log", files=files, log_id=bytes(16), order=order, options=options)
    for _ in range(4):
        append(writer, MIB)
    assert len(writer.names) == 2
    files.size -= files.free() - STEP
    for _ in range(3):
        append(writer, MIB // 100)
    assert len(writer.names) == 2


@pytest.mark.parametrize("missing", [0, 1])
def test_a_spare_leaves_the_reserve(missing: int) -> None:
    files = SmallDisk(RESERVE_BYTES + 4 * MIB - missing)
    files.mkdir("/log")
    if missing:
        with pytest.raises(StorageFull, match="64 MiB stay free"):
            jobs.prepare_spare(files, "/log", 4 * MIB)
        assert files.listdir("/log") == []
    else:
        jobs.prepare_spare(files, "/log", 4 * MIB)
        assert files.free() == RESERVE_BYTES
