"""Snapshots: whole ones come back, damaged ones fall back to the one before, and order survives a crash."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from penstock.storage import snapshots
from penstock.storage.errors import BadChecksum, Corrupt, InvalidBatch, NewerFormat, StorageError, StorageFull
from penstock.storage.files import Files
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.snapshots import Snapshot, load_newest, save, second_newest_seq
from support.files import RecordingFiles

LOG, OTHER = bytes(range(16)), bytes(16 * [7])


@pytest.fixture(params=["disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    if request.param == "disk":
        return Files(), str(tmp_path)
    files = MemoryFiles()
    files.mkdir("/log")
    return files, "/log"


def change(files: Files, path: str, edit: Callable[[bytearray], bytes | bytearray]) -> None:
    """Replace a file by an edited copy of itself."""
    file = files.open(path)
    data = edit(bytearray(file.pread(file.size(), 0)))
    file.close()
    files.unlink(path)
    new = files.create(path, len(data))
    new.pwritev([data], 0)
    new.close()


def flip(position: int) -> Callable[[bytearray], bytearray]:
    def edit(data: bytearray) -> bytearray:
        data[position] ^= 0x10
        return data

    return edit


def test_a_saved_snapshot_comes_back(place: tuple[Files, str]) -> None:
    files, directory = place
    assert load_newest(files, directory) is None
    assert save(files, directory, 12, 3, b"state", LOG) == 0
    assert load_newest(files, directory, LOG) == Snapshot(12, 3, b"state", LOG)
    assert files.listdir(directory) == ["snapshot-00000000000000000012"]


def test_an_empty_body_is_a_body(place: tuple[Files, str]) -> None:
    files, directory = place
    save(files, directory, 1, 1, b"")
    assert load_newest(files, directory) == Snapshot(1, 1, b"")


def test_two_are_kept_and_the_second_newest_is_what_segments_may_go_up_to(place: tuple[Files, str]) -> None:
    files, directory = place
    assert [save(files, directory, seq, 1, b"at %d" % seq) for seq in (5, 9, 30, 31)] == [0, 5, 9, 30]
    assert sorted(files.listdir(directory)) == [snapshots.file_name(30), snapshots.file_name(31)]
    assert second_newest_seq(files, directory) == 30


def test_a_damaged_one_does_not_count_as_the_second_newest(place: tuple[Files, str]) -> None:
    files, directory = place
    save(files, directory, 5, 1, b"five")
    save(files, directory, 9, 1, b"nine")
    change(files, f"{directory}/{snapshots.file_name(9)}", flip(64))
    assert second_newest_seq(files, directory) == 0
    assert save(files, directory, 30, 1, b"thirty") == 5
    assert sorted(files.listdir(directory)) == [snapshots.file_name(5), snapshots.file_name(30)]


@pytest.mark.parametrize(
    "edit",
    [
        flip(0),
        flip(9),
        flip(20),
        flip(40),
        flip(50),
        flip(60),
        flip(64),
        flip(67),
        lambda d: d[:66],
        lambda d: b"",
        lambda d: bytes(len(d)),
    ],
    ids=["checksum", "magic", "seq", "log", "size", "body sum", "body", "end of body", "cut", "empty", "zeros"],
)
def test_a_damaged_newest_falls_back_to_the_one_before(
    place: tuple[Files, str], edit: Callable[[bytearray], bytes]
) -> None:
    files, directory = place
    save(files, directory, 5, 1, b"five", LOG)
    save(files, directory, 9, 1, b"nine", LOG)
    change(files, f"{directory}/{snapshots.file_name(9)}", edit)
    assert load_newest(files, directory, LOG) == Snapshot(5, 1, b"five", LOG)
    problems = [found.problem for found in snapshots.scan(files, directory, LOG)]
    assert isinstance(problems[0], StorageError)
    assert snapshots.file_name(9) in problems[0].message
    assert problems[1] is None


def test_a_snapshot_under_another_name_is_refused(place: tuple[Files, str]) -> None:
    files, directory = place
    save(files, directory, 5, 1, b"five")
    files.replace(f"{directory}/{snapshots.file_name(5)}", f"{directory}/{snapshots.file_name(6)}")
    with pytest.raises(Corrupt, match="holds the snapshot of seq 5"):
        snapshots.load(files, directory, snapshots.file_name(6))
    assert load_newest(files, directory) is None


def test_a_snapshot_of_another_log_is_refused(place: tuple[Files, str]) -> None:
    files, directory = place
    save(files, directory, 5, 1, b"five", OTHER)
    with pytest.raises(Corrupt, match="belongs to log"):
        snapshots.load(files, directory, snapshots.file_name(5), LOG)
    assert load_newest(files, directory, LOG) is None


def test_one_beyond_the_end_of_the_log_is_not_used(place: tuple[Files, str]) -> None:
    files, directory = place
    save(files, directory, 5, 1, b"five")
    save(files, directory, 9, 1, b"nine")
    assert load_newest(files, directory, last_seq=8) == Snapshot(5, 1, b"five")


def test_a_log_that_no_snapshot_reaches_is_not_opened(place: tuple[Files, str]) -> None:
    files, directory = place
    save(files, directory, 5, 1, b"five")
    assert load_newest(files, directory, first_seq=6) == Snapshot(5, 1, b"five")
    with pytest.raises(Corrupt, match="starts at seq 7 and no snapshot reaches it"):
        load_newest(files, directory, first_seq=7)
    change(files, f"{directory}/{snapshots.file_name(5)}", flip(64))
    with pytest.raises(Corrupt, match=r"body of .* does not match"):
        load_newest(files, directory, first_seq=6)


def test_a_newer_version_is_refused_instead_of_passed_over(place: tuple[Files, str]) -> None:
    files, directory = place
    save(files, directory, 5, 1, b"five")
    save(files, directory, 9, 1, b"nine")

    def newer(data: bytearray) -> bytearray:
        data[12] = 2
        data[:8] = snapshots.xxh3_64_intdigest(bytes(data[8:64])).to_bytes(8, "little")
        return data

    change(files, f"{directory}/{snapshots.file_name(9)}", newer)
    with pytest.raises(NewerFormat, match="upgrade"):
        load_newest(files, directory)


def test_an_unfinished_one_is_not_seen_and_is_swept_by_the_next(place: tuple[Files, str]) -> None:
    files, directory = place
    save(files, directory, 5, 1, b"five")
    snapshots.prepare(files, directory, 9, 1, b"nine")
    assert load_newest(files, directory) == Snapshot(5, 1, b"five")
    path = snapshots.prepare(files, directory, 9, 1, b"nine again")
    assert path.endswith(".new")
    assert snapshots.commit(files, directory, 9) == 5
    assert load_newest(files, directory) == Snapshot(9, 1, b"nine again")
    snapshots.prepare(files, directory, 11, 1, b"left behind")
    save(files, directory, 12, 1, b"twelve")
    assert sorted(files.listdir(directory)) == [snapshots.file_name(9), snapshots.file_name(12)]


def test_a_newer_one_that_is_being_synced_meanwhile_is_left(place: tuple[Files, str]) -> None:
    files, directory = place
    snapshots.prepare(files, directory, 5, 1, b"five")
    snapshots.prepare(files, directory, 9, 1, b"nine")
    assert [snapshots.commit(files, directory, seq) for seq in (5, 9)] == [0, 5]
    assert load_newest(files, directory) == Snapshot(9, 1, b"nine")


def test_foreign_files_are_left_alone(place: tuple[Files, str]) -> None:
    files, directory = place
    names = ["snapshot-5", "snapshot-x0000000000000000005", "snapshots", "00000000000000000001-00000001.segment"]
    for name in names:
        files.create(f"{directory}/{name}").close()
    save(files, directory, 5, 1, b"five")
    save(files, directory, 6, 1, b"six")
    save(files, directory, 7, 1, b"seven")
    assert set(names) <= set(files.listdir(directory))


def test_the_errors_name_the_file_and_the_place() -> None:
    whole = snapshots.encode_header(5, 1, b"body") + b"body"
    for data, error, position in [
        (whole[:10], InvalidBatch, None),
        (b"\1" + whole[1:], BadChecksum, 0),
        (whole[:-1], Corrupt, len(whole) - 1),
        (whole[:-1] + b"!", BadChecksum, 64),
    ]:
        with pytest.raises(error, match="the/file") as caught:
            snapshots.decode(data, "the/file")
        if isinstance(caught.value, Corrupt):
            assert (caught.value.path, caught.value.position) == ("the/file", position)


def two(*seqs: int) -> RecordingFiles:
    files = RecordingFiles()
    files.mkdir("/log")
    for seq in seqs:
        save(files, "/log", seq, 1, b"at %d" % seq)
    return files


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE, errno.ENOMEM])
def test_one_that_cannot_be_read_now_is_not_removed_and_does_not_count(code: int) -> None:
    files = two(5, 9)
    snapshots.prepare(files, "/log", 12, 1, b"twelve")
    files.fail("open", 1, code)
    assert snapshots.commit(files, "/log", 12) == 5
    assert files.listdir("/log") == [snapshots.file_name(seq) for seq in (5, 9, 12)]
    assert save(files, "/log", 13, 1, b"thirteen") == 12
    assert files.listdir("/log") == [snapshots.file_name(seq) for seq in (12, 13)], "it is not needed any more"


def test_a_bad_sector_falls_back_to_the_one_before_and_what_says_nothing_of_the_bytes_is_raised() -> None:
    files = two(5, 9)
    files.fail("open", 1, errno.EIO)
    assert load_newest(files, "/log") == Snapshot(5, 1, b"at 5")
    files.fail("open", 1, errno.EIO)
    assert second_newest_seq(files, "/log") == 0
    for code, error in ((errno.EMFILE, StorageFull), (errno.ENOMEM, OSError)):
        for read in (load_newest, second_newest_seq, lambda *place: load_newest(*place, first_seq=20)):
            files.fail("open", 1, code)
            with pytest.raises(error):
                read(files, "/log")
    assert load_newest(files, "/log") == Snapshot(9, 1, b"at 9")


def test_one_that_a_newer_one_replaces_meanwhile_is_no_problem() -> None:
    files = two(5, 9)
    files.fail("open", 1, errno.ENOENT)
    assert [(found.seq, found.problem) for found in snapshots.scan(files, "/log")] == [(5, None)]


def test_a_full_disk_that_no_system_call_told_of_takes_no_snapshot_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a process keeps descriptors for other uses."""
    files = two(5, 9)
    snapshots.prepare(files, "/log", 12, 1, b"twelve")
    monkeypatch.setattr(files, "read", lambda path: (_ for _ in ()).throw(StorageFull("no descriptor is left")))
    assert snapshots.commit(files, "/log", 12) == 0
    assert len(files.listdir("/log")) == 3
