"""What a keeper does with files: what must be durable before what."""

from __future__ import annotations

from penstock.storage import jobs, runs, snapshots
from penstock.storage.layout import DATA_START, SegmentName
from penstock.storage.runs import RunFiles
from support.files import Name, RecordingFiles, Sync, SyncDir, Write

LOG_ID = b"L" * 16


def prepared() -> RecordingFiles:
    """Two runs and a snapshot, written and not synced."""
    files = RecordingFiles(directories=["/log"])
    found = RunFiles(files, "/log", LOG_ID)
    found.save(1, b"one")
    found.save(2, b"two")
    snapshots.prepare(files, "/log", 7, 1, b"body", LOG_ID)
    return files


def test_runs_are_synced_before_the_snapshot_has_its_name() -> None:
    files = prepared()
    numbers = [files.number(f"/log/{runs.file_name(number)}") for number in (1, 2)]
    jobs.finish_snapshot(files, "/log", 7, LOG_ID, [1, 2])
    named = f"/log/{snapshots.file_name(7)}"
    places = {each.target: place for place, each in enumerate(files.journal) if isinstance(each, Name)}
    synced = {each.file: place for place, each in enumerate(files.journal) if isinstance(each, Sync)}
    assert all(synced[number] < places[named] for number in numbers)
    assert snapshots.load_newest(files, "/log", LOG_ID) is not None


def test_a_run_that_is_gone_again_holds_nothing_up() -> None:
    files = prepared()
    files.unlink(f"/log/{runs.file_name(1)}")
    assert jobs.finish_snapshot(files, "/log", 7, LOG_ID, [1, 2]) == 0
    assert snapshots.load_newest(files, "/log", LOG_ID) is not None


def test_the_first_page_of_a_spare_is_on_the_disk_before_it_is_used() -> None:
    """Only then does syncing a header there change nothing but that page."""
    files = RecordingFiles(directories=["/log"])
    path = jobs.prepare_spare(files, "/log", 20_000)
    number = files.number(path)
    assert files.journal[-2:] == [Write(number, 0, bytes(DATA_START)), Sync(number)]
    assert files.read(path) == bytes(20_000)


def test_a_segment_is_gone_from_the_disk_before_the_next_one() -> None:
    names = [SegmentName(seq, 1) for seq in (1, 5)]
    paths = [f"/log/{file}" for name in names for file in (name.segment_file, name.index_file)]
    files = RecordingFiles(dict.fromkeys(paths, b""), ["/log"])
    jobs.unlink(files, "/log", [path.rpartition("/")[2] for path in paths])
    one, its_index, other, its = (Name(path, None) for path in paths)
    synced = SyncDir("/log")
    assert files.journal == [synced, one, synced, its_index, other, synced, its, synced]


def test_names_that_stay_are_durable_before_files_are_removed_and_the_removal_after() -> None:
    files = RecordingFiles({"/log/old": b"1", "/log/new": b"2"}, ["/log"])
    jobs.unlink(files, "/log", ["old", "gone already"])
    assert files.journal == [SyncDir("/log"), Name("/log/old", None), SyncDir("/log")]
    jobs.unlink(files, "/nowhere", ["old"])
    assert len(files.journal) == 3
