"""Whose a data directory is, and which board belongs to it."""

from __future__ import annotations

import errno
import json
import os
import subprocess
from pathlib import Path

import pytest
from penstock.storage.board import Board, Level
from penstock.storage.data_directory import check_kinds, claim, identify, metadata_path, open_board, previous_board
from penstock.storage.errors import BoardUnavailable, Corrupt, Error, ForeignDirectory, NewerFormat, StorageFull
from penstock.storage.files import Files
from support.files import RecordingFiles


def outcome(data: Path) -> str:
    """What is decided about a directory."""
    try:
        found = identify(Files(), str(data))
    except Error as error:
        return error.code
    return "new" if found is None else found.node


def test_an_identity_is_made_once_and_kept(tmp_path: Path):
    assert outcome(tmp_path) == outcome(tmp_path / "missing") == "new"
    made = claim(Files(), str(tmp_path))
    assert identify(Files(), str(tmp_path)) == identify(Files(), str(tmp_path), node=made.node) == made
    assert made.format == 1


def test_a_first_start_that_was_killed_half_way_is_no_stranger(tmp_path: Path):
    (tmp_path / "lock").touch()
    (tmp_path / "node.json.new").write_text("{")
    assert outcome(tmp_path) == "new"


@pytest.mark.parametrize("name", ["topics", "metadata", "trash", "board", "doubts", "promises"])
def test_what_a_node_left_without_its_identity_is_not_taken_over(tmp_path: Path, name: str):
    (tmp_path / name).mkdir()
    with pytest.raises(ForeignDirectory, match=rf"no node\.json.* {name} "):
        identify(Files(), str(tmp_path))


@pytest.mark.parametrize("name", ["lock", "promises", "doubts"])
def test_what_stands_in_place_of_a_file_is_named_with_the_way_out(tmp_path: Path, name: str):
    check_kinds(Files(), str(tmp_path))
    (tmp_path / name).touch()
    check_kinds(Files(), str(tmp_path))
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    with pytest.raises(Corrupt, match=f"{tmp_path}/{name} is no file: move it away"):
        check_kinds(Files(), str(tmp_path))


@pytest.mark.parametrize("name", ["metadata", "topics"])
def test_what_stands_in_place_of_a_directory_is_named_with_the_way_out(tmp_path: Path, name: str):
    (tmp_path / name).mkdir()
    check_kinds(Files(), str(tmp_path))
    (tmp_path / name).rmdir()
    (tmp_path / name).touch()
    with pytest.raises(Corrupt, match=f"{tmp_path}/{name} is no directory: move it away"):
        check_kinds(Files(), str(tmp_path))


def test_a_catalogue_is_missed_only_where_there_are_topics(tmp_path: Path):
    (tmp_path / "topics" / "lost+found").mkdir(parents=True)
    assert metadata_path(Files(), str(tmp_path)) is None
    (tmp_path / "topics" / f"{17:032x}").mkdir()
    with pytest.raises(Corrupt, match=r"metadata is gone though .* has topics"):
        metadata_path(Files(), str(tmp_path))


def test_a_node_that_expects_its_directory_takes_no_other(tmp_path: Path):
    with pytest.raises(ForeignDirectory, match="mounted"):
        identify(Files(), str(tmp_path), node="c" * 32)
    claim(Files(), str(tmp_path))
    with pytest.raises(ForeignDirectory, match="belongs to node"):
        identify(Files(), str(tmp_path), node="c" * 32)


UNREADABLE = [
    *(b"", b"[]", b"{}", b"\0" * 90, b"\xff", b"[" * 10_000, b'{"format": "x"}', b'{"format": null}'),
    b'{"format": 1, "node": 5, "cluster": "b"}',
]


@pytest.mark.parametrize("name", ["", "node.json"])
def test_what_cannot_be_listed_or_read_is_no_data_directory(tmp_path: Path, name: str):
    data = tmp_path / "data"
    if name:
        (data / name).mkdir(parents=True)
    else:
        data.write_text("a file")
    assert outcome(data) == "foreign_directory"


@pytest.mark.parametrize("text", UNREADABLE)
def test_a_node_file_that_cannot_be_read_is_refused_and_left_alone(tmp_path: Path, text: bytes):
    (tmp_path / "node.json").write_bytes(text)
    assert outcome(tmp_path) == "foreign_directory"
    assert (tmp_path / "node.json").read_bytes() == text


def test_a_newer_format_is_refused_whatever_else_it_says(tmp_path: Path):
    (tmp_path / "node.json").write_text(json.dumps({"format": 3, "shape": "unknown"}))
    with pytest.raises(NewerFormat, match="format 3"):
        identify(Files(), str(tmp_path))


def board_of_a_dead_broker(data: Path) -> Board:
    """A board whose owner has ended."""
    board = open_board(Files(), str(data), rows=4, slots=2)
    ended = subprocess.Popen(["/bin/true"])
    ended.wait()
    from penstock.storage.board_row import HEADER_WORD

    board._words[HEADER_WORD["owner_pid"]] = ended.pid
    return board


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_a_board_that_another_user_made_under_the_name_is_not_taken(tmp_path: Path):
    board = board_of_a_dead_broker(tmp_path)
    Path(f"/dev/shm{board.name}").chmod(0o666)
    os.chown(f"/dev/shm{board.name}", 12345, -1)
    assert previous_board(Files(), str(tmp_path)) is None
    mine = open_board(Files(), str(tmp_path), rows=4, slots=2)
    assert mine.name != board.name
    os.chown(tmp_path / "board", 12345, -1)
    os.chown(f"/dev/shm{mine.name}", 12345, -1)
    found = previous_board(Files(), str(tmp_path))
    assert found is not None, "the directory's own user is no other one"
    board.retire()
    mine.retire()


