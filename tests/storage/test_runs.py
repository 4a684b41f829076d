"""Runs: written once, read whole or not at all, removed when no snapshot names them."""

from __future__ import annotations

import errno
import random

import pytest
from penstock.storage import runs, snapshots
from penstock.storage.errors import Corrupt, StorageFull
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.runs import RunFiles
from support.files import Disk, Note, RecordingFiles

LOG_ID = b"L" * 16


def made() -> tuple[MemoryFiles, RunFiles]:
    files = MemoryFiles()
    files.mkdir("/log")
    return files, RunFiles(files, "/log", LOG_ID)


def test_a_run_comes_back_as_it_was_written() -> None:
    _, found = made()
    checksum = found.save(3, b"body" * 1000)
    assert found.load(3, checksum) == b"body" * 1000
    assert found.unsynced == [3]
    found.synced([3])
    assert found.unsynced == []


def test_a_number_that_was_used_by_a_lost_state_is_used_again() -> None:
    files, found = made()
    lost = found.save(1, b"lost" * 100)
    again = RunFiles(files, "/log", LOG_ID)
    checksum = again.save(1, b"new")
    assert again.load(1, checksum) == b"new"
    with pytest.raises(Corrupt, match="another run"):
        again.load(1, lost)


def test_every_flipped_bit_and_every_cut_is_seen() -> None:
    files, found = made()
    checksum = found.save(1, b"some bytes")
    path = f"/log/{runs.file_name(1)}"
    whole = bytes(files.read(path))
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Corrupt):
            runs.decode(bytes(damaged), 1, checksum, LOG_ID)
    for size in range(len(whole)):
        with pytest.raises(Corrupt):
            runs.decode(whole[:size], 1, checksum, LOG_ID)


def test_a_run_of_another_log_or_number_is_refused() -> None:
    files, found = made()
    checksum = found.save(1, b"x")
    with pytest.raises(Corrupt, match="another run"):
        RunFiles(files, "/log", b"M" * 16).load(1, checksum)
    files.rename(f"/log/{runs.file_name(1)}", f"/log/{runs.file_name(2)}")
    with pytest.raises(Corrupt, match="another run"):
        found.load(2, checksum)
    with pytest.raises(Corrupt, match="missing"):
        found.load(1, checksum)


def test_a_run_that_cannot_be_read_is_not_to_be_had_unless_that_may_pass() -> None:
    files = RecordingFiles()
    found = RunFiles(files, "/log", LOG_ID)
    checksum = found.save(1, b"x")
    for code, error in ((errno.EIO, Corrupt), (errno.EMFILE, StorageFull), (errno.ENOMEM, OSError)):
        files.fail("open", 1, code)
        with pytest.raises(error):
            found.load(1, checksum)
    assert found.load(1, checksum) == b"x"


def test_only_what_is_named_stays() -> None:
    files, found = made()
    for number in range(1, 5):
        found.save(number, b"x")
    files.create("/log/other", 1).close()
    found.drop({2, 4})
    assert sorted(files.listdir("/log")) == ["other", runs.file_name(2), runs.file_name(4)]


@pytest.mark.parametrize(
    "error", [OSError(errno.EIO, "Input/output error"), StorageFull("too many open files")], ids=repr
)
@pytest.mark.parametrize("call", ["listdir", "unlink"])
def test_runs_that_cannot_be_removed_now_go_with_a_later_call(
    call: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise error

    files, found = made()
    for number in (1, 2):
        found.save(number, b"x")
    with monkeypatch.context() as patched:
        patched.setattr(files, call, refuse)
        found.drop({2})
    assert len(files.listdir("/log")) == 2
    found.drop({2})
    assert files.listdir("/log") == [runs.file_name(2)]


@pytest.mark.parametrize("seed", range(40))
def test_a_snapshot_that_a_power_cut_left_has_its_runs(seed: int) -> None:
    """At every point of writing: a snapshot that was reported as saved is there, and every run that it names."""
    choose = random.Random(seed)
    files = RecordingFiles(directories=["/log"])
    found, checksums = RunFiles(files, "/log", LOG_ID), dict[int, int]()
    for seq in (1, 2):
        checksums[seq] = found.save(seq, bytes([seq]) * choose.choice([10, 9000]))
        runs.sync(files, "/log", found.unsynced)
        snapshots.save(files, "/log", seq, 1, b"names %d" % seq, LOG_ID)
        files.note(seq)
    disk, saved = Disk(files), 0
    for operation in files.journal:
        if isinstance(operation, Note):
            saved = operation.value
        disk.apply(operation)
        image = RecordingFiles(disk.image(choose, choose.choice(["none", "some", "all"])), ["/log"])
        if saved:
            newest = snapshots.load_newest(image, "/log", LOG_ID)
            assert newest is not None
            assert newest.seq >= saved
            for number in range(1, saved + 1):
                body = RunFiles(image, "/log", LOG_ID).load(number, checksums[number])
                assert set(body) == {number}
