"""Whose a data directory is, and which board belongs to it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from penstock.broker.data_directory import identify, open_board
from penstock.broker.doubts import Doubt, Doubts, doubts_of
from penstock.storage.board import Board, Level, word
from penstock.storage.errors import ForeignDirectory, NewerFormat, StorageFull
from penstock.storage.files import Files

IDS = ("a" * 32, "b" * 32)


def test_an_identity_is_made_once_and_kept(tmp_path: Path):
    first = identify(Files(), str(tmp_path), fresh_ids=IDS)
    assert (first.node, first.cluster, first.format) == (*IDS, 1)
    assert identify(Files(), str(tmp_path), fresh_ids=("c" * 32, "d" * 32)) == first


def test_a_first_start_that_was_killed_half_way_is_no_stranger(tmp_path: Path):
    (tmp_path / "lock").touch()
    (tmp_path / "node.json.new").write_text("{")
    assert identify(Files(), str(tmp_path), fresh_ids=IDS).node == IDS[0]


def test_logs_without_an_identity_are_not_taken_over(tmp_path: Path):
    (tmp_path / "topics" / "x").mkdir(parents=True)
    with pytest.raises(ForeignDirectory, match=r"node\.json"):
        identify(Files(), str(tmp_path), fresh_ids=IDS)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "x"}', '{"format": 1, "node": 5, "cluster": "b"}'])
def test_a_node_file_that_cannot_be_read_is_refused_and_left_alone(tmp_path: Path, text: str):
    (tmp_path / "node.json").write_text(text)
    with pytest.raises(ForeignDirectory):
        identify(Files(), str(tmp_path), fresh_ids=IDS)
    assert (tmp_path / "node.json").read_text() == text


def test_a_newer_format_is_refused_whatever_else_it_says(tmp_path: Path):
    (tmp_path / "node.json").write_text(json.dumps({"format": 2, "shape": "unknown"}))
    with pytest.raises(NewerFormat, match="format 2"):
        identify(Files(), str(tmp_path), fresh_ids=IDS)


def board_of_a_dead_broker(data: Path) -> Board:
    """A board whose owner has ended."""
    board = open_board(Files(), str(data), rows=4, slots=2)
    ended = subprocess.Popen(["/bin/true"])
    ended.wait()
    from penstock.storage.board_row import HEADER_WORD

    board._words[HEADER_WORD["owner_pid"]] = ended.pid
    return board


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


def test_doubts_are_what_never_answered_and_what_failed(tmp_path: Path):
    board = Board.private(5)
    for number in range(5):
        board.row(number).assign(number + 1, generation=1, level=Level.DURABLE)
    fine, unanswered, failed, inline, alone = (board.row(number) for number in range(5))
    fine.sync_started = fine.synced = word(1, 5)
    unanswered.synced, unanswered.sync_started = word(1, 5), word(1, 9)
    failed.synced, failed.sync_started, failed.poison = word(1, 5), word(1, 9), word(1, 9)
    inline.sync_started, inline.durable = word(1, 5), word(1, 8)  # answered by the broker's own descriptor
    alone.durable, alone.written = word(1, 5), word(1, 7)  # the broker died in a sync of its own, without a keeper
    ids = [(number + 1).to_bytes(16, "little").hex() for number in range(5)]
    assert doubts_of(board) == [Doubt(ids[1], False, 5), Doubt(ids[2], True, 5), Doubt(ids[4], False, 5)]


def test_doubts_wait_for_their_logs_over_any_number_of_starts(tmp_path: Path):
    (tmp_path / "doubts").write_text(json.dumps([{"log_id": "01" * 16, "poisoned": True, "durable": 3}]))
    for _ in range(3):
        doubts = Doubts(Files(), str(tmp_path))
        assert doubts.about(b"\x01" * 16) == Doubt("01" * 16, True, 3)
        doubts.save()
    doubts.settled(b"\x01" * 16)
    doubts.save()
    assert not (tmp_path / "doubts").exists()


class FullFiles(Files):
    """A disk without room for another file."""

    def rewrite(self, path: str, content: object) -> None:
        raise StorageFull(f"cannot write to {path}.new: no space is left on the device")


def test_a_broker_starts_on_a_full_disk_whether_its_board_has_a_new_name_or_the_old_one(tmp_path: Path):
    data = str(tmp_path)
    first = open_board(Files(), data, rows=4, slots=2)
    name = (tmp_path / "board").read_text()
    again = open_board(FullFiles(), data, rows=4, slots=2)  # as after a crash: the board is there
    assert again.name == name == (tmp_path / "board").read_text()
    first.retire()  # as after a good end, or a boot
    fresh = open_board(FullFiles(), data, rows=4, slots=2)
    assert fresh.name != name
    assert (tmp_path / "board").read_text() == fresh.name
    fresh.retire()
    (tmp_path / "board").unlink()
    with pytest.raises(StorageFull):
        open_board(FullFiles(), data, rows=4, slots=2)