def test_the_board_of_a_dead_broker_is_set_up_anew_in_place(tmp_path: Path):
    board = board_of_a_dead_broker(tmp_path)
    board.row(0).assign(5, generation=1, level=Level.DURABLE)
    epoch = board.epoch
    again = open_board(Files(), str(tmp_path), rows=4, slots=2)
    assert again.name == board.name
    assert board.epoch == again.epoch != epoch
    assert board.row(0).log_id == 0
    again.retire()


def test_the_board_of_another_living_process_is_left_alone(tmp_path: Path):
    """A copied data directory names the board of the original, whose broker may be running."""
    board = board_of_a_dead_broker(tmp_path)
    from penstock.storage.board_row import HEADER_WORD

    board._words[HEADER_WORD["owner_pid"]] = os.getppid()
    board.row(0).assign(5, generation=1, level=Level.DURABLE)
    mine = open_board(Files(), str(tmp_path), rows=4, slots=2)
    assert mine.name != board.name
    assert board.row(0).log_id == 5
    mine.retire()
    board.retire()


@pytest.mark.parametrize(
    ("code", "is_told"),
    [
        *((code, True) for code in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)),
        *((code, False) for code in (errno.ENOENT, errno.EACCES, errno.ELOOP)),
    ],
)
def test_a_board_that_a_process_is_too_short_to_look_at_is_not_taken_for_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, is_told: bool
):
    """It may say which syncs never answered."""
    board = board_of_a_dead_broker(tmp_path)
    opened = os.open

    def short(path: str, *how: int) -> int:
        if str(path).endswith(board.name):
            raise OSError(code, os.strerror(code))
        return opened(path, *how)

    monkeypatch.setattr(os, "open", short)
    if is_told:
        with pytest.raises(BoardUnavailable):
            previous_board(Files(), str(tmp_path))
    else:
        assert previous_board(Files(), str(tmp_path)) is None
    monkeypatch.undo()
    found = previous_board(Files(), str(tmp_path))
    assert found is not None
    found.close()
    board.retire()


def test_a_note_that_cannot_be_read_for_want_of_memory_is_no_note_of_nothing():
    files = RecordingFiles({"d/board": b"/a"})
    files.fail("open", 1, errno.ENOMEM)
    with pytest.raises(OSError, match="ENOMEM"):
        previous_board(files, "d")
    files.fail("open", 1, errno.EIO)
    assert previous_board(files, "d") is None


NAMES = [b"", b"\0" * 30, b"/", b"//", b"/tmp/", b"name", b"tmp/board", b"/" + b"a" * 300, b"/a\0b", b"\xff"]


@pytest.mark.parametrize("name", NAMES)
def test_a_note_that_names_no_board_is_written_anew(tmp_path: Path, name: bytes):
    (tmp_path / "board").write_bytes(name)
    assert previous_board(Files(), str(tmp_path)) is None
    board = open_board(Files(), str(tmp_path), rows=4, slots=2)
    assert (tmp_path / "board").read_text() == board.name
    board.retire()


def test_a_note_that_cannot_be_read_names_no_board(tmp_path: Path):
    (tmp_path / "board").mkdir()
    assert previous_board(Files(), str(tmp_path)) is None
    before = set(os.listdir("/dev/shm"))
    with pytest.raises(IsADirectoryError):
        open_board(Files(), str(tmp_path), rows=4, slots=2)
    assert not [name for name in set(os.listdir("/dev/shm")) - before if is_mine(name)]


def is_mine(name: str) -> bool:
    """Whether this process made that board: others use shared memory as well."""
    try:
        return name.startswith("penstock-") and Board.attach(f"/{name}").owner_pid == os.getpid()
    except Error:
        return False


class FullFiles(Files):
    """A disk without room for another file."""

    def rewrite(self, path: str, content: object) -> None:
        raise StorageFull(f"cannot write to {path}.new: no space is left on the device")


def test_a_broker_starts_on_a_full_disk_whether_its_board_has_a_new_name_or_the_old_one(tmp_path: Path):
    data = str(tmp_path)
    first = open_board(Files(), data, rows=4, slots=2)
    name = (tmp_path / "board").read_text()
    # As after a crash: the board is there, and its owner is not.
    again = open_board(FullFiles(), data, rows=4, slots=2, is_owned=lambda pid: False)
    assert again.name == name == (tmp_path / "board").read_text()
    first.retire()  # as after a good end, or a boot
    fresh = open_board(FullFiles(), data, rows=4, slots=2)
    assert fresh.name != name
    assert (tmp_path / "board").read_text() == fresh.name
    fresh.retire()
    (tmp_path / "board").unlink()
    with pytest.raises(StorageFull):
        open_board(FullFiles(), data, rows=4, slots=2)
