"""Readers of an embedded log and a writer that comes at a bad moment."""

from __future__ import annotations

import pytest
from penstock.storage import board_row
from penstock.storage.board import Board, Level
from penstock.storage.embedded import Log
from penstock.storage.files import Files
from penstock.storage.following import SLOTS, Follower
from penstock.storage.group_commit import GroupCommit
from penstock.storage.layout import BOARD, word


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_reader_keeps_to_the_board_of_a_writer_that_comes_while_it_verifies(nth, tmp_path, monkeypatch):
    """It asked for a board, found none, and verified the log itself, in which by then something is not synced."""
    with Log(tmp_path / "log") as log:
        log.append(b"made")
    writers: list[Log] = []
    asks: list[int | None] = []
    ask = Follower.limit

    def asked(follower: Follower) -> int | None:
        found = ask(follower)
        asks.append(found)
        if len(asks) == nth:
            writers.append(Log(tmp_path / "log"))
            writers[0].append(b"durable")
            with monkeypatch.context() as patch:
                patch.setattr(GroupCommit, "through", lambda self, seq: None)
                writers[0].append(b"not synced yet")
        return found

    monkeypatch.setattr(Follower, "limit", asked)
    with Log(tmp_path / "log", read_only=True) as reader:
        asks.clear()
        found = [record.value for _ in range(3) for record in reader]
        assert found == [b"made", b"durable"]
        writers[0].sync()
        assert [record.value for record in reader] == [b"not synced yet"]
        writers[0].close()
        assert [record.value for record in reader] == []


def test_a_reader_sees_the_whole_log_at_each_step_of_a_writer_that_opens_and_closes(tmp_path, monkeypatch):
    """Also between the words that the writer stores on its board: neither an empty log nor what a truncation took."""
    with Log(tmp_path / "log") as log:
        log.append([b"%d" % number for number in range(10)])
        log.truncate(4)
    seen: list[tuple[int, int]] = []
    store = board_row._Word.__set__

    def watched(word: board_row._Word, row: board_row.Row, value: int) -> None:
        store(word, row, value)
        seen.append((reader.first_offset, reader.end_offset))

    with Log(tmp_path / "log", read_only=True) as reader:
        monkeypatch.setattr(board_row._Word, "__set__", watched)
        for _ in range(2):
            Log(tmp_path / "log").close()
    assert len(seen) > 4
    assert set(seen) == {(4, 10)}


def test_what_a_board_says_while_it_is_set_up_anew_does_not_count(tmp_path, monkeypatch):
    """A reader has loaded a word when the next writer sets the board up: it looks at the epoch once more."""
    path = str(tmp_path / "log")
    with Log(path) as log:
        log.append([b"one", b"two"])
        log.truncate(1)
        follower = Follower(path, Files())
        assert (follower.limit(), follower.first()) == (word(1, 1), 1)
        load = board_row.Row.committed_word_of

        def overtaken(row: board_row.Row, log_id: int) -> int | None:
            found = load(row, log_id)
            Board.create(1, slots=SLOTS, file=f"{path}/{BOARD}").close()
            return found

        with monkeypatch.context() as patch:
            patch.setattr(board_row.Row, "committed_word_of", overtaken)
            assert follower.limit() is None
        assert follower.first() == 1

        def set_up_anew(row: board_row.Row) -> int:
            Board.create(1, slots=SLOTS, file=f"{path}/{BOARD}").close()
            return follower._log_id

        with monkeypatch.context() as patch:
            patch.setattr(board_row.Row, "log_id", property(set_up_anew))
            assert follower.first() == 1
        follower.close()


def test_the_board_of_another_boot_says_nothing(tmp_path):
    """A power cut left it: what it calls committed may not be there any more."""
    path = str(tmp_path / "log")
    with Log(path) as log:
        log.append([b"one", b"two"])
    follower = Follower(path, Files())
    left = Board.create(1, slots=SLOTS, file=f"{path}/{BOARD}")
    left.row(0).assign(follower._log_id, generation=1, level=Level.DURABLE, written=9, durable=9)
    assert follower.limit() == word(1, 9)
    left._words[board_row.HEADER_WORD["boot_low"]] ^= 1
    assert Follower(path, Files()).limit() is None
