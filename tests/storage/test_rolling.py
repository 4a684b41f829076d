"""A log goes on to its next segment: what waits for the disk then, and what must be durable before what counts."""

from __future__ import annotations

import errno
import random

import pytest
from penstock.storage.background_sync import BackgroundSync
from penstock.storage.batch import encode
from penstock.storage.errors import Poisoned
from penstock.storage.log import LogOptions, LogWriter
from penstock.storage.order import Sole
from penstock.storage.promises import Promises
from support.files import Disk, RecordingFiles

PATH, LOG_ID = "/log", bytes(range(16))
OPTIONS = LogOptions(segment_bytes=20_000, allocate_bytes=8192, commit="written")
HALF = 12_000
"""Two batches of this size do not fit into a segment."""


def make(files: RecordingFiles) -> LogWriter:
    order = Sole(Promises("/promises", files))
    return LogWriter.create_or_open(PATH, files=files, log_id=LOG_ID, order=order, options=OPTIONS)


def append(writer: LogWriter, size: int = HALF) -> None:
    writer.append([encode([bytes(size)])], 1)


def after_a_power_cut(files: RecordingFiles) -> LogWriter:
    """The log on the disk that has nothing but what was synced."""
    disk = Disk(files)
    for operation in files.journal:
        disk.apply(operation)
    return make(RecordingFiles(disk.image(random.Random(1), "none"), [PATH]))


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE])
def test_an_append_that_rolls_waits_for_no_directory_and_the_next_sync_does(code: int) -> None:
    files = RecordingFiles()
    writer = make(files)
    append(writer)
    writer.sync()
    files.fail("sync_dir", 1, code)
    append(writer)
    with pytest.raises(Poisoned):
        writer.sync()
    assert (len(writer.names), writer.durable) == (2, 1)


def test_a_sync_makes_the_names_of_all_segments_in_it_durable() -> None:
    files = RecordingFiles()
    writer = make(files)
    for _ in range(3):
        append(writer)
    writer.sync()
    assert (writer.durable, after_a_power_cut(files).written) == (3, 3)


@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_name_is_synced_once(elsewhere: bool) -> None:
    files = RecordingFiles()
    writer = make(files)
    append(writer)
    writer.sync()
    append(writer)
    files.calls["sync_dir"] = 0
    if elsewhere:
        writer.settle(writer.generation, 1)  # of the segment before: it says nothing of the new one
        writer.settle(writer.generation, 2)  # by the keeper, which syncs names as well
    else:
        writer.sync()
    for _ in range(2):
        append(writer, 10)
        writer.sync()
    assert files.calls["sync_dir"] == (0 if elsewhere else 1)


def test_a_sync_of_the_segment_before_says_nothing_of_the_new_name() -> None:
    files = RecordingFiles()
    writer = make(files)
    append(writer)
    writer.opened[0].sync()  # as the keeper does, which tells of it later
    append(writer)
    writer.settle(writer.generation, 1)
    writer.sync()
    assert (writer.durable, after_a_power_cut(files).written) == (2, 2)


def test_a_log_that_goes_on_in_place_syncs_its_name() -> None:
    """It was closed in good order, or made by a process that died before it synced the directory."""
    files = RecordingFiles()
    make(files).close()
    writer = make(files)
    append(writer, 10)
    files.calls["sync_dir"] = 0
    writer.sync()
    assert files.calls["sync_dir"] == 1


def test_what_recovery_keeps_of_a_segment_without_a_mark_has_a_durable_name() -> None:
    """The process died, the machine did not; then the power is cut."""
    files = RecordingFiles()
    writer = make(files)
    append(writer)
    append(writer)
    reopened = make(files)
    assert (reopened.durable, len(reopened.names)) == (2, 2)
    assert after_a_power_cut(files).written == 2


def test_segments_that_a_thread_syncs_have_durable_names() -> None:
    files = RecordingFiles()
    writer = make(files)
    background = BackgroundSync(writer, files)
    for _ in range(3):
        append(writer)
    background.collect()
    background.finish()
    assert (writer.durable, after_a_power_cut(files).written) == (2, 2)


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE])
def test_a_thread_that_cannot_sync_names_poisons_the_log(code: int) -> None:
    files = RecordingFiles()
    writer = make(files)
    background = BackgroundSync(writer, files)
    append(writer)
    append(writer)
    files.fail("sync_dir", 1, code)
    background.collect()
    with pytest.raises(Poisoned):
        background.finish()
    assert (writer.durable, writer.poisoned is None) == (0, False)


def test_a_spare_that_is_large_enough_is_reserved_no_more() -> None:
    """The call alone would have the sync of the header wait for the journal of ext4."""
    files = RecordingFiles()
    writer = make(files)
    append(writer)
    for size, reserved in ((20_000, 0), (10_000, 1)):
        spare = f"{PATH}/spare-{size}"
        files.create(spare, size).close()
        writer.adopt_spare(spare)
        files.calls["allocate"] = 0
        append(writer)
        assert files.calls["allocate"] == reserved
