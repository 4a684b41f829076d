"""A bad sector: the disk gives an error in place of bytes. It is damage with a place, and costs what lies on it."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from typing import Any

import pytest
from penstock.storage import evidence, layout, mending, poison
from penstock.storage.accepted import FILE_NAME, Accepted, accepted_losses, log, write_accepted
from penstock.storage.batch import encode
from penstock.storage.errors import StorageFull
from penstock.storage.extents import extents_of
from penstock.storage.first import read_first, write_first
from penstock.storage.log import LogOptions, LogWriter
from penstock.storage.mending import RottenRange, look_for_rot
from penstock.storage.opening import find_end
from penstock.storage.order import Sole
from penstock.storage.playback import Playback, values_from
from penstock.storage.promises import Promises
from penstock.storage.reader import LogReader
from penstock.storage.repair import repair
from penstock.storage.scan import Bad, Good, scan
from penstock.storage.scrubbing import Rot, scrub
from penstock.storage.snapshots import file_name
from penstock.storage.unreadable import PAGE_BYTES, PatientFile
from penstock.storage.verify import verify
from support.bad_sectors import BadSectors
from support.files import RecordingFiles
from support.logs import LOG_ID, Built, add_snapshots, build

SHAPE = ((2, 2, 2), (3, 3), (1,))
SEGMENT_PAGES = 7
"""Of the first segment: a first page, and three batches of two pages each, which share a page with their neighbours."""


def built(directory: str = "/log") -> tuple[BadSectors, Built]:
    files = BadSectors()
    made = build(files, directory, shape=SHAPE, value_bytes=3500)
    assert made.ends[3].position > (SEGMENT_PAGES - 1) * PAGE_BYTES
    return files, made


def on_page(made: Built, page: int) -> list[int]:
    """The batches of the first segment with bytes on a page."""
    return [
        seq
        for seq, (name, start) in made.places.items()
        if name == made.names[0]
        and start < (page + 1) * PAGE_BYTES
        and start + len(made.batches[seq]) > page * PAGE_BYTES
    ]


def lose(made: Built, page: int) -> list[int]:
    """Have a page of the first segment be unreadable. Returns the batches on it."""
    assert isinstance(made.files, BadSectors)
    made.files.bad = {(made.segment_path(0), page)}
    return on_page(made, page)


@pytest.mark.parametrize("page", range(1, SEGMENT_PAGES))
def test_a_page_that_cannot_be_read_is_damage_and_all_else_is_found(page: int):
    files, made = built()
    lost = lose(made, page)
    found = list(scan(files, made.directory))
    assert {each.batch.seq for each in found if isinstance(each, Good)} == set(range(1, 7)) - set(lost)
    assert [seq for bad in found if isinstance(bad, Bad) for seq in range(bad.first_seq, bad.next_seq or 0)] == lost
    report = verify(files, made.directory)
    assert not report.ok
    assert all(f"the disk cannot read it at {page * PAGE_BYTES}" in bad.reason for bad in report.damage)


def test_a_first_page_that_cannot_be_read_is_damage_and_no_batch_is_lost():
    files, made = built()
    lose(made, 0)
    report = verify(files, made.directory)
    assert (report.ok, report.batches, len(report.damage)) == (False, 6, 1)


@pytest.mark.parametrize("segment", range(len(SHAPE)))
def test_a_first_page_that_cannot_be_read_is_in_the_way_of_no_reader_that_knows_the_end(segment: int):
    """As those of a broker do, which would be without the partition."""
    files, made = built()
    files.bad = {(made.segment_path(segment), 0)}
    reader = LogReader(made.directory, files, limit=lambda: 6)
    assert [(each.base_offset, each.end_offset) for each in extents_of(reader)] == [(0, 6), (6, 12), (12, 13)]
    assert list(Playback(reader, threading.RLock()).items(values_from)) == list(made.values.values())
    for offset in made.values:
        chunk = reader.cursor(offset).next()
        assert chunk is not None
        assert chunk.offset == offset


@pytest.mark.parametrize("segment", range(len(SHAPE)))
def test_a_repair_writes_a_first_page_anew_that_cannot_be_read_and_no_batch_is_lost(segment: int):
    """The disk takes a page as a whole: for a part of one, the rest would be read first."""
    files, made = built()
    files.bad = {(made.segment_path(segment), 0)}
    repair(files, made.directory, now_us=1)
    assert (files.bad == set()) == (segment == 1), "of the first and the last one, what they say is given up"
    done = repair(files, made.directory, now_us=1, accept_loss=True)
    assert (done.after.clean, files.bad) == (True, set())
    records = Playback(LogReader(made.directory, files), threading.RLock()).items(values_from)
    assert list(records) == list(made.values.values())


def test_an_index_that_cannot_be_read_is_one_to_be_rebuilt():
    files, made = built()
    files.bad = {(made.index_path(0), 0)}
    report = verify(files, made.directory)
    assert (report.ok, report.segments[0].index) == (True, "its header does not verify")


@pytest.mark.parametrize("page", range(4))
@pytest.mark.parametrize("mapped", [False, True])
def test_an_index_that_cannot_be_read_costs_readers_a_scan_and_nothing_else(page: int, mapped: bool):
    files = BadSectors()
    made = build(files, shape=((1,) * 200, (1,)), value_bytes=100)
    some = range(0, 200, 9)
    times = [LogReader(made.directory, files).time_at(offset) for offset in some]
    files.bad = {(made.index_path(0), page)}
    reader = LogReader(made.directory, files, mapped=mapped)
    assert list(Playback(reader, threading.RLock()).items(values_from)) == list(made.values.values())
    assert [reader.time_at(offset) for offset in some] == times
    assert [reader.offset_at(time_us) for time_us in times] == list(some)
    for offset in some:
        chunk = reader.cursor(offset).next(cached=not mapped)
        assert chunk is not None
        assert chunk.offset == offset
    assert files.refused > 0


def test_a_snapshot_that_cannot_be_read_says_nothing_of_how_far_the_log_was_durable():
    files = BadSectors()
    made = build(files, shape=SHAPE, unmarked=1)
    add_snapshots(made, 6)
    files.bad = {(f"{made.directory}/{file_name(6)}", 0)}
    report = verify(files, made.directory)
    assert (report.ok, report.durable_seq, bool(report.snapshots[0].problem)) == (True, 5, True)


@pytest.mark.parametrize(("code", "error"), [(errno.EMFILE, StorageFull), (errno.ENOMEM, OSError)])
def test_a_snapshot_that_cannot_be_opened_now_is_no_evidence_against_what_was_durable(code: int, error: type):
    files = RecordingFiles()
    made = build(files, shape=SHAPE, unmarked=1)
    add_snapshots(made, 6)
    names, _ = layout.live_segments(listed := files.listdir(made.directory))
    assert evidence.durable_seq(files, made.directory, listed, names, LOG_ID, 5) == 6
    files.fail("open", 1, code)
    with pytest.raises(error):
        evidence.durable_seq(files, made.directory, listed, names, LOG_ID, 5)


def test_a_repair_leaves_a_snapshot_that_cannot_be_read():
    files, made = built()
    add_snapshots(made, 3, 6)
    path = f"{made.directory}/{file_name(6)}"
    files.bad = {(path, 0)}
    done = repair(files, made.directory, now_us=1)
    assert (done.actions, files.exists(path), done.after.clean) == ([], True, False)
    files.bad = set()
    assert verify(files, made.directory).clean


def test_files_beside_the_segments_that_cannot_be_read_are_reported_and_all_else_is_looked_at():
    files, made = built()
    lost = lose(made, 2)
    accepted, poison, finals = (
        f"{made.directory}/{name}" for name in (FILE_NAME, layout.POISON, f"finals-{'0' * 32}-{0:020d}")
    )
    words = f"finals-{'1' * 32}-{0:020d}"
    for path in (accepted, poison, finals, f"{made.directory}/{words}"):
        with files.create(path, PAGE_BYTES) as file:
            file.sync()
    files.bad |= {(path, 0) for path in (accepted, poison, finals)}
    report = verify(files, made.directory)
    assert report.unread == [f"{path} cannot be read: Input/output error" for path in (accepted, poison, finals)]
    assert [bad.first_seq for bad in report.damage] == lost
    assert [words in each for each in report.finals] == [True]
    assert not report.clean


def test_a_log_is_not_clean_while_a_file_of_it_cannot_be_read():
    files, made = built()
    files.create(path := f"{made.directory}/{FILE_NAME}", PAGE_BYTES).close()
    assert verify(files, made.directory).clean
    files.bad = {(path, 0)}
    report = verify(files, made.directory)
    assert (report.ok, report.clean) == (True, False)


def test_retention_measures_a_segment_whose_last_batch_cannot_be_read_as_empty():
    files, made = built()
    reader = LogReader(made.directory, files)
    sizes = [each.record_bytes for each in extents_of(reader)]
    lose(made, made.places[3][1] // PAGE_BYTES)
    assert [each.record_bytes for each in extents_of(reader)] == [0, *sizes[1:]]
    assert sizes[0] > 0


def test_scrubbing_tells_of_it():
    files, made = built("/data/metadata")
    files.mkdir("/data/order")
    lose(made, 3)
    (rot,) = (each for each in scrub(files, "/data") if isinstance(each, Rot))
    assert rot.bad.file == made.segment_path(0)


@pytest.mark.parametrize("page", range(1, SEGMENT_PAGES - 1))
def test_it_is_mended_from_another_copy(page: int):
    """But for the page on which the batches end: writing to a part of it would read the rest."""
    files, made = built()
    lost = lose(made, page)
    (rot,) = (each for each in look_for_rot(files, made.directory) if isinstance(each, RottenRange))
    assert (rot.before.seq + 1, rot.last) == (lost[0], lost[-1])
    mending.mend(files, rot, [made.batches[seq] for seq in lost])
    assert verify(files, made.directory).clean
    assert files.bad == set()


@pytest.mark.parametrize("page", range(1, SEGMENT_PAGES))
def test_readers_get_all_in_front_of_it_and_behind_it_once_the_loss_is_accepted(page: int, caplog):
    files, made = built()
    lost = lose(made, page)
    bounds = made.ends[lost[0] - 1].offset, made.ends[lost[-1]].offset
    kept = [value for offset, value in made.values.items() if not bounds[0] <= offset < bounds[1]]
    records = Playback(LogReader(made.directory, files), threading.RLock()).items(values_from)
    assert [next(records) for _ in range(bounds[0])] == kept[: bounds[0]]
    with pytest.raises(OSError, match=made.segment_path(0)) as error:
        next(records)
    assert error.value.errno == errno.EIO
    assert repair(files, made.directory, now_us=1, accept_loss=True).after.ok
    with caplog.at_level("WARNING", log.name):
        assert list(Playback(LogReader(made.directory, files), threading.RLock()).items(values_from)) == kept
    assert f"records {bounds[0]} to" in caplog.text


def test_other_errors_are_raised():
    class Stale(PatientFile):
        def pread(self, size: int, position: int) -> bytes:
            raise OSError(errno.ESTALE, "stale")

    files, made = built()
    with pytest.raises(OSError, match="stale"):
        PatientFile(Stale(files.open(made.segment_path(0)))).pread(10, 0)


def test_as_much_is_lost_as_the_page_has_wherever_reading_begins():
    files, made = built()
    file = files.open(made.segment_path(0))
    whole = file.pread(3 * PAGE_BYTES, 100)
    lose(made, 1)
    first = PAGE_BYTES - 100
    patient = PatientFile(file)
    found = patient.pread(3 * PAGE_BYTES, 100)
    assert found == whole[:first] + b"\xff" * PAGE_BYTES + whole[first + PAGE_BYTES :]
    assert patient.trouble == f"the disk cannot read it at {PAGE_BYTES}"


def test_a_reader_asks_the_disk_for_a_bad_page_a_few_times_however_many_batches_stand_in_front_of_it():
    files = BadSectors()
    made = build(files, shape=((1,) * 200, (1,)), value_bytes=100)
    files.bad = {(made.segment_path(0), 15)}
    records = Playback(LogReader(made.directory, files), threading.RLock()).items(values_from)
    count = 0
    with pytest.raises(OSError, match="Input/output"):
        for count, _ in enumerate(records, 1):  # noqa: B007
            pass
    assert count > 100
    assert files.refused <= 4


def test_a_file_that_says_where_a_log_begins_and_cannot_be_read_is_as_none():
    files, made = built()
    write_first(files, made.directory, LOG_ID, 3)
    assert read_first(files, made.directory, LOG_ID) == 3
    files.bad = {(f"{made.directory}/{layout.FIRST}", 0)}
    assert read_first(files, made.directory, LOG_ID) == 0


def test_a_poison_that_cannot_be_read_says_that_a_sync_may_have_failed():
    files, made = built()
    poison.write(files, made.directory, "EIO", durable=5)
    files.bad = {(f"{made.directory}/{layout.POISON}", 0)}
    assert poison.text(files, made.directory) == ""
    assert find_end(files, made.directory).end.seq == 6


def test_losses_on_another_page_of_the_list_stay_accepted():
    files, made = built()
    losses = [Accepted("file", 0, seq, seq + 1, seq, seq + 1, "reason", 1) for seq in range(100)]
    write_accepted(files, made.directory, losses)
    assert len(files.read(f"{made.directory}/{FILE_NAME}")) > 2 * PAGE_BYTES
    assert accepted_losses(files, made.directory) == losses
    files.bad = {(f"{made.directory}/{FILE_NAME}", 1)}
    found = accepted_losses(files, made.directory)
    assert (found[0], found[-1]) == (losses[0], losses[-1])
    assert len(found) < len(losses)


def test_a_list_of_accepted_losses_that_cannot_be_read_accepts_none_and_is_in_the_way_of_no_reader():
    files, made = built("/data/topics/t/0")
    lost = lose(made, 2)
    repair(files, made.directory, now_us=1, accept_loss=True)
    files.bad.add((f"{made.directory}/{FILE_NAME}", 0))
    before = made.ends[lost[0] - 1].offset
    records = Playback(LogReader(made.directory, files), threading.RLock()).items(values_from)
    assert [next(records) for _ in range(before)] == list(made.values.values())[:before]
    with pytest.raises(OSError, match=made.segment_path(0)):
        next(records)
    assert [found.path for found in scrub(files, "/data") if isinstance(found, Rot)] == [made.directory]
    with pytest.raises(OSError, match=FILE_NAME):  # else it would be written without those that it has
        repair(files, made.directory, now_us=1, accept_loss=True)


def killed() -> tuple[BadSectors, str, Callable[[], LogWriter]]:
    """A log of six batches whose writer was killed: a mark says that the first two are durable. And what opens it."""
    files = BadSectors()
    how: Any = {
        "files": files,
        "order": Sole(Promises("/data/promises", files)),
        "options": LogOptions(segment_bytes=1 << 20),
    }
    writer = LogWriter.create("/data/log", log_id=LOG_ID, **how)
    for number in range(6):
        writer.append([encode([b"%d" % number * 3000])], number)
        if number < 2:
            writer.sync()
    return files, f"/data/log/{writer.names[-1].segment_file}", lambda: LogWriter.open("/data/log", **how)


@pytest.mark.parametrize("page", [6, 200, 255])
def test_a_page_behind_the_end_that_cannot_be_read_is_in_the_way_of_no_opening(page: int):
    files, path, opened = killed()
    files.bad = {(path, page)}
    assert opened().written == 6


@pytest.mark.parametrize(("page", "kept"), [(2, 2), (3, 2), (4, 3), (5, 5)])
def test_batches_behind_the_mark_that_cannot_be_read_are_given_up_by_an_operator_alone(page: int, kept: int):
    files, path, opened = killed()
    files.bad = {(path, page), (path, page + 1)}
    with pytest.raises(OSError, match=path):
        opened()
    with pytest.raises(OSError, match=path):
        repair(files, "/data/log", now_us=1)
    before = {name: bytes(content.data) for name, content in files.contents.items()}
    rehearsed = repair(files, "/data/log", now_us=1, accept_loss=True, dry_run=True)
    assert before == {name: bytes(content.data) for name, content in files.contents.items()}
    done = repair(files, "/data/log", now_us=1, accept_loss=True)
    assert done.actions == rehearsed.actions
    assert [each for each in done.actions if each.startswith("write")] == [
        f"write over what the disk cannot read of {path} behind its mark"
    ]
    assert done.after.clean or page == 2, "the page of the mark has batches that were durable, too"
    assert opened().written == kept


def test_what_lies_before_the_mark_is_not_written_over():
    files, path, opened = killed()
    files.bad = {(path, 1), (path, 4)}
    repair(files, "/data/log", now_us=1, accept_loss=True)
    assert files.bad == {(path, 1)}
    assert opened().written == 3


def test_where_the_mark_cannot_be_read_either_what_is_good_behind_stays():
    files, path, opened = killed()
    files.bad = {(path, 0), (path, 4)}
    assert repair(files, "/data/log", now_us=1, accept_loss=True).after.ok
    assert opened().written == 6, "all of it may have been durable"
