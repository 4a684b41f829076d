"""All file systems behave alike, and the real one refuses what it must."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import stat
from functools import partial
from pathlib import Path

import pytest
from penstock.storage import files as storage_files
from penstock.storage.errors import StorageFull
from penstock.storage.files import FileLock, Files, full_or
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.rehearsal import RehearsalFiles


def made(kind: str, tmp_path: Path) -> tuple[Files, str]:
    files, root = (Files(), f"{tmp_path}/root") if kind == "disk" else (MemoryFiles(), "/root")
    files.mkdir(root)
    return RehearsalFiles(files) if kind == "rehearsal" else files, root


@pytest.fixture(params=["disk", "memory", "rehearsal"])
def place(request, tmp_path) -> tuple[Files, str]:
    return made(request.param, tmp_path)


@pytest.fixture(params=["disk", "memory"])
def with_locks(request, tmp_path) -> tuple[Files, str]:
    """Files that also lock, and move and remove whole directories."""
    return made(request.param, tmp_path)


def test_a_new_file_is_zeros_of_the_size_asked(place) -> None:
    files, root = place
    file = files.create(f"{root}/a", 5000)
    assert file.size() == 5000
    assert file.pread(6000, 0) == bytes(5000)
    with pytest.raises(FileExistsError):
        files.create(f"{root}/a")


def test_a_small_file_is_rewritten_as_a_whole_and_read_as_a_whole(place) -> None:
    files, root = place
    with pytest.raises(FileNotFoundError):
        files.read(f"{root}/a")
    files.create(f"{root}/a.new", 10).close()  # left by a process that died while rewriting
    for content in (b"a long first text", b"short", b""):
        files.rewrite(f"{root}/a", content)
        assert files.read(f"{root}/a") == content
    assert files.listdir(root) == ["a"]


def test_what_is_written_is_read_back_also_through_other_descriptors_and_mappings(place) -> None:
    files, root = place
    file = files.create(f"{root}/a", 100)
    other = files.open(f"{root}/a")
    file.pwritev([b"one", memoryview(b"two"), bytearray(b"three")], 10)
    for read in (file.pread, other.pread):
        assert read(11, 10) == b"onetwothree"
    assert other.pread_cached(11, 10) == b"onetwothree"
    assert bytes(other.map()[10:21]) == b"onetwothree"
    file.sync()
    file.close()
    other.close()


def test_a_sync_that_was_begun_changes_nothing_and_ends_as_any(place) -> None:
    files, root = place
    with files.create(f"{root}/a", 5000) as file:
        file.pwritev([b"x"], 0)
        file.begin_sync()
        file.sync()
        assert file.pread(2, 0) == b"x\0"


@pytest.mark.parametrize(
    ("code", "fails"), [(errno.EIO, True), (errno.ENOSPC, True), (errno.ENOSYS, False), (errno.EPERM, False)]
)
def test_a_sync_that_cannot_begin_is_told_unless_the_system_knows_no_such_call(tmp_path, monkeypatch, code, fails):
    def call(*_: object) -> int:
        ctypes.set_errno(code)
        return -1

    monkeypatch.setattr(storage_files, "_sync_file_range", lambda: call)
    with Files().create(f"{tmp_path}/a", 5000) as file:
        if fails:
            with pytest.raises(OSError, match=os.strerror(code)) as caught:
                file.begin_sync()
            assert (caught.value.errno, caught.value.filename) == (code, f"{tmp_path}/a")
        else:
            file.begin_sync()


def test_a_sync_of_a_file_that_was_closed_does_not_begin(tmp_path):
    file = Files().create(f"{tmp_path}/a", 5000)
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.begin_sync()


def test_a_system_without_the_call_begins_no_sync(tmp_path, monkeypatch):
    monkeypatch.setattr(storage_files, "_sync_file_range", lambda: None)
    with Files().create(f"{tmp_path}/a", 5000) as file:
        file.begin_sync()


def test_more_buffers_than_one_call_takes_are_written_whole(place) -> None:
    files, root = place
    file = files.create(f"{root}/a")
    file.pwritev([b"%04d" % number for number in range(3000)], 0)
    assert file.pread(12_000, 0) == b"".join(b"%04d" % number for number in range(3000))


def test_reading_past_the_end_gives_what_is_there(place) -> None:
    files, root = place
    file = files.create(f"{root}/a")
    file.pwritev([b"abc"], 0)
    assert file.pread(10, 1) == b"bc"
    assert file.pread(10, 5) == b""
    assert file.pread_cached(10, 1) == b"bc"
    assert len(files.create(f"{root}/empty").map()) == 0


def test_much_that_is_in_memory_is_read_whole_and_stays_when_the_file_changes(place) -> None:
    files, root = place
    file = files.create(f"{root}/a")
    content = bytes(range(256)) * 1024
    file.pwritev([content], 0)
    found = file.pread_cached(200_000, 1000)
    assert found == content[1000:201_000]
    assert file.pread_cached(1 << 20, 100_000) == content[100_000:]
    file.pwritev([bytes(len(content))], 0)
    assert found == content[1000:201_000]
    with pytest.raises(TypeError):
        found[0] = 1


def test_a_rename_never_replaces_and_a_replace_does(place) -> None:
    files, root = place
    for name in "ab":
        files.create(f"{root}/{name}").pwritev([name.encode()], 0)
    with pytest.raises(FileExistsError):
        files.rename(f"{root}/a", f"{root}/b")
    files.rename(f"{root}/a", f"{root}/c")
    files.replace(f"{root}/c", f"{root}/b")
    assert files.listdir(root) == ["b"]
    assert files.open(f"{root}/b").pread(1, 0) == b"a"


def test_a_file_lives_on_for_those_who_have_it_open(place) -> None:
    files, root = place
    file = files.create(f"{root}/a")
    file.pwritev([b"still here"], 0)
    view = file.map()
    files.unlink(f"{root}/a")
    assert not files.exists(f"{root}/a")
    assert bytes(view) == file.pread(10, 0) == b"still here"
    with pytest.raises(FileNotFoundError):
        files.open(f"{root}/a")
    with pytest.raises(FileNotFoundError):
        files.unlink(f"{root}/a")


def test_directories_are_made_moved_and_removed_with_what_they_hold(with_locks) -> None:
    files, root = with_locks
    files.mkdir(f"{root}/x/y/z")
    files.mkdir(f"{root}/x/y/z")
    files.create(f"{root}/x/y/z/f").pwritev([b"1"], 0)
    files.sync_dir(f"{root}/x/y/z")
    files.rename_dir(f"{root}/x/y", f"{root}/moved")
    assert files.open(f"{root}/moved/z/f").pread(1, 0) == b"1"
    files.remove_tree(f"{root}/moved")
    files.remove_tree(f"{root}/moved")
    assert sorted(files.listdir(root)) == ["x"]
    assert files.listdir(f"{root}/nowhere") == []


def test_what_is_a_file_is_no_directory(place) -> None:
    files, root = place
    files.mkdir(f"{root}/x")
    files.create(f"{root}/a").close()
    files.create(f"{root}/gone").close()
    files.unlink(f"{root}/gone")
    found = {
        name: (files.is_file(f"{root}/{name}"), files.is_directory(f"{root}/{name}")) for name in ("x", "a", "gone")
    }
    assert found == {"x": (False, True), "a": (True, False), "gone": (False, False)}
    assert files.is_directory(root)


def test_the_second_to_lock_gets_what_the_first_one_wrote(with_locks) -> None:
    files, root = with_locks
    first = files.try_lock(f"{root}/lock")
    assert isinstance(first, FileLock)
    first.note(b"it is me")
    assert files.try_lock(f"{root}/lock") == b"it is me"
    first.release()
    first.release()
    assert not first.held
    again = files.try_lock(f"{root}/lock")
    assert isinstance(again, FileLock)
    again.release()


def test_files_and_directories_are_private_to_the_user(tmp_path) -> None:
    files = Files()
    files.mkdir(f"{tmp_path}/new")
    files.create(f"{tmp_path}/new/file").close()
    assert stat.S_IMODE(os.stat(f"{tmp_path}/new").st_mode) == 0o700
    assert stat.S_IMODE(os.stat(f"{tmp_path}/new/file").st_mode) == 0o600


def test_a_link_is_followed_to_a_directory_and_never_to_a_file(tmp_path) -> None:
    files, foreign = Files(), tmp_path / "foreign"
    foreign.write_bytes(b"another's")
    (tmp_path / "log").mkdir()
    (tmp_path / "way").symlink_to(tmp_path / "log")
    link = tmp_path / "way" / "file"
    link.symlink_to(foreign)
    path = str(link)
    for use in (files.open, files.read, files.try_lock, lambda path: files.open(path, write=True)):
        with pytest.raises(OSError, match=r"is a symbolic link.*/way/file"):
            use(path)
    with pytest.raises(FileExistsError):
        files.create(path)
    files.rewrite(path, b"ours")
    assert (foreign.read_bytes(), files.read(path), link.is_symlink()) == (b"another's", b"ours", False)


def test_a_directory_in_place_of_a_file_is_named_with_the_way_out(tmp_path) -> None:
    files, path = Files(), str(tmp_path / "index")
    os.mkdir(path)
    rewrite = partial(files.rewrite, content=b"ours")
    for use in (files.read, files.try_lock, partial(files.open, write=True), files.unlink, rewrite):
        with pytest.raises(IsADirectoryError, match=r"is a directory where a file belongs: move it away.*/index'$"):
            use(path)


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_what_else_stands_in_place_of_a_file_is_named_and_keeps_no_caller_waiting(tmp_path, kind: str) -> None:
    files, path = Files(), str(tmp_path / "index")
    if kind == "pipe":
        os.mkfifo(path)
    else:
        with socket.socket(socket.AF_UNIX) as bound, contextlib.chdir(tmp_path):
            bound.bind("index")
    for use in (files.read, files.try_lock, files.open, partial(files.open, write=True)):
        with pytest.raises(OSError, match=r"a pipe or a device where a file belongs: move it away.*index'$"):
            use(path)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE])
def test_out_of_anything_is_storage_full_and_says_of_what(code: int) -> None:
    error = full_or(OSError(code, "x"), "/some/file", "write to")
    assert isinstance(error, StorageFull)
    assert "/some/file" in str(error)
    assert error.retry


@pytest.mark.parametrize("question", ["exists", "is_file", "is_directory"])
def test_what_cannot_be_told_is_not_taken_for_gone(tmp_path, monkeypatch, question: str) -> None:
    ask = getattr(Files(), question)
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert [ask(str(tmp_path / name)) for name in ("gone", "file/below", "loop/below")] == [False] * 3

    def fail(path: str) -> os.stat_result:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr(os, "lstat", fail)
    monkeypatch.setattr(os, "stat", fail)
    with pytest.raises(OSError, match="Input/output"):
        ask("/anything")


def test_other_errors_stay_what_they_are() -> None:
    error = OSError(errno.EIO, "x")
    assert full_or(error, "/some/file", "write to") is error


def test_a_disk_without_room_leaves_no_file_behind(tmp_path, monkeypatch) -> None:
    def no_room(*_: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "posix_fallocate", no_room)
    with pytest.raises(StorageFull, match="no space is left"):
        Files().create(f"{tmp_path}/a", 4096)
    assert os.listdir(tmp_path) == []
