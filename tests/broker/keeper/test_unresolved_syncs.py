"""What a dead pair of broker and keeper leaves in doubt."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from penstock.broker.keeper.unresolved_syncs import Doubt, UnresolvedSyncs, doubts_of
from penstock.storage.board import Board, Level, word
from penstock.storage.files import Files


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


def test_a_log_that_is_lent_may_have_more_than_the_board_says(tmp_path: Path):
    board = Board.private(2)
    for number, row in enumerate((board.row(0), board.row(1))):
        row.assign(number + 1, generation=1, level=Level.WRITTEN)
        row.publish(1, 5, 5, 0)
    board.row(1).lent = 99
    assert doubts_of(board) == [Doubt((2).to_bytes(16, "little").hex(), False, 5)]


def test_doubts_wait_for_their_logs_over_any_number_of_starts(tmp_path: Path):
    (tmp_path / "doubts").write_text(json.dumps([{"log_id": "01" * 16, "poisoned": True, "durable": 3}]))
    for _ in range(3):
        doubts = UnresolvedSyncs(Files(), str(tmp_path))
        assert doubts.about(b"\x01" * 16) == Doubt("01" * 16, True, 3)
        doubts.save()
    doubts.settled(b"\x01" * 16)
    doubts.save()
    assert not (tmp_path / "doubts").exists()


@pytest.mark.parametrize("text", [b"", b"[", b"[5]", b"\0" * 40, b"\xff"])
def test_doubts_that_cannot_be_read_are_about_every_log_until_it_is_open(
    tmp_path: Path, text: bytes, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "doubts").write_bytes(text)
    doubts = UnresolvedSyncs(Files(), str(tmp_path))
    assert "every log is in doubt" in caplog.text
    for number in (1, 2):
        assert doubts.about(bytes([number]) * 16) == Doubt(f"0{number}" * 16, False)
    doubts.settled(b"\x01" * 16)
    doubts.save()
    again = UnresolvedSyncs(Files(), str(tmp_path))
    assert (again.about(b"\x01" * 16), again.about(b"\x02" * 16)) == (None, Doubt("02" * 16, False))


def test_doubts_about_every_log_outlast_a_start_that_is_cut_short(tmp_path: Path):
    (tmp_path / "doubts").write_bytes(b"[")
    UnresolvedSyncs(Files(), str(tmp_path))
    assert UnresolvedSyncs(Files(), str(tmp_path)).about(b"\x01" * 16) == Doubt("01" * 16, False)


class Unread(Files):
    """A disk that does not hand out one file of a data directory."""

    def __init__(self, name: str, code: int = errno.EIO) -> None:
        self.name = name
        self.code = code

    def read(self, path: str) -> bytes:
        if path.endswith(f"/{self.name}"):
            raise OSError(self.code, os.strerror(self.code), path)
        return super().read(path)


@pytest.mark.parametrize("name", ["board", "doubts"])
def test_what_the_disk_cannot_read_of_the_last_broker_puts_every_log_in_doubt(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "board").write_text("/penstock-of-nothing")
    (tmp_path / "doubts").write_text("[]")
    assert UnresolvedSyncs(Files(), str(tmp_path)).about(b"\x01" * 16) is None, "that board is gone"
    (tmp_path / "doubts").write_text("[]")
    doubts = UnresolvedSyncs(Unread(name), str(tmp_path))
    assert f"{tmp_path}/{name} cannot be read, so every log is in doubt" in caplog.text
    assert doubts
    assert doubts.about(b"\x01" * 16) == Doubt("01" * 16, False)
    doubts.settled(b"\x01" * 16)
    assert UnresolvedSyncs(Files(), str(tmp_path)).about(b"\x02" * 16), "until a start has gone well"
    doubts.save()
    assert not UnresolvedSyncs(Files(), str(tmp_path))


@pytest.mark.parametrize("name", ["board", "doubts"])
def test_a_process_that_may_not_look_does_not_start(tmp_path: Path, name: str):
    for each in ("board", "doubts"):
        (tmp_path / each).write_text("[]")
    with pytest.raises(OSError, match=os.strerror(errno.EACCES)):
        UnresolvedSyncs(Unread(name, errno.EACCES), str(tmp_path))
    assert (tmp_path / "doubts").exists()
